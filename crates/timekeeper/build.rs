//! Sets the library's soname, by which linked programs find it. The soname changes when the interface does.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtimekeeper.so.1");
}

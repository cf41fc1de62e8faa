//! The name by which programs that were linked to this library find it: it changes with the interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblorentz.so.0");
}

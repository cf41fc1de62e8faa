//! Sets the soname of `liblorentz_timers.so`. Linked programs record this name; it changes with the interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblorentz_timers.so.0");
}

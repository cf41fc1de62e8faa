//! Has the extension find the libraries that a wheel brings: it lies in lib/pythonX.Y/site-packages/lorentz, they in lib/lorentz-time.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN/../../../lorentz-time");
}

//! Links for a fixed address. Data without relocations is not copied into each process's own memory, and each container has a
//! monitor of its own.

fn main() {
    println!("cargo:rustc-link-arg-bins=-no-pie");
    println!("cargo:rerun-if-changed=build.rs");
}

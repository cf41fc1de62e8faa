//! Links for a fixed address: what needs no relocation when it starts is not copied into each process's own memory, and
//! there is one monitor for each container.

fn main() {
    println!("cargo:rustc-link-arg-bins=-no-pie");
    println!("cargo:rerun-if-changed=build.rs");
}

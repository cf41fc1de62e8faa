//! Builds the program anew when the page was built anew.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let page = Path::new("../../web/dist");
    // Cargo would take a directory that is not there for one that changes at each build.
    if Path::new("../../web").exists() {
        let _ = std::fs::create_dir_all(page);
    }
    if page.exists() {
        println!("cargo:rerun-if-changed={}", page.display());
    }
}

//! Compiles the BPF programs of `bpf/` and makes them part of the crate. Needs clang.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let source = "bpf/idle.bpf.c";
    println!("cargo::rerun-if-changed={source}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("idle.skel.rs");
    // The directory of <asm/types.h> on Debian and Ubuntu.
    let headers = "-I/usr/include/x86_64-linux-gnu";
    if let Err(error) =
        SkeletonBuilder::new().source(source).clang_args([headers]).build_and_generate(&out)
    {
        panic!("{source}: {error:#}\n(clang is needed: apt-get install clang)");
    }
}

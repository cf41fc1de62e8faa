//! Compiles the BPF program of `bpf/` and makes it part of the crate. Needs clang.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let source = "bpf/newcomers.bpf.c";
    println!("cargo::rerun-if-changed={source}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("newcomers.skel.rs");
    // The directory of <asm/types.h> on Debian and Ubuntu.
    let headers = "-I/usr/include/x86_64-linux-gnu";
    // Atomic additions that return a value.
    let instructions = "-mcpu=v3";
    if let Err(error) = SkeletonBuilder::new()
        .source(source)
        .clang_args([headers, instructions])
        .build_and_generate(&out)
    {
        panic!("{source}: {error:#}\n(clang is needed: apt-get install clang)");
    }
}

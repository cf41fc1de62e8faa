//! Compiles the BPF programs of `bpf/` and makes them part of the crate. Needs clang.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    for name in ["packets", "inband"] {
        let source = format!("bpf/{name}.bpf.c");
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default())
            .join(format!("{name}.skel.rs"));
        // The directory in which Debian and Ubuntu keep <asm/types.h>. Atomic exchanges need the third version of the BPF
        // instruction set.
        let args = ["-I/usr/include/x86_64-linux-gnu", "-mcpu=v3"];
        if let Err(error) =
            SkeletonBuilder::new().source(&source).clang_args(args).build_and_generate(&out)
        {
            panic!("{source}: {error:#}\n(clang is needed: apt-get install clang)");
        }
    }
}

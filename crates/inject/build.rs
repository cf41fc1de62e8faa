//! Builds the shim's image: the crates `clock` and `shim` again, for a fixed address and without a standard library.

use object::{Object, ObjectSegment};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What makes code fit for the image: no relocation left to do, no panic that unwinds, tables for unwinders.
const FLAGS: &[&str] = &[
    "--edition=2021",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    "-Coverflow-checks=off",
    "-Cdebuginfo=0",
    "-Crelocation-model=static",
    "-Cforce-unwind-tables=yes",
    "-Cembed-bitcode=yes",
];

fn main() {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("..");
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    for part in ["clock/src", "shim/src", "shim/image.ld"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    let clock = out.join("liblorentz_clock.rlib");
    let archive = out.join("libshim.a");
    let image = out.join("image.elf");
    rustc("lorentz_clock", "rlib", &crates.join("clock/src/lib.rs"), &clock, &[]);
    let with_clock = format!("--extern=lorentz_clock={}", clock.display());
    let source = crates.join("shim/src/lib.rs");
    rustc(
        "lorentz_shim",
        "staticlib",
        &source,
        &archive,
        &["--cfg=image", "-Clto=fat", &with_clock],
    );
    link(&crates.join("shim/image.ld"), &archive, &image);
    check(&image);
}

fn rustc(name: &str, kind: &str, source: &Path, out: &Path, more: &[&str]) {
    let rustc = env::var("RUSTC").expect("set by cargo");
    run(Command::new(rustc)
        .args(FLAGS)
        .args(more)
        .args(["--crate-name", name, "--crate-type", kind, "--cap-lints", "allow"])
        .arg(source)
        .arg("-o")
        .arg(out));
}

/// By the system's linker, named here, so that the layout does not depend on the one rustc prefers.
fn link(script: &Path, archive: &Path, out: &Path) {
    run(Command::new("ld")
        .args([
            "-nostdlib",
            "-static",
            "-no-pie",
            "--eh-frame-hdr",
            "--build-id=none",
            "--gc-sections",
        ])
        .args(["-z", "noexecstack", "-z", "max-page-size=4096", "--strip-all", "-T"])
        .arg(script)
        .arg("-o")
        .arg(out)
        .arg(archive));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} failed");
}

/// The image must need no work when it is mapped: one segment at its address, and nothing to relocate. Then it is called
/// a shared object, as the kernel's vDSO is.
fn check(path: &Path) {
    const E_TYPE: usize = 16;
    const ET_DYN: u8 = 3;
    let mut bytes = fs::read(path).expect("just written");
    {
        let file = object::File::parse(&*bytes).expect("the linker writes ELF");
        assert_eq!(file.segments().count(), 1, "the image must be one segment");
        let segment = file.segments().next().expect("counted");
        assert_eq!(segment.file_range().0, 0, "file offsets must be addresses less the base");
        let relocations = file.dynamic_relocations().map_or(0, Iterator::count);
        assert_eq!(relocations, 0, "the image must need no relocation");
    }
    bytes[E_TYPE] = ET_DYN;
    fs::write(path, bytes).expect("just read");
}

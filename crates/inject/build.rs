//! Builds the shim's image: compiles the crates `clock`, `syscalls` and `shim` a second time, for a fixed address and without the
//! standard library.

use object::{Object, ObjectSegment};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Compiler flags that make code fit for the image: no relocations left, no panic that unwinds, tables for unwinders.
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
    for part in ["clock/src", "syscalls/src", "shim/src", "shim/image.ld"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    let features: &[&str] = match env::var_os("CARGO_FEATURE_FAILPOINTS") {
        Some(_) => &["--cfg", "feature=\"failpoints\""],
        None => &[],
    };
    let clock = out.join("liblorentz_clock.rlib");
    let syscalls = out.join("liblorentz_syscalls.rlib");
    let archive = out.join("libshim.a");
    let image = out.join("image.elf");
    rustc("lorentz_clock", "rlib", &crates.join("clock/src/lib.rs"), &clock, features);
    rustc("lorentz_syscalls", "rlib", &crates.join("syscalls/src/lib.rs"), &syscalls, &[]);
    let with_clock = format!("--extern=lorentz_clock={}", clock.display());
    let with_syscalls = format!("--extern=lorentz_syscalls={}", syscalls.display());
    let source = crates.join("shim/src/lib.rs");
    rustc(
        "lorentz_shim",
        "staticlib",
        &source,
        &archive,
        &[features, &["--cfg=image", "-Clto=fat", &with_clock, &with_syscalls]].concat(),
    );
    link(&crates.join("shim/image.ld"), &archive, &image);
    check(&image, layout(&crates));
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

/// Links with the system's `ld`, named here, so that the layout does not depend on the linker that rustc prefers.
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

/// Checks that the image needs no work when it is mapped: one segment at its address, and nothing to relocate.
///
/// Then writes its headers and tables as the kernel writes its vDSO's: as a shared object that begins at address 0. A program
/// that looks for functions in it adds the address of the mapping.
fn check(path: &Path, layout: u32) {
    const E_TYPE: usize = 16;
    const ET_DYN: u8 = 3;
    /// x86-64 defines no flags. Bit 0 says that the image can be adopted (`CAN_BE_ADOPTED` in `src/image.rs`). Bits 8 to 31 are the
    /// layout (`Shim` in `src/image.rs`).
    const E_FLAGS: usize = 48;
    let mut bytes = fs::read(path).expect("just written");
    let base = {
        let file = object::File::parse(&*bytes).expect("the linker writes ELF");
        assert_eq!(file.segments().count(), 1, "the image must be one segment");
        let segment = file.segments().next().expect("counted");
        assert_eq!(segment.file_range().0, 0, "file offsets must be addresses less the base");
        let relocations = file.dynamic_relocations().map_or(0, Iterator::count);
        assert_eq!(relocations, 0, "the image must need no relocation");
        segment.address()
    };
    bytes[E_TYPE] = ET_DYN;
    bytes[E_FLAGS..E_FLAGS + 4].copy_from_slice(&(layout << 8 | 1).to_le_bytes());
    begin_at_zero(&mut bytes, base);
    println!("cargo::rustc-env=LORENTZ_SHIM_CHECKSUM={}", checksum(&bytes));
    fs::write(path, bytes).expect("just read");
}

/// A checksum of 24 bits of the source text that says what a process with the image shares with the programs outside, without
/// comments.
fn layout(crates: &Path) -> u32 {
    const SHARED: [&str; 6] = [
        "clock/src",
        "shim/src/adopt.rs",
        "shim/src/filter.rs",
        "shim/src/gate.rs",
        "shim/src/image.rs",
        "shim/src/layout.rs",
    ];
    let mut files = Vec::new();
    for part in SHARED {
        collect(&crates.join(part), &mut files);
    }
    files.sort();
    // The registry has words for the failpoints.
    let mut text = format!("{:?}\n", env::var_os("CARGO_FEATURE_FAILPOINTS"));
    for file in files {
        let source = fs::read_to_string(&file).expect("UTF-8");
        let lines = source.lines().map(str::trim);
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
        lines.filter(is_code).for_each(|line| text.extend([line, "\n"]));
    }
    checksum(text.as_bytes()) >> 8
}

/// Adds the files at `path` and below it.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        return files.push(path.to_path_buf());
    }
    for entry in fs::read_dir(path).expect("a directory of sources") {
        collect(&entry.expect("an entry").path(), files);
    }
}

/// CRC-32, which tells builds of the shim apart. Computed here, because it takes a millisecond.
fn checksum(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let step = |crc: u32, _| (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Subtracts `base` from the addresses in the program headers, the dynamic table and the symbols.
fn begin_at_zero(bytes: &mut [u8], base: u64) {
    const PROGRAM_HEADERS: usize = 64;
    const PROGRAM_HEADER: usize = 56;
    const PT_DYNAMIC: u64 = 2;
    const SYMBOL: usize = 24;
    // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH, DT_VERSYM, DT_VERDEF.
    const ADDRESSES: [u64; 6] = [4, 5, 6, 0x6fff_fef5, 0x6fff_fff0, 0x6fff_fffc];
    let headers = u16::from_le_bytes([bytes[56], bytes[57]]) as usize;
    let mut dynamic = 0;
    for header in (0..headers).map(|i| PROGRAM_HEADERS + PROGRAM_HEADER * i) {
        if word(bytes, header) as u32 as u64 == PT_DYNAMIC {
            dynamic = word(bytes, header + 8) as usize;
        }
        take_off(bytes, header + 16, base);
        take_off(bytes, header + 24, base);
    }
    let (mut symbols, mut hash) = (0, 0);
    while word(bytes, dynamic) != 0 {
        let tag = word(bytes, dynamic);
        if ADDRESSES.contains(&tag) {
            take_off(bytes, dynamic + 8, base);
        }
        match tag {
            4 => hash = word(bytes, dynamic + 8) as usize,
            6 => symbols = word(bytes, dynamic + 8) as usize,
            _ => {}
        }
        dynamic += 16;
    }
    let count = (word(bytes, hash) >> 32) as usize;
    (1..count).for_each(|i| take_off(bytes, symbols + SYMBOL * i + 8, base));
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn take_off(bytes: &mut [u8], at: usize, base: u64) {
    let less = word(bytes, at).checked_sub(base).expect("an address of the image");
    bytes[at..at + 8].copy_from_slice(&less.to_le_bytes());
}

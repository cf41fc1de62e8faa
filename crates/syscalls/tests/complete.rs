//! The table and the world: no call of the kernel's is missing, and the page is the table's.

use lorentz_syscalls::{handler, Form, Page, When, NUMBERS, TABLE};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Numbers and names in the sources of linux-raw-sys, which are made from the kernel's headers.
fn numbers_of_the_kernel() -> Vec<(u32, String)> {
    let source = source_of("linux-raw-sys").join("src/x86_64/general.rs");
    let text = fs::read_to_string(source).unwrap();
    let entry = |line: &str| {
        let (name, number) = line.strip_prefix("pub const __NR_")?.split_once(": u32 = ")?;
        Some((number.strip_suffix(';')?.parse().unwrap(), name.to_string()))
    };
    text.lines().filter_map(entry).collect()
}

/// Where cargo has the newest version of a package.
fn source_of(package: &str) -> PathBuf {
    let metadata = Command::new(env::var("CARGO").unwrap())
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    let text = String::from_utf8(metadata.stdout).unwrap();
    let manifests = text.split('"').filter(|word| word.ends_with("/Cargo.toml"));
    let folders = manifests.filter_map(|manifest| Path::new(manifest).parent());
    let name = |folder: &&Path| folder.file_name().unwrap().to_str().unwrap().starts_with(package);
    let version = |folder: &&Path| {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let numbers = name[package.len() + 1..].split('.').map(|n| n.parse().unwrap_or(0));
        numbers.collect::<Vec<u32>>()
    };
    folders.filter(name).max_by_key(version).expect("no such package").to_path_buf()
}

#[test]
fn each_call_of_the_kernel_is_there() {
    let mut kernels = numbers_of_the_kernel();
    kernels.sort();
    assert!(kernels.len() > 350, "{}", kernels.len());
    let ours: Vec<_> =
        NUMBERS.iter().map(|(call, name)| (call.number(), name.to_string())).collect();
    assert_eq!(ours, kernels, "numbers.rs lacks a call: does it tell or take a time?");
}

#[test]
fn no_call_has_two_rows() {
    let mut numbers: Vec<u32> = TABLE.iter().map(|row| row.number.number()).collect();
    numbers.sort();
    let rows = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), rows);
}

#[test]
fn each_trapped_call_names_a_test_that_is_there() {
    for row in TABLE.iter().filter(|row| !row.traps.is_empty()) {
        assert!(!row.meaning.is_empty(), "{}", row.name);
        let test = Path::new(ROOT).join("tests").join(row.test);
        assert!(test.exists(), "{}: {}", row.name, test.display());
    }
}

/// `LORENTZ_WRITE=1` writes the page anew.
#[test]
fn the_page_is_written_from_the_table() {
    let page = Path::new(ROOT).join("docs/syscalls.md");
    if env::var_os("LORENTZ_WRITE").is_some() {
        fs::write(&page, Page.to_string()).unwrap();
    }
    let there = fs::read_to_string(&page).unwrap_or_default();
    assert!(there == Page.to_string(), "docs/syscalls.md is old: scripts/syscalls writes it anew");
}

#[test]
fn a_call_is_trapped_by_its_timeout() {
    for row in TABLE {
        let Some(timeout) = row.timeout else { continue };
        for (_, when) in row.traps {
            match *when {
                When::Given(argument) | When::EitherGiven(argument, _) => {
                    assert_eq!(argument, timeout.argument, "{}", row.name);
                    assert_ne!(timeout.form, Form::Millis, "{}", row.name);
                }
                When::Positive(argument) | When::PositiveOrGiven(argument, _) => {
                    assert_eq!((argument, Form::Millis), (timeout.argument, timeout.form));
                }
                When::Always | When::FutexWait => {}
                other => panic!("{}: {other:?}", row.name),
            }
        }
    }
}

#[test]
fn every_trapped_call_is_carried_out_by_a_handler() {
    let reaches_it = |when: &When| !matches!(when, When::Monitor | When::Refused);
    for row in TABLE {
        let is_trapped = row.traps.iter().any(|(_, when)| reaches_it(when));
        assert_eq!(handler(row.number).is_some(), is_trapped, "{}", row.name);
    }
}

#[test]
fn every_handler_carries_out_a_call() {
    let source =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/handler.rs")).unwrap();
    let (_, variants) = source.split_once("pub enum Handler {").unwrap();
    let variants = variants.split_once('}').unwrap().0.split(',').map(str::trim);
    let used: Vec<String> =
        TABLE.iter().filter_map(|row| row.handler).map(|h| format!("{h:?}")).collect();
    for variant in variants.filter(|variant| !variant.is_empty()) {
        assert!(used.iter().any(|name| name == variant), "{variant}");
    }
}

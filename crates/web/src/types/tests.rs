//! The TypeScript of the page and these types are the same. `LORENTZ_WRITE_INTERFACE=1` writes the files anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ts_rs::{Config, TS};

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/lib/api")
}

/// Writes all types into `folder`.
fn export(folder: &Path) {
    let config = Config::new().with_out_dir(folder).with_large_int("number");
    macro_rules! export {
        ($($of:ty)*) => { $(<$of>::export_all(&config).unwrap();)* };
    }
    export! {
        About ActionRequest ActionResult CaptureDropped CheckRequest CheckResult Failure FileEntry History ImportRequest
        ImportResult Output Session SessionRequest State StateChange TerminalEnd TerminalSize Tick Wait Written
    }
    let mut names: Vec<String> =
        files(folder).into_keys().filter(|name| name != "index.ts").collect();
    names.sort();
    let lines = names.iter().map(|name| {
        let name = name.trim_end_matches(".ts");
        format!("export type {{ {name} }} from './{name}';\n")
    });
    fs::write(folder.join("index.ts"), lines.collect::<String>()).unwrap();
}

/// Returns the names and texts of the files in `folder`.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn the_pages_types_are_these() {
    let stored = folder();
    if std::env::var_os("LORENTZ_WRITE_INTERFACE").is_some() {
        let _ = fs::remove_dir_all(&stored);
        fs::create_dir_all(&stored).unwrap();
        export(&stored);
    }
    let fresh = tempfile::tempdir().unwrap();
    export(fresh.path());
    assert_eq!(files(&stored), files(fresh.path()), "LORENTZ_WRITE_INTERFACE=1 writes them anew");
}

#[test]
fn the_stored_description_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let fresh = format!("{:#}\n", openapi::describe());
    if std::env::var_os("LORENTZ_WRITE_INTERFACE").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap();
    assert!(stored == fresh, "docs/openapi.json: LORENTZ_WRITE_INTERFACE=1 writes it anew");
}

#[test]
fn instants_travel_as_text() {
    let now = Now { real_ns: Nanos(i64::MAX), wall_ns: Nanos(-1) };
    let text = serde_json::to_string(&now).unwrap();
    assert_eq!(text, r#"{"real_ns":"9223372036854775807","wall_ns":"-1"}"#);
    assert_eq!(serde_json::from_str::<Now>(&text).unwrap(), now);
    assert!(serde_json::from_str::<Nanos>("\"1.5\"").is_err());
}

#[test]
fn an_action_is_named_by_its_verb() {
    let dilate: ActionRequest =
        serde_json::from_str(r#"{"do": "dilate", "name": "lab", "rate": "2", "dry": true}"#)
            .unwrap();
    let expected = Action::Dilate { name: "lab".into(), rate: Some("2".into()), tdf: None };
    assert_eq!(dilate, ActionRequest { action: expected, dry: true });
    assert!(serde_json::from_str::<ActionRequest>(r#"{"do": "format"}"#).is_err());
    let progress = r#"{"do": "experiment-progress", "name": "x", "timeline": 1}"#;
    assert!(serde_json::from_str::<ActionRequest>(progress).is_ok());
}

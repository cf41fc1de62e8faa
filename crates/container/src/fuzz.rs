//! Fuzz targets: bind mounts, records of containers.

use std::str::from_utf8;

use lorentz_fuzz::{fuzz, fuzz_json};

use crate::bundle::Bind;
use crate::state::ContainerRecord;

const RECORD: &str = r#"{"version":1,"name":"web","created":"2030-01-01T00:00:00Z","created_boot_ns":7,"boot_id":"b",
    "command":["date"],"mechanism":"shim","clock_of":null,"cgroup":null,
    "monitors":[{"pid":7,"start_ticks":9,"kind":"run","program":null}]}"#;

#[test]
fn fuzz_bind() {
    fuzz("bind", &["/srv:/data", "./x:/y:ro"], &[":", ":ro", ":rw", "/", ".."], |bytes| {
        let Some(Ok(bind)) = from_utf8(bytes).ok().map(str::parse::<Bind>) else { return false };
        assert!(bind.target.is_absolute() && !bind.source.as_os_str().is_empty());
        true
    });
}

#[test]
fn fuzz_record() {
    let words = ["\"name\":", "\"pid\":", "\"boot\":", "true"];
    fuzz_json("record", &[RECORD], &words, |bytes| {
        serde_json::from_slice::<ContainerRecord>(bytes).is_ok()
    });
}

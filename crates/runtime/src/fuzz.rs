//! Fuzz target: annotations and variables of the environment.

use std::str::from_utf8;

use lorentz_fuzz::fuzz;

use crate::annotations::Asked;

#[test]
fn fuzz_annotations() {
    let seeds = [
        "lorentz.rate=10\nlorentz.at=2038-01-19\nlorentz.skip-idle=force\nlorentz.name=web",
        "LORENTZ_RATE=1/10\nLORENTZ_OFFSET=+10d\nPATH=/bin",
    ];
    let words =
        ["lorentz.", "LORENTZ_", "=", "\n", "tdf", "frozen", "monotonic", "boottime", "true", "on"];
    fuzz("annotations", &seeds, &words, |bytes| {
        let Ok(text) = from_utf8(bytes) else { return false };
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Asked::read(pairs, text.lines()).is_ok()
    });
}

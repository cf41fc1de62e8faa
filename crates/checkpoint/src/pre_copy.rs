//! Pre-copy: the memory of a container's programs is saved and sent in rounds while they run. Then they are stopped, and what they have
//! written since the last round is saved with the rest.
//!
//! ```text
//! DIR/
//!     pre-1/     all memory
//!     pre-2/     what was written since; parent -> ../pre-1
//!     criu/      what was written since, and all else; parent -> ../pre-2
//! ```
//!
//! The kernel marks what they write (soft-dirty pages). In a round the container stands still for as long as CRIU copies the memory.
//! Its waits go on afterwards, as in a checkpoint that leaves it running.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use crate::compress::MEMORY;
use crate::directory::Unfinished;

const ROUND: &str = "pre-";
const MAX_ROUNDS: u32 = 8;
/// A round with so little memory is the last one, bytes: a further one would take as long as the rest.
const LITTLE: u64 = 4 << 20;

/// Saves memory into `unfinished` by `save`, which gets a directory and its parent's path from there, and sends each round by `send`,
/// until programs write so fast that a further round would not be worth it. Returns the path of the last one from CRIU's images.
pub fn copy_ahead(
    unfinished: &Unfinished,
    save: impl Fn(&Path, Option<&str>) -> anyhow::Result<()>,
    mut send: impl FnMut(&str, &Path) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let (mut parent, mut before, mut round) = (None, u64::MAX, 0);
    loop {
        round += 1;
        let name = format!("{ROUND}{round}");
        let dir = unfinished.make_dir(&name)?;
        save(&dir, parent.as_deref())?;
        send(&name, &dir)?;
        let (saved, last) = (memory_in(&dir)?, format!("../{name}"));
        if saved <= LITTLE || saved > before / 2 || round == MAX_ROUNDS {
            return Ok(last);
        }
        (parent, before) = (Some(last), saved);
    }
}

/// Whether a directory of a checkpoint is of a round.
pub fn is_sent_ahead(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(ROUND)
}

/// Length of the memory in the images in `dir`, bytes.
fn memory_in(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(MEMORY) {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::directory::Place;

    /// Runs rounds that save so many MiB. Returns the path of the last one, what each had as its parent, and what was sent.
    fn rounds(megabytes: &[u64]) -> (String, Vec<Option<String>>, Vec<String>) {
        let above = tempfile::tempdir().unwrap();
        let place = Place::beside(&above.path().join("saved")).unwrap();
        let unfinished = Unfinished::make(&place).unwrap();
        let (parents, mut sent) = (RefCell::new(Vec::new()), Vec::new());
        let save = |dir: &Path, parent: Option<&str>| {
            let mut parents = parents.borrow_mut();
            let memory = fs::File::create(dir.join("pages-1.img"))?;
            memory.set_len(megabytes[parents.len()] << 20)?;
            parents.push(parent.map(String::from));
            Ok(())
        };
        let send = |name: &str, dir: &Path| {
            assert!(dir.join("pages-1.img").exists() && is_sent_ahead(name.as_ref()));
            sent.push(name.to_string());
            Ok(())
        };
        let last = copy_ahead(&unfinished, save, send).unwrap();
        (last, parents.into_inner(), sent)
    }

    #[test]
    fn rounds_end_where_little_is_left() {
        let (last, parents, sent) = rounds(&[100, 40, 3]);
        assert_eq!((last.as_str(), sent.len()), ("../pre-3", 3));
        assert_eq!(parents, [None, Some("../pre-1".into()), Some("../pre-2".into())]);
        assert_eq!(rounds(&[1]).0, "../pre-1");
    }

    #[test]
    fn rounds_end_where_programs_write_as_fast_as_they_are_saved() {
        assert_eq!(rounds(&[100, 51]).0, "../pre-2");
        let halves: Vec<u64> = (0..8).map(|i| 4096 >> i).collect();
        assert_eq!(rounds(&halves).0, "../pre-8");
    }
}

//! Capabilities that are lent for an adoption.
//!
//! Only a process with CAP_SYS_ADMIN, or with `no_new_privs`, may install a filter. The images of the others say that they have it,
//! and CAP_SETPCAP, by which they give both up. No instruction of the program runs in between.

use std::fs;
use std::io;
use std::path::Path;

use lorentz_inject::Capabilities;
use protobuf::well_known_types::empty::Empty;
use protobuf::Message;

use crate::image::{self, field, set_field, set_numbers};
use crate::ProcessEntry;

/// Fields of `core_entry` in CRIU's core.proto, of `thread_core_entry` there, and of `creds_entry` in creds.proto.
const THREAD: u32 = 5;
const CREDENTIALS: u32 = 10;
const PERMITTED: u32 = 10;
const EFFECTIVE: u32 = 11;
const BOUNDING: u32 = 12;

/// Lends the capabilities to the first thread of each process that needs them.
pub fn lend(images: &Path, processes: &[ProcessEntry]) -> io::Result<()> {
    for process in processes {
        let Some(own) = process.capabilities else { continue };
        let path = images.join(format!("core-{}.img", process.pid));
        let unlike = || io::Error::other(format!("{} is not as CRIU 4 writes it", path.display()));
        let lent = with_capabilities(&fs::read(&path)?, own.sets().lent()).ok_or_else(unlike)?;
        fs::write(&path, lent)?;
    }
    Ok(())
}

fn with_capabilities(image: &[u8], sets: Capabilities) -> Option<Vec<u8>> {
    const LOWER_HALF: u64 = u32::MAX as u64;
    let (magic, message) = image::split(image)?;
    let mut core = Empty::parse_from_bytes(message).ok()?;
    let mut thread = field(&core, THREAD)?;
    let mut credentials = field(&thread, CREDENTIALS)?;
    let Capabilities { permitted, effective, bounding } = sets;
    for (number, set) in [(PERMITTED, permitted), (EFFECTIVE, effective), (BOUNDING, bounding)] {
        set_numbers(&mut credentials, number, &[set & LOWER_HALF, set >> 32]);
    }
    set_field(&mut thread, CREDENTIALS, &credentials)?;
    set_field(&mut core, THREAD, &thread)?;
    image::join(magic, &core.write_to_bytes().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(permitted: u64) -> Vec<u8> {
        let (mut core, mut thread, mut credentials) = (Empty::new(), Empty::new(), Empty::new());
        for number in [PERMITTED, EFFECTIVE, BOUNDING] {
            set_numbers(&mut credentials, number, &[permitted, 7]);
        }
        set_field(&mut thread, CREDENTIALS, &credentials).unwrap();
        set_field(&mut core, THREAD, &thread).unwrap();
        image::join(b"magic-no", &core.write_to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn all_three_sets_are_replaced() {
        let set = 7 << 32 | 0x20_0100;
        let sets = Capabilities { permitted: set, effective: set, bounding: set };
        let core_of = |image: &[u8]| {
            let (_, message) = image::split(image)?;
            field(&field(&Empty::parse_from_bytes(message).ok()?, THREAD)?, CREDENTIALS)
        };
        let lent = with_capabilities(&core(0), sets).unwrap();
        assert_eq!(core_of(&lent), core_of(&core(0x20_0100)));
    }

    #[test]
    fn an_unknown_image_is_refused() {
        let sets = Capabilities { permitted: 0, effective: 0, bounding: 0 };
        let empty = image::join(b"magic-no", &[]).unwrap();
        for wrong in [&empty[..], &core(0)[..20], b""] {
            assert_eq!(with_capabilities(wrong, sets), None);
        }
    }
}

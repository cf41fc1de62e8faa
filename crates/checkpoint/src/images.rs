//! CRIU's images, as far as a restore of ours needs them changed.

use std::fs;
use std::io;
use std::path::Path;

use protobuf::well_known_types::empty::Empty;
use protobuf::{Message, UnknownValueRef};

use crate::image;

/// The offsets of the time namespace. Without them CRIU makes no new one, whose CLOCK_MONOTONIC no controller would share.
const TIME_NAMESPACE: &str = "timens-0.img";
/// The seccomp filters.
const SECCOMP: &str = "seccomp.img";

/// Changes the images of a complete dump.
pub fn adapt(images: &Path) -> io::Result<()> {
    match fs::remove_file(images.join(TIME_NAMESPACE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let path = images.join(SECCOMP);
    let image = fs::read(&path)?;
    let unlike = || io::Error::other(format!("{SECCOMP} is not as CRIU 4 writes it"));
    let adapted = without_filter(&image, &lorentz_inject::adopted_filter()).ok_or_else(unlike)?;
    fs::write(path, adapted)
}

/// A seccomp filter in the image: a `seccomp_filter` of CRIU's seccomp.proto.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Filter {
    code: Vec<u8>,
    /// The number of the filter that was installed after it; CRIU calls it `prev`.
    newer: Option<u64>,
    flags: Option<u64>,
}

/// Numbers of the fields in seccomp.proto.
const FILTERS: u32 = 1;
const CODE: u32 = 1;
const NEWER: u32 = 2;
const FLAGS: u32 = 3;

/// Takes the filters with the instructions `code` out of the chains of an image. The adoption after the restore adds one again; without
/// this each cycle would add one more.
///
/// Threads name the oldest filter of their chain by its number in the image, and that is never one that an adoption has added.
fn without_filter(image: &[u8], code: &[u8]) -> Option<Vec<u8>> {
    let (magic, message) = image::split(image)?;
    let chains = parse(message)?;
    let mut filters = chains.clone();
    for filter in &mut filters {
        // A chain is at most as long as the list.
        for _ in 0..chains.len() {
            let Some(newer) = filter.newer else { break };
            let newer = chains.get(usize::try_from(newer).ok()?)?;
            if newer.code != code {
                break;
            }
            filter.newer = newer.newer;
        }
    }
    image::join(magic, &encode(&filters)?)
}

fn parse(message: &[u8]) -> Option<Vec<Filter>> {
    let message = Empty::parse_from_bytes(message).ok()?;
    let filter = |(number, value)| match (number, value) {
        (FILTERS, UnknownValueRef::LengthDelimited(bytes)) => parse_filter(bytes),
        _ => None,
    };
    message.special_fields.unknown_fields().iter().map(filter).collect()
}

fn parse_filter(bytes: &[u8]) -> Option<Filter> {
    let message = Empty::parse_from_bytes(bytes).ok()?;
    let mut filter = Filter { code: Vec::new(), newer: None, flags: None };
    for (number, value) in message.special_fields.unknown_fields().iter() {
        match (number, value) {
            (CODE, UnknownValueRef::LengthDelimited(code)) => filter.code = code.to_vec(),
            (NEWER, UnknownValueRef::Varint(newer)) => filter.newer = Some(newer),
            (FLAGS, UnknownValueRef::Varint(flags)) => filter.flags = Some(flags),
            _ => return None,
        }
    }
    Some(filter)
}

fn encode(filters: &[Filter]) -> Option<Vec<u8>> {
    let mut message = Empty::new();
    for filter in filters {
        let mut one = Empty::new();
        let fields = one.special_fields.mut_unknown_fields();
        fields.add_length_delimited(CODE, filter.code.clone());
        filter.newer.iter().for_each(|newer| fields.add_varint(NEWER, *newer));
        filter.flags.iter().for_each(|flags| fields.add_varint(FLAGS, *flags));
        let bytes = one.write_to_bytes().ok()?;
        message.special_fields.mut_unknown_fields().add_length_delimited(FILTERS, bytes);
    }
    message.write_to_bytes().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(code: &[u8], newer: Option<u64>) -> Filter {
        Filter { code: code.to_vec(), newer, flags: Some(2) }
    }

    fn image_of(filters: &[Filter]) -> Vec<u8> {
        image::join(b"magic-no", &encode(filters).unwrap()).unwrap()
    }

    #[test]
    fn chains_pass_over_a_filter_that_is_taken_out() {
        let chain = |newer: [Option<u64>; 4]| {
            let codes: [&[u8]; 4] = [b"own", b"added", b"added", b"main"];
            image_of(&std::array::from_fn::<_, 4, _>(|i| filter(codes[i], newer[i])))
        };
        let before = chain([None, Some(0), Some(1), Some(2)]);
        let after = chain([None, Some(0), Some(0), Some(0)]);
        assert_eq!(without_filter(&before, b"added").unwrap(), after);
        let last = image_of(&[filter(b"added", None), filter(b"main", Some(0))]);
        let after = image_of(&[filter(b"added", None), filter(b"main", None)]);
        assert_eq!(without_filter(&last, b"added").unwrap(), after);
    }

    #[test]
    fn an_image_without_it_stays_as_it_is() {
        let before = image_of(&[filter(b"own", None), filter(b"main", Some(0))]);
        assert_eq!(without_filter(&before, b"added").unwrap(), before);
    }

    #[test]
    fn an_unknown_image_is_refused() {
        let good = image_of(&[filter(b"main", None)]);
        for wrong in [&good[..good.len() - 1], &good[..10], b""] {
            assert_eq!(without_filter(wrong, b"added"), None);
        }
        assert_eq!(without_filter(&image_of(&[filter(b"main", Some(7))]), b"added"), None);
    }
}

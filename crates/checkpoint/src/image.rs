//! The format of CRIU's images that have one message: two magic numbers, the message's length, and the message, in Protocol Buffers.
//! Fields that nobody changes stay as they are, whatever they are.

use protobuf::well_known_types::empty::Empty;
use protobuf::{Message, UnknownValueRef};

const MAGIC_LEN: usize = 8;

/// Returns the magic numbers and the message of an image.
pub fn split(image: &[u8]) -> Option<(&[u8], &[u8])> {
    let (magic, rest) = image.split_at_checked(MAGIC_LEN)?;
    let (length, message) = rest.split_at_checked(4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?);
    (message.len() == length as usize).then_some((magic, message))
}

/// The opposite of [`split`].
pub fn join(magic: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(message.len()).ok()?.to_le_bytes();
    Some([magic, &length, message].concat())
}

/// Returns the field `number` of a message, itself a message.
pub fn field(message: &Empty, number: u32) -> Option<Empty> {
    match message.special_fields.unknown_fields().get(number)? {
        UnknownValueRef::LengthDelimited(bytes) => Empty::parse_from_bytes(bytes).ok(),
        _ => None,
    }
}

/// Replaces such a field.
pub fn set_field(message: &mut Empty, number: u32, value: &Empty) -> Option<()> {
    let bytes = value.write_to_bytes().ok()?;
    let fields = message.special_fields.mut_unknown_fields();
    fields.remove(number);
    fields.add_length_delimited(number, bytes);
    Some(())
}

/// Replaces the numbers of the repeated field `number`.
pub fn set_numbers(message: &mut Empty, number: u32, values: &[u64]) {
    let fields = message.special_fields.mut_unknown_fields();
    fields.remove(number);
    values.iter().for_each(|value| fields.add_varint(number, *value));
}

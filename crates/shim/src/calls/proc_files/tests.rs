//! Copies of texts, through files in memory.

use super::text::{leading_number, Copier};
use crate::sys::{sys, Fd, Sysno};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::string::{String, ToString};
use std::vec::Vec;

fn memory(text: &str) -> File {
    // SAFETY: a name that lasts; the descriptor is new.
    let mut file = unsafe {
        File::from_raw_fd(sys!(Sysno::memfd_create, c"test".as_ptr(), 1).unwrap() as i32)
    };
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn fd_of(file: &File) -> Fd {
    Fd::new(file.as_raw_fd())
}

/// `text` with its numbers replaced, over a longer one that was there before.
fn copied(text: &str, replace: impl FnMut(&[u8], usize, u64) -> u64) -> String {
    let (source, mut target) = (memory(text), memory(&"before ".repeat(2_000)));
    let copier = Copier::new(fd_of(&target), fd_of(&source));
    assert!(copier.copy(replace));
    let mut result = String::new();
    target.rewind().unwrap();
    target.read_to_string(&mut result).unwrap();
    result
}

#[test]
fn numbers_alone_are_replaced_wherever_the_text_is_cut() {
    for before in 1_500..1_540 {
        let text = std::format!("{} 12345 -6 7x\nkey 89\n", "y".repeat(before));
        let expected = text.replace("12345", "12346").replace("89", "90");
        assert_eq!(copied(&text, |_, _, value| value + 1), expected, "{before}");
    }
    assert_eq!(copied("", |_, _, _| unreachable!()), "");
    assert_eq!(copied("1  2", |_, _, value| value * 10), "10  20");
    let no_number = "18446744073709551616 123456789012345678901234567890";
    assert_eq!(copied(no_number, |_, _, _| 0), no_number);
}

#[test]
fn a_word_is_known_by_its_line_and_place() {
    let mut seen = Vec::new();
    copied("cpu  1 2\ncpu0 3\n4 5\n", |line, place, value| {
        seen.push((String::from_utf8_lossy(line).to_string(), place, value));
        value
    });
    let expected = [("cpu", 1, 1), ("cpu", 2, 2), ("cpu0", 1, 3), ("4", 0, 4), ("4", 1, 5)];
    assert_eq!(seen, expected.map(|(line, place, value)| (line.to_string(), place, value)));
}

#[test]
fn a_name_may_hold_anything() {
    let text = "7 (a) 1 (\n2) S 3 4\n";
    let (source, mut target) = (memory(text), memory(""));
    let mut copier = Copier::new(fd_of(&target), fd_of(&source));
    copier.skip_name();
    assert_eq!([0, 1, 2, 9].map(|word| copier.peek(word)), [0, 3, 4, 0]);
    assert!(copier.copy(|_, place, value| value + 10 * place as u64));
    let mut result = String::new();
    target.rewind().unwrap();
    target.read_to_string(&mut result).unwrap();
    assert_eq!(result, "7 (a) 1 (\n2) S 13 24\n");
}

#[test]
fn what_cannot_be_read_is_no_success() {
    let target = memory("");
    assert!(!Copier::new(fd_of(&target), Fd::NONE).copy(|_, _, value| value));
}

#[test]
fn a_leading_number_ends_where_its_digits_do() {
    assert_eq!(leading_number(b"12/task"), Some((12, &b"/task"[..])));
    assert_eq!(leading_number(b"self/stat"), None);
    assert_eq!(leading_number(b"99999999999999999999"), None);
}

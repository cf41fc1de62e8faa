//! Texts and results across the border: what comes in, and what is said back.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, CStr, CString};

use lorentz_embed::{Fault, Kind, Result};

/// Numbers of a process as text, at once, in one thread.
const TEXTS: usize = 8;
/// The longest number, its sign and the end.
const TEXT_LEN: usize = 16;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static NUMBERS: RefCell<([[u8; TEXT_LEN]; TEXTS], usize)> = const { RefCell::new(([[0; TEXT_LEN]; TEXTS], 0)) };
}

/// The version of the library.
#[no_mangle]
pub extern "C" fn lorentz_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What was wrong with this thread's last call that failed.
#[no_mangle]
pub extern "C" fn lorentz_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// The number of a process as text.
#[no_mangle]
pub extern "C" fn lorentz_pid(pid: libc::pid_t) -> *const c_char {
    NUMBERS.with_borrow_mut(|(texts, next)| {
        let text = &mut texts[*next % TEXTS];
        *next = (*next + 1) % TEXTS;
        *text = [0; TEXT_LEN];
        let number = pid.to_string();
        text[..number.len()].copy_from_slice(number.as_bytes());
        text.as_ptr().cast()
    })
}

/// Frees a text of the library's.
///
/// # Safety
///
/// `text` comes from a function of this library that says so, and is not used any more; or it is NULL.
#[no_mangle]
pub unsafe extern "C" fn lorentz_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: by this function's contract it was made by `give_text`.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Hands a text over; the caller frees it by [`lorentz_free`].
pub fn give_text(text: String) -> Result<*mut c_char> {
    let text = CString::new(text).map_err(|_| Fault::failed("a text with a NUL in it"))?;
    Ok(text.into_raw())
}

/// 0, or the kind of the error, whose text [`lorentz_error`] tells from now on.
pub fn told(result: Result<()>) -> c_int {
    let Err(fault) = result else { return 0 };
    LAST.set(CString::new(fault.text).unwrap_or_default());
    match fault.kind {
        Kind::WrongInput => -1,
        Kind::NotFound => -2,
        Kind::Refused => -3,
        Kind::Ended => -4,
        Kind::Failed => -5,
    }
}

/// A text that the caller gives: NULL, or by the header a C string that lasts as long as the call. (A pointer, not a reference to its
/// first byte: that would not reach to the others.)
pub fn text<'a>(what: &str, given: *const c_char) -> Result<&'a str> {
    if given.is_null() {
        return Err(null(what));
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(given) };
    text.to_str().map_err(|_| Fault::wrong(format!("{what}: expected text in UTF-8")))
}

/// The same, where NULL stands for none.
pub fn optional_text<'a>(what: &str, given: *const c_char) -> Result<Option<&'a str>> {
    match given.is_null() {
        true => Ok(None),
        false => text(what, given).map(Some),
    }
}

/// Something that the caller has to give.
pub fn given<T>(what: &str, given: Option<T>) -> Result<T> {
    given.ok_or_else(|| null(what))
}

fn null(what: &str) -> Fault {
    Fault::wrong(format!("{what}: is NULL"))
}

//! Texts and results of the C interface: arguments from the caller, and results to it.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, CStr, CString};

use lorentz_embed::{Error, ErrorKind, Result};

/// Number of texts of process ids that are valid at once in one thread.
const TEXTS: usize = 8;
/// Length of the longest such text with its sign and its NUL, bytes.
const TEXT_LEN: usize = 16;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static NUMBERS: RefCell<([[u8; TEXT_LEN]; TEXTS], usize)> = const { RefCell::new(([[0; TEXT_LEN]; TEXTS], 0)) };
}

/// Returns the version of the library.
#[no_mangle]
pub extern "C" fn lorentz_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the error of this thread's last call that failed.
#[no_mangle]
pub extern "C" fn lorentz_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// Returns the text of a process id.
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

/// Frees a text that the library has returned.
///
/// # Safety
///
/// `text` comes from a function of this library that says so, and is not used any more; or it is NULL.
#[no_mangle]
pub unsafe extern "C" fn lorentz_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the contract of this function requires that `give_text` made the text.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Gives a text to the caller, who frees it by [`lorentz_free`].
pub fn give_text(text: String) -> Result<*mut c_char> {
    let text = CString::new(text).map_err(|_| Error::failed("a text with a NUL in it"))?;
    Ok(text.into_raw())
}

/// Returns 0, or the kind of the error, and stores the error's text for [`lorentz_error`].
pub fn to_status(result: Result<()>) -> c_int {
    let Err(error) = result else { return 0 };
    LAST.set(CString::new(error.text).unwrap_or_default());
    match error.kind {
        ErrorKind::WrongInput => -1,
        ErrorKind::NotFound => -2,
        ErrorKind::Refused => -3,
        ErrorKind::Ended => -4,
        ErrorKind::Failed => -5,
    }
}

/// Reads a text argument. The header requires NULL or a C string that lasts as long as the call. The argument is a pointer,
/// because a reference to the first byte would not cover the others.
pub fn text<'a>(what: &str, given: *const c_char) -> Result<&'a str> {
    if given.is_null() {
        return Err(null(what));
    }
    // SAFETY: the header requires a C string, and it is not NULL.
    let text = unsafe { CStr::from_ptr(given) };
    text.to_str().map_err(|_| Error::wrong_input(format!("{what}: expected text in UTF-8")))
}

/// Reads a text argument for which NULL means none.
pub fn optional_text<'a>(what: &str, given: *const c_char) -> Result<Option<&'a str>> {
    match given.is_null() {
        true => Ok(None),
        false => text(what, given).map(Some),
    }
}

/// Returns an argument, or an error if the caller gave NULL.
pub fn given<T>(what: &str, given: Option<T>) -> Result<T> {
    given.ok_or_else(|| null(what))
}

fn null(what: &str) -> Error {
    Error::wrong_input(format!("{what}: is NULL"))
}

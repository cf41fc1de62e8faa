//! Texts and results of the C interface: arguments from the caller, and results to it.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, CStr, CString};

use lorentz_embed::{Error, ErrorKind, Result};

/// Number of texts of process ids that are valid at once in one thread.
const TEXTS: usize = 8;
/// Length of the longest such text with its sign and its NUL, bytes.
const TEXT_LEN: usize = 16;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    /// Texts of process ids. Cells, because the program has pointers to them, which a mutable reference would invalidate.
    static NUMBERS: [Cell<[u8; TEXT_LEN]>; TEXTS] = const { [const { Cell::new([0; TEXT_LEN]) }; TEXTS] };
    /// Number of texts that this thread has made.
    static MADE: Cell<usize> = const { Cell::new(0) };
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
    let number = pid.to_string();
    let mut bytes = [0; TEXT_LEN];
    bytes[..number.len()].copy_from_slice(number.as_bytes());
    let index = MADE.replace(MADE.get().wrapping_add(1)) % TEXTS;
    NUMBERS.with(|texts| {
        texts[index].set(bytes);
        texts[index].as_ptr().cast::<c_char>().cast_const()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies what a result points to.
    fn copied(text: *const c_char) -> String {
        // SAFETY: every function of this module returns a C string.
        unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
    }

    /// Miri refuses a read past the first byte if the argument becomes a reference to that byte on its way.
    #[test]
    fn a_text_is_read_to_its_end() {
        for given in [c"", c"a", c"a container's name", c"\u{3bb}"] {
            assert_eq!(text("name", given.as_ptr()).ok(), given.to_str().ok());
            assert_eq!(optional_text("name", given.as_ptr()).ok(), given.to_str().ok().map(Some));
        }
        let at_end_of_memory = CString::new("no byte behind its NUL").expect("no NUL within");
        assert_eq!(text("name", at_end_of_memory.as_ptr()).ok(), at_end_of_memory.to_str().ok());
    }

    #[test]
    fn null_and_bytes_that_are_no_text_are_refused() {
        let null = std::ptr::null();
        assert_eq!(optional_text("name", null).ok(), Some(None));
        assert_eq!(to_status(text("name", null).map(drop)), -1);
        assert_eq!(copied(lorentz_error()), "name: is NULL");
        assert_eq!(to_status(text("name", c"\xff".as_ptr()).map(drop)), -1);
        assert_eq!(copied(lorentz_error()), "name: expected text in UTF-8");
        assert_eq!(to_status(optional_text("name", c"\xff".as_ptr()).map(drop)), -1);
    }

    #[test]
    fn a_text_that_was_given_is_freed() {
        let text = give_text("a result".to_owned()).expect("no NUL within");
        assert_eq!(copied(text), "a result");
        // SAFETY: the text is `give_text`'s, and nobody uses it any more.
        unsafe { lorentz_free(text) };
        // SAFETY: NULL is permitted.
        unsafe { lorentz_free(std::ptr::null_mut()) };
        assert!(give_text("a\0b".to_owned()).is_err());
    }

    #[test]
    fn texts_of_process_ids_stay_valid_for_as_many_as_promised() {
        let pids = [1, -1, i32::MIN, i32::MAX, 0, 10, 4_194_304, 7];
        assert_eq!(pids.len(), TEXTS);
        let texts = pids.map(|pid| lorentz_pid(pid));
        for (pid, text) in pids.into_iter().zip(texts) {
            assert_eq!(copied(text), pid.to_string());
        }
    }
}

//! Tokens and sessions.
//!
//! The address that is printed at the start has a token in its fragment, which browsers send nowhere. The page exchanges it for a
//! session: a cookie that scripts cannot read, and a token that each change must carry in a header. A page of another origin can
//! make the browser send the cookie at most, and never the header.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use subtle::ConstantTimeEq;

use crate::wrong_input::WrongInput;

/// Most sessions at once. A new one beyond that ends the oldest.
const MAX_SESSIONS: usize = 64;
/// Shortest token in a file.
const MIN_TOKEN: usize = 32;

/// A secret text.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Makes a secret of 256 bits.
    pub fn new() -> io::Result<Secret> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Reads the secret in the file that `flag` names. Only its owner may read the file.
    pub fn from_file(flag: &str, path: &Path) -> anyhow::Result<Secret> {
        let at = || format!("{flag} {}", path.display());
        let mut file = File::open(path).with_context(at)?;
        if file.metadata().with_context(at)?.mode() & 0o077 != 0 {
            let what = format!("{}: others may read it; expected a file of mode 0600", at());
            return Err(WrongInput(what).into());
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(at)?;
        let text = text.trim();
        let is_token = text.len() >= MIN_TOKEN && text.bytes().all(|c| c.is_ascii_alphanumeric());
        if !is_token {
            let what = format!("{}: expected at least {MIN_TOKEN} letters and digits", at());
            return Err(WrongInput(what).into());
        }
        Ok(Secret(text.to_string()))
    }

    /// Whether `given` is the secret, in a time that does not depend on where they differ.
    pub fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// A session of a browser.
#[derive(Clone)]
pub struct BrowserSession {
    /// The value of its cookie.
    pub cookie: Secret,
    /// The token of its changes.
    pub change: Secret,
}

/// All sessions.
#[derive(Default)]
pub struct Sessions(Mutex<VecDeque<BrowserSession>>);

impl Sessions {
    /// Begins a session.
    pub fn begin(&self) -> io::Result<BrowserSession> {
        let session = BrowserSession { cookie: Secret::new()?, change: Secret::new()? };
        let mut all = self.lock();
        if all.len() >= MAX_SESSIONS {
            all.pop_front();
        }
        all.push_back(session.clone());
        Ok(session)
    }

    /// Returns the session of this cookie.
    pub fn find(&self, cookie: &str) -> Option<BrowserSession> {
        self.lock().iter().find(|session| session.cookie.is(cookie)).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<BrowserSession>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_differ_and_are_compared_whole() {
        let (one, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert_eq!(one.text().len(), 64);
        assert!(one.is(one.text()) && !one.is(other.text()));
        assert!(!one.is("") && !one.is(&one.text()[1..]));
    }

    #[test]
    fn the_oldest_session_ends_when_there_are_too_many() {
        let sessions = Sessions::default();
        let first = sessions.begin().unwrap();
        assert!(sessions.find(first.cookie.text()).is_some());
        for _ in 0..MAX_SESSIONS {
            sessions.begin().unwrap();
        }
        assert!(sessions.find(first.cookie.text()).is_none());
    }

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let set = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::from_file("--token-file", &path)
        };
        let token = "a1".repeat(20);
        assert!(set(&format!("{token}\n"), 0o600).unwrap().is(&token));
        for (text, mode) in
            [(token.as_str(), 0o640), ("short", 0o600), ("a b ".repeat(20).as_str(), 0o600)]
        {
            assert!(set(text, mode).is_err(), "{text} {mode:o}");
        }
    }
}

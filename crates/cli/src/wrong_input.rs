//! An error of the command line alone.

/// Wrong input that only the command line can meet.
#[derive(Debug)]
pub struct WrongInput(pub String);

impl std::fmt::Display for WrongInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongInput {}

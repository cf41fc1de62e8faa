//! The state of `lorentz top`.

use ratatui::widgets::TableState;

use super::busy::Busy;
use crate::view::View;

/// The table, and what the person at the keyboard does with it.
#[derive(Default)]
pub struct Board {
    /// The containers at the last look.
    pub views: Vec<View>,
    /// How busy they are.
    pub busy: Busy,
    /// The selected row.
    pub table: TableState,
    /// The name of the selected container. Rows move when containers come and go.
    pub selected: Option<String>,
    /// The duration that is being typed, for a leap.
    pub leap_by: Option<String>,
    /// The answer of `lorentz why`, while it is on screen.
    pub why: Option<String>,
    /// Whether a command may have printed a line in the midst of the picture.
    pub is_spoilt: bool,
    /// The last command, or the reason why it failed.
    pub note: String,
}

//! `top`: a live table of the containers on a terminal, with keys that change their clocks.

mod board;
mod busy;
mod screen;

use std::io::{self, IsTerminal};
use std::time::Duration;

use lorentz_clock::{Rate, SkipMode};
use lorentz_container::StateDir;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;

use self::board::Board;
use super::change;
use crate::args::{Dilate, Leap, LookAt, Pause, Skip, SkipArg, TopArgs, WhenArgs};
use crate::print_why;
use crate::view::View;
use crate::why;
use crate::wrong_input::WrongInput;

pub fn top(args: &TopArgs) -> anyhow::Result<i32> {
    if !io::stdout().is_terminal() {
        let expected = "expected a terminal; 'lorentz ps' prints a list";
        return Err(WrongInput(format!("standard output: {expected}")).into());
    }
    let interval = Duration::from_nanos(args.interval.0.unsigned_abs());
    let state = StateDir::open()?;
    let mut terminal = ratatui::try_init()?;
    let result = Board::default().run(&mut terminal, &state, interval);
    ratatui::restore();
    result.map(|()| 0)
}

impl Board {
    /// Draws and obeys until a key ends it.
    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        state: &StateDir,
        interval: Duration,
    ) -> anyhow::Result<()> {
        loop {
            self.look(state)?;
            if std::mem::take(&mut self.is_spoilt) {
                // `Terminal::clear` asks the terminal for its cursor, and not each terminal answers.
                terminal.backend_mut().clear()?;
                terminal.swap_buffers();
            }
            terminal.draw(|frame| screen::draw(frame, &mut self))?;
            if event::poll(interval)? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press && self.ends_by(key) => {
                        return Ok(());
                    }
                    _ => {}
                }
            }
        }
    }

    fn look(&mut self, state: &StateDir) -> anyhow::Result<()> {
        self.views = View::of_all(state, &state.list()?)?;
        self.busy.look(&self.views);
        let at =
            self.views.iter().position(|view| Some(&view.record.name) == self.selected.as_ref());
        let last = self.views.len().saturating_sub(1);
        let row = at.unwrap_or(self.table.selected().unwrap_or(0).min(last));
        self.select(row);
        Ok(())
    }

    fn select(&mut self, row: usize) {
        self.selected = self.views.get(row).map(|view| view.record.name.clone());
        self.table.select(self.selected.as_ref().map(|_| row));
    }

    /// Does what the key asks for. Returns whether it ends the command.
    fn ends_by(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.leap_by.is_some() {
            self.type_leap(key.code);
            return false;
        }
        let row = self.table.selected().unwrap_or(0);
        match key.code {
            KeyCode::Esc if self.why.is_some() => self.why = None,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Up | KeyCode::Char('k') => self.select(row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => {
                self.select((row + 1).min(self.views.len().saturating_sub(1)));
            }
            KeyCode::Char('f') => self.freeze_or_unfreeze(),
            KeyCode::Char('+' | '=') => self.dilate(2, 1),
            KeyCode::Char('-') => self.dilate(1, 2),
            KeyCode::Char('1') => self.set_rate(Rate::ONE),
            KeyCode::Char('s') => self.skip_or_not(),
            KeyCode::Char('l') if self.selected.is_some() => self.leap_by = Some(String::new()),
            KeyCode::Char('w') => self.show_why(),
            _ => {}
        }
        false
    }

    fn type_leap(&mut self, key: KeyCode) {
        let Some(text) = &mut self.leap_by else { return };
        match key {
            KeyCode::Char(letter) => text.push(letter),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Esc => self.leap_by = None,
            KeyCode::Enter => {
                let text = self.leap_by.take().unwrap_or_default();
                match text.parse() {
                    Ok(by) => self.change(&format!("leap {{}} --by {text}"), |at| {
                        let when = WhenArgs { announced: None };
                        change::leap(&Leap { at, by: Some(by), to: None, like: None, when })
                    }),
                    Err(error) => self.note = format!("--by {text}: {error}"),
                }
            }
            _ => {}
        }
    }

    fn freeze_or_unfreeze(&mut self) {
        let frozen = self.selected_view().is_some_and(|view| view.clock_state() == "frozen");
        let (verb, act): (_, fn(&Pause) -> anyhow::Result<i32>) = match frozen {
            true => ("unfreeze {}", change::unfreeze),
            false => ("freeze {}", change::freeze),
        };
        self.change(verb, |at| act(&Pause { at, when: WhenArgs { announced: None } }));
    }

    /// Multiplies the rate.
    fn dilate(&mut self, num: u64, den: u64) {
        let rate = self.selected_view().and_then(|view| Some(view.reading.as_ref().ok()?.rate));
        match rate.and_then(|rate| Rate::new(rate.num() * num, rate.den() * den)) {
            Some(rate) => self.set_rate(rate),
            None => self.note = "the rate ends here: 1/1000000 to 1000000".to_string(),
        }
    }

    fn set_rate(&mut self, rate: Rate) {
        self.change(&format!("dilate {{}} --rate {rate}"), |at| {
            let when = WhenArgs { announced: None };
            change::dilate(&Dilate { at, rate: Some(rate), tdf: None, when })
        });
    }

    fn skip_or_not(&mut self) {
        let mode =
            self.selected_view().and_then(|view| Some(view.reading.as_ref().ok()?.skipping.mode));
        let (word, mode) = match mode {
            Some(SkipMode::Off) => ("on", SkipArg::On),
            _ => ("off", SkipArg::Off),
        };
        self.change(&format!("skip {{}} {word}"), |at| {
            change::skip(&Skip { container: at.container, mode, read_cost: None, json: false })
        });
    }

    fn show_why(&mut self) {
        let Some(name) = self.selected.clone() else { return };
        match StateDir::open().map_err(Into::into).and_then(|state| why::look(&state, &name)) {
            Ok(found) => self.why = Some(print_why::words(&found)),
            Err(error) => self.note = format!("{error:#}"),
        }
    }

    /// Carries out a change of the selected container. The note is the command line that does the same; `{}` stands for the name.
    fn change(&mut self, line: &str, act: impl FnOnce(LookAt) -> anyhow::Result<i32>) {
        let Some(name) = self.selected.clone() else { return };
        // It tells of announced changes that it drops.
        self.is_spoilt = true;
        self.note = match act(LookAt { container: name.clone(), json: false }) {
            Ok(_) => format!("lorentz {}", line.replace("{}", &name)),
            Err(error) => format!("{error:#}"),
        };
    }

    fn selected_view(&self) -> Option<&View> {
        self.views.get(self.table.selected()?)
    }
}

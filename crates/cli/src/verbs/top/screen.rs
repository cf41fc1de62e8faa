//! The picture: a head, the table of containers, what is asked or told, and the keys.

use lorentz_clock::Span;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::Frame;

use super::board::Board;
use crate::print;
use crate::view::View;

const KEYS: &str =
    "q quit   up/down select   f freeze   + - twice, half the rate   1 rate 1   l leap   s skip idle   w why";
const COLUMNS: [(&str, u16); 9] = [
    ("NAME", 18),
    ("STATE", 13),
    ("RATE", 8),
    ("TIME INSIDE", 20),
    ("CPUS", 5),
    ("WAITS", 5),
    ("TIMERS", 6),
    ("SKIPPED", 14),
    ("COMMAND", 0),
];

pub fn draw(frame: &mut Frame, top: &mut Board) {
    let [head, body, note, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(top)).bold(), head);
    match &top.why {
        Some(text) => frame.render_widget(Paragraph::new(text.as_str()), body),
        None => draw_table(frame, top, body),
    }
    let asked = top.leap_by.as_ref().map(|typed| format!("leap by (30s, 1h, 2d): {typed}_"));
    frame.render_widget(Paragraph::new(asked.unwrap_or_else(|| top.note.clone())), note);
    let keys_text = if top.why.is_some() { "Esc back   q quit" } else { KEYS };
    frame.render_widget(Paragraph::new(keys_text).dim(), keys);
}

fn heading(top: &Board) -> String {
    match top.views.len() {
        0 => "lorentz: no container; 'lorentz run --name web -- COMMAND' makes one".to_string(),
        1 => "lorentz: 1 container".to_string(),
        many => format!("lorentz: {many} containers"),
    }
}

fn draw_table(frame: &mut Frame, top: &mut Board, area: Rect) {
    let widths = COLUMNS.map(|(_, width)| match width {
        0 => Constraint::Min(10),
        width => Constraint::Length(width),
    });
    let rows: Vec<Row> = top.views.iter().map(|view| row(view, top)).collect();
    let head = Row::new(COLUMNS.map(|(name, _)| Cell::from(name))).underlined();
    let table = Table::new(rows, widths).header(head).row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, area, &mut top.table);
}

fn row(view: &View, top: &Board) -> Row<'static> {
    let name = print::printable(&view.record.name);
    let busy = top.busy.processors(&name).map_or("-".to_string(), |busy| format!("{busy:.2}"));
    let command = print::printable(&view.record.command.join(" "));
    let (rate, inside, waits, timers, skipped) = match &view.reading {
        Ok(reading) => (
            reading.rate.to_string(),
            print::wall(print::whole_seconds(reading.wall)),
            reading.waits.to_string(),
            reading.timers.to_string(),
            view.skip.as_ref().map_or("-".to_string(), |skip| {
                Span::from_secs(skip.skipped.0 / lorentz_clock::NANOS_PER_SEC).to_string()
            }),
        ),
        Err(_) => ["-"; 5].map(str::to_string).into(),
    };
    let state = match view.skip.as_ref().and_then(|skip| skip.blocker.as_ref()) {
        Some(_) => format!("{}, held", view.state()),
        None => view.state().to_string(),
    };
    Row::new([name, state, rate, inside, busy, waits, timers, skipped, command])
}

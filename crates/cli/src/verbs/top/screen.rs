//! The picture: a head, the table of containers, what is asked or told, and the keys.

use lorentz_clock::Span;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::Frame;

use super::board::Board;
use crate::print;
use crate::view::View;

const KEYS: &str = "q quit  up/down select  f freeze  + - 1 rate  l leap  s skip idle  w why";
/// Headings and widths; names and commands share the rest.
const COLUMNS: [(&str, Constraint); 9] = [
    ("NAME", Constraint::Fill(1)),
    ("STATE", Constraint::Length(13)),
    ("RATE", Constraint::Length(6)),
    ("TIME INSIDE", Constraint::Length(20)),
    ("CPUS", Constraint::Length(4)),
    ("WAITS", Constraint::Length(5)),
    ("TIMERS", Constraint::Length(6)),
    ("SKIPPED", Constraint::Length(7)),
    ("COMMAND", Constraint::Fill(2)),
];
/// Narrower terminals have no room for commands.
const MIN_WIDTH_OF_ALL: u16 = 100;

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
    let shown = COLUMNS.len() - usize::from(area.width < MIN_WIDTH_OF_ALL);
    let columns = &COLUMNS[..shown];
    let rows: Vec<Row> =
        top.views.iter().map(|view| Row::new(cells(view, top).into_iter().take(shown))).collect();
    let head = Row::new(columns.iter().map(|(name, _)| Cell::from(*name))).underlined();
    let table = Table::new(rows, columns.iter().map(|(_, width)| *width))
        .header(head)
        .row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, area, &mut top.table);
}

fn cells(view: &View, top: &Board) -> [String; 9] {
    let name = print::printable(&view.record.name);
    let busy = top.busy.processors(&name).map_or("-".to_string(), |busy| format!("{busy:.2}"));
    let command = print::printable(&view.record.command.join(" "));
    let (rate, inside, waits, timers, skipped) = match &view.reading {
        Ok(reading) => (
            print::rate(reading.rate),
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
        Some(_) if view.state() == "running" => "running, held".to_string(),
        _ => view.state().to_string(),
    };
    [name, state, rate, inside, busy, waits, timers, skipped, command]
}

//! The parts of a template: its text, and the actions between double braces.

use serde_json::Value;

use crate::import::draft::Position;

/// Most blocks within each other.
const MAX_NESTING: usize = 64;

/// An error in a template, with its position.
#[derive(Debug)]
pub(crate) struct TemplateError {
    pub at: Position,
    pub what: String,
}

pub(super) type Filled<T> = Result<T, TemplateError>;

/// A piece of a template.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Print(Pipeline),
    /// `$NAME := VALUE`
    Declare(String, Pipeline),
    /// `$NAME = VALUE`
    Assign(String, Pipeline),
    If {
        condition: Pipeline,
        then: Vec<Part>,
        otherwise: Vec<Part>,
    },
    With {
        value: Pipeline,
        then: Vec<Part>,
        otherwise: Vec<Part>,
    },
    Range {
        /// The variables of the element, or of its key and the element.
        names: Vec<String>,
        over: Pipeline,
        body: Vec<Part>,
        otherwise: Vec<Part>,
    },
}

/// Commands of which each takes the value of the one before.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub commands: Vec<Vec<Operand>>,
    at: Position,
}

impl Pipeline {
    pub fn error(&self, what: impl Into<String>) -> TemplateError {
        TemplateError { at: self.at, what: what.into() }
    }
}

/// An operand, with the fields that are taken of its value.
#[derive(Debug)]
pub(super) enum Operand {
    Literal(Value),
    Function(String),
    Dot(Vec<String>),
    Variable(String, Vec<String>),
    Group(Pipeline, Vec<String>),
}

/// A text, or an action without its braces.
enum Segment {
    Text(String),
    Action(Position, String),
}

/// Parses a template.
pub(super) fn parse(template: &str) -> Filled<Vec<Part>> {
    let mut blocks = Blocks { segments: segments(template)?.into_iter(), depth: 0 };
    match blocks.parts()? {
        (parts, None) => Ok(parts),
        (_, Some((at, word))) => {
            let word = word.split_whitespace().next().unwrap_or_default().to_string();
            Err(TemplateError { at, what: format!("{word}: without a beginning") })
        }
    }
}

/// Splits a template at its actions. A minus sign at a brace trims the white space on that side.
fn segments(template: &str) -> Filled<Vec<Segment>> {
    let mut found = Vec::new();
    let mut rest = template;
    let mut trims = false;
    while let Some(start) = rest.find("{{") {
        let text = if trims { rest[..start].trim_start() } else { &rest[..start] };
        let before = &template[..template.len() - rest.len() + start];
        let line = before.matches('\n').count() as u32 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32 + 1;
        let at = Position { line, column };
        let inner = &rest[start + 2..];
        let open = || TemplateError { at, what: "{{: expected }}".into() };
        let end = end_of(inner).ok_or_else(open)?;
        let mut action = &inner[..end];
        rest = &inner[end + 2..];
        let left = action.strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace));
        found.push(Segment::Text(if left.is_some() { text.trim_end() } else { text }.into()));
        action = left.unwrap_or(action);
        let right = action.strip_suffix('-').filter(|rest| rest.ends_with(char::is_whitespace));
        trims = right.is_some();
        let action = right.unwrap_or(action).trim();
        if !action.starts_with("/*") {
            found.push(Segment::Action(at, action.to_string()));
        }
    }
    found.push(Segment::Text(if trims { rest.trim_start() } else { rest }.into()));
    Ok(found)
}

/// Returns the place of the braces that close an action; those within quotes and comments do not.
fn end_of(action: &str) -> Option<usize> {
    let trimmed = action.strip_prefix('-').unwrap_or(action).trim_start();
    if trimmed.starts_with("/*") {
        let comment = action.find("*/")?;
        return action[comment..].find("}}").map(|at| comment + at);
    }
    let mut quote = None;
    let mut characters = action.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some('"'), '\\') => drop(characters.next()),
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '`') => quote = Some(character),
            (None, '}') if action[at..].starts_with("}}") => return Some(at),
            _ => {}
        }
    }
    None
}

/// The action that ends a list of parts: `else`, with its condition, or `end`.
type End = Option<(Position, String)>;

struct Blocks {
    segments: std::vec::IntoIter<Segment>,
    depth: usize,
}

impl Blocks {
    fn parts(&mut self) -> Filled<(Vec<Part>, End)> {
        let mut parts = Vec::new();
        while let Some(segment) = self.segments.next() {
            let (at, action) = match segment {
                Segment::Text(text) => {
                    parts.push(Part::Text(text));
                    continue;
                }
                Segment::Action(at, action) => (at, action),
            };
            let (word, rest) =
                action.split_once(char::is_whitespace).unwrap_or((action.as_str(), ""));
            match word {
                "end" | "else" => return Ok((parts, Some((at, action)))),
                "if" | "with" | "range" => parts.push(self.block(at, word, rest)?),
                "define" | "template" | "block" | "break" | "continue" => {
                    return Err(TemplateError { at, what: format!("{word}: not supported") });
                }
                _ => parts.push(simple(at, &action)?),
            }
        }
        Ok((parts, None))
    }

    fn block(&mut self, at: Position, word: &str, head: &str) -> Filled<Part> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            let what = format!("{word}: expected at most {MAX_NESTING} within each other");
            return Err(TemplateError { at, what });
        }
        let (names, head) = match word {
            "range" => declared(head),
            _ => (Vec::new(), head),
        };
        let pipeline = pipeline_of(at, head)?;
        let unclosed = || TemplateError { at, what: format!("{word}: expected an end") };
        let (then, end) = self.parts()?;
        let (end_at, end) = end.ok_or_else(unclosed)?;
        let otherwise = match end.strip_prefix("else").map(str::trim) {
            None => Vec::new(),
            Some("") => {
                let (parts, end) = self.parts()?;
                end.filter(|(_, end)| end == "end").ok_or_else(unclosed)?;
                parts
            }
            // The chain ends with one end for all of it.
            Some(chained) => {
                let (word, rest) = chained.split_once(char::is_whitespace).unwrap_or((chained, ""));
                vec![self.block(end_at, word, rest)?]
            }
        };
        self.depth -= 1;
        Ok(match word {
            "if" => Part::If { condition: pipeline, then, otherwise },
            "with" => Part::With { value: pipeline, then, otherwise },
            _ => Part::Range { names, over: pipeline, body: then, otherwise },
        })
    }
}

/// Splits the variables from the beginning of a `range`.
fn declared(head: &str) -> (Vec<String>, &str) {
    let Some((names, rest)) = head.split_once(":=") else { return (Vec::new(), head) };
    let names = names.split(',').map(|name| name.trim().trim_start_matches('$').to_string());
    (names.collect(), rest)
}

/// Parses an action that is no block.
fn simple(at: Position, action: &str) -> Filled<Part> {
    let variable = action.strip_prefix('$').and_then(|rest| {
        let name = &rest[..rest.find(|c: char| !is_name(c)).unwrap_or(rest.len())];
        let rest = rest[name.len()..].trim_start();
        let (declares, value) = match rest.strip_prefix(":=") {
            Some(value) => (true, value),
            None => (false, rest.strip_prefix('=')?),
        };
        Some((name.to_string(), declares, value))
    });
    Ok(match variable {
        Some((name, true, value)) => Part::Declare(name, pipeline_of(at, value)?),
        Some((name, false, value)) => Part::Assign(name, pipeline_of(at, value)?),
        None => Part::Print(pipeline_of(at, action)?),
    })
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn pipeline_of(at: Position, text: &str) -> Filled<Pipeline> {
    let mut words = Words { at, rest: text, depth: 0 };
    let pipeline = words.pipeline()?;
    match words.rest.is_empty() {
        true => Ok(pipeline),
        false => Err(words.unexpected()),
    }
}

/// The words of an action.
struct Words<'a> {
    at: Position,
    rest: &'a str,
    depth: usize,
}

impl Words<'_> {
    fn unexpected(&self) -> TemplateError {
        let what = format!("{}: expected a value", self.rest.lines().next().unwrap_or_default());
        TemplateError { at: self.at, what }
    }

    /// Parses up to the end, or to a closing parenthesis.
    fn pipeline(&mut self) -> Filled<Pipeline> {
        let mut commands = vec![Vec::new()];
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() || self.rest.starts_with(')') {
                break;
            }
            if let Some(rest) = self.rest.strip_prefix('|') {
                self.rest = rest;
                commands.push(Vec::new());
                continue;
            }
            let operand = self.operand()?;
            if let Some(command) = commands.last_mut() {
                command.push(operand);
            }
        }
        if commands.iter().any(Vec::is_empty) {
            return Err(self.unexpected());
        }
        Ok(Pipeline { commands, at: self.at })
    }

    fn operand(&mut self) -> Filled<Operand> {
        let first = self.rest.chars().next().unwrap_or_default();
        match first {
            '"' | '`' => self.text(first),
            '(' => self.group(),
            '.' => {
                // A dot alone is the value itself.
                let fields = self.fields();
                if fields.is_empty() {
                    self.rest = &self.rest[1..];
                }
                Ok(Operand::Dot(fields))
            }
            '$' => {
                self.rest = &self.rest[1..];
                let name = self.take(is_name);
                Ok(Operand::Variable(name, self.fields()))
            }
            '-' | '+' | '0'..='9' => {
                let sign = self.rest.len() - self.rest.trim_start_matches(['-', '+']).len();
                let digits = self.rest[sign..].find(|c: char| !is_name(c) && c != '.');
                let end = digits.map_or(self.rest.len(), |end| sign + end);
                let number = serde_json::from_str(self.rest[..end].trim_start_matches('+'));
                let number = number.map_err(|_| self.unexpected())?;
                self.rest = &self.rest[end..];
                Ok(Operand::Literal(number))
            }
            _ => match self.take(|c| is_name(c) || c == '.').as_str() {
                "" => Err(self.unexpected()),
                "true" => Ok(Operand::Literal(true.into())),
                "false" => Ok(Operand::Literal(false.into())),
                "nil" => Ok(Operand::Literal(Value::Null)),
                name => Ok(Operand::Function(name.trim_end_matches('.').to_string())),
            },
        }
    }

    fn group(&mut self) -> Filled<Operand> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.unexpected());
        }
        self.rest = &self.rest[1..];
        let inner = self.pipeline()?;
        self.rest = self.rest.strip_prefix(')').ok_or_else(|| self.unexpected())?;
        self.depth -= 1;
        Ok(Operand::Group(inner, self.fields()))
    }

    /// Takes `.NAME.NAME`.
    fn fields(&mut self) -> Vec<String> {
        let mut fields = Vec::new();
        while self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(is_name)) {
            self.rest = &self.rest[1..];
            fields.push(self.take(is_name));
        }
        fields
    }

    fn take(&mut self, is_in: impl Fn(char) -> bool) -> String {
        let (taken, rest) =
            self.rest.split_at(self.rest.find(|c| !is_in(c)).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken.to_string()
    }

    /// Takes a text in quotes.
    fn text(&mut self, quote: char) -> Filled<Operand> {
        let mut text = String::new();
        let mut characters = self.rest[1..].char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.rest = &self.rest[1 + at + 1..];
                    return Ok(Operand::Literal(text.into()));
                }
                '\\' if quote == '"' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        Err(self.unexpected())
    }
}

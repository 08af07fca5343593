//! Mistakes in a file, with their places, and the error that collects them.
//!
//! All mistakes of a file are reported at once, each with its line, because a user corrects them in an
//! editor.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A mistake in a file: its place, the setting, and the remedy.
///
/// Its text has the form `limits.toml:14:9: policies.daily.limit: "10k" is not a whole number; write 10_000`.
/// In JSON, only syntax errors have a line: for other mistakes, the path of the setting says where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    file: Arc<str>,
    place: Option<Location>,
    path: String,
    message: String,
}

/// A place in a text, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Location {
    /// Counted from 1.
    line: usize,
    /// In characters, counted from 1.
    column: usize,
    /// The text of the line.
    text: String,
    /// The length of the mistake in the line, in characters.
    length: usize,
    /// Whether the line may contain a password, and is not shown.
    is_secret: bool,
}

/// Returns whether a line may contain a secret or the URL of a store. A syntax error has no path.
fn is_secret(path: &str, line: &str) -> bool {
    let is_of = |table: &str| path == table || path.starts_with(&format!("{table}."));
    is_of("secret") || is_of("store") || line.contains("secret") || line.contains("://")
}

impl Mistake {
    pub(super) fn new(
        source: &Source,
        span: Option<&Range<usize>>,
        path: String,
        message: String,
    ) -> Self {
        let mut place = span.map(|span| source.place(span));
        if let Some(place) = &mut place {
            place.is_secret = is_secret(&path, &place.text);
        }
        Self {
            file: Arc::clone(&source.name),
            place,
            path,
            message,
        }
    }

    /// Returns the name of the file, or `<text>` if the configuration is not a file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the line, counted from 1; `None` if the mistake has no place, such as a missing file, or an
    /// invalid value in JSON.
    pub fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }

    /// Returns the column in characters, counted from 1.
    pub fn column(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.column)
    }

    /// Returns the setting, such as `policies.daily.limit`; empty if the mistake is in the syntax or in the
    /// whole file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what is wrong, and what would be right.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Writes the line with a caret below the mistake.
    fn draw(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = self.place.as_ref().filter(|place| !place.is_secret) else {
            return Ok(());
        };
        let (line, text) = (place.line.to_string(), &place.text);
        let gutter = " ".repeat(line.len());
        let indent = " ".repeat(place.column - 1);
        let caret = "^".repeat(place.length.max(1));
        write!(f, "\n {line} | {text}\n {gutter} | {indent}{caret}")
    }
}

/// Writes one line, without the line of the file.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The error of a rejected configuration: all mistakes of the file, in its order, up to the first hundred.
///
/// The error of a watched file is kept and shown, so a file full of mistakes must not make it large.
#[derive(Clone, PartialEq, Eq)]
pub struct FileError {
    mistakes: Vec<Mistake>,
    /// The number of all mistakes.
    number: usize,
}

/// The number of mistakes that are kept.
const MOST_TOLD: usize = 100;

impl FileError {
    pub(super) fn new(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| mistake.line().zip(mistake.column()));
        let number = mistakes.len();
        mistakes.truncate(MOST_TOLD);
        Self { mistakes, number }
    }

    /// Returns the mistakes, up to the first hundred. There is at least one.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

/// Writes all mistakes, each with its line and a caret, and then their number.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.mistakes {
            write!(f, "{mistake}")?;
            mistake.draw(f)?;
            f.write_str("\n")?;
        }
        match self.number {
            1 => f.write_str("1 mistake"),
            many if many > MOST_TOLD => write!(f, "the first {MOST_TOLD} of {many} mistakes"),
            many => write!(f, "{many} mistakes"),
        }
    }
}

/// Shows the text of `Display`, since `unwrap` and a `main` that returns an error show this form.
impl fmt::Debug for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for FileError {}

/// A text with its name.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: Arc<str>,
    text: Arc<str>,
    /// The offset at which each line begins.
    lines: Arc<[usize]>,
}

impl Source {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1));
        Self {
            name: name.into(),
            text: text.into(),
            lines: lines.collect(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of the line in which these bytes begin, counted from 1.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.lines.partition_point(|start| *start <= span.start)
    }

    /// Returns the byte at this line and column, both counted from 1 and the column in bytes.
    pub(super) fn span_of(&self, line: usize, column: usize) -> Range<usize> {
        let start = self.lines.get(line.saturating_sub(1)).copied();
        let start = start.unwrap_or(self.text.len()) + column.saturating_sub(1);
        let start = start.min(self.text.len());
        start..start + 1
    }

    fn place(&self, span: &Range<usize>) -> Location {
        let line = self.line(span);
        let start = self.lines[line - 1];
        let rest = &self.text[start..];
        let text = rest
            .split('\n')
            .next()
            .unwrap_or(rest)
            .trim_end_matches('\r');
        let end = start + text.len();
        let characters = |from: usize, to: usize| {
            let part = self.text.get(from..to.max(from));
            part.map_or(0, |part| part.chars().count())
        };
        Location {
            line,
            column: characters(start, span.start.min(end)) + 1,
            // A tab would move the caret.
            text: text
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect(),
            length: characters(span.start.min(end), span.end.min(end)),
            is_secret: false,
        }
    }
}

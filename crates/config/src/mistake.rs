//! Mistakes in a file, with their places, and the error that collects them.
//!
//! All mistakes of a file are reported at once, each with its line, because a user corrects them in an
//! editor.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::secrets::Secrets;

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
    /// `None` if the line may contain a secret.
    shown: Option<Shown>,
}

/// A line with a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    /// The text of the line, or of a long line the part with the mistake.
    text: String,
    /// How many characters of that text come before the mistake.
    indent: usize,
    /// The length of the mistake in that text, in characters.
    length: usize,
}

impl Mistake {
    pub(super) fn new(
        source: &SourceText,
        span: Option<&Range<usize>>,
        path: String,
        message: String,
    ) -> Self {
        let place = span.map(|span| source.place(span));
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
        let Some((place, shown)) = self
            .place
            .as_ref()
            .and_then(|place| Some((place, place.shown.as_ref()?)))
        else {
            return Ok(());
        };
        let (line, text) = (place.line.to_string(), &shown.text);
        let gutter = " ".repeat(line.len());
        let indent = " ".repeat(shown.indent);
        let caret = "^".repeat(shown.length.max(1));
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
pub(super) const MOST_LISTED: usize = 100;

/// The number of mistakes that are kept before the first are reported, since a walk does not find them in the order of the file.
const MOST_NOTED: usize = 10_000;

/// The mistakes of a file, without their lines yet: the search for the lines of all mistakes of a large file takes long, and
/// few of them are reported.
#[derive(Debug, Default)]
pub struct Notes {
    notes: Vec<Note>,
    number: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Note {
    span: Option<Range<usize>>,
    path: String,
    message: String,
}

impl Notes {
    /// Notes what is wrong in these bytes.
    pub fn add(&mut self, span: Option<&Range<usize>>, path: &str, message: String) {
        self.number += 1;
        if self.notes.len() < MOST_NOTED {
            self.notes.push(Note {
                span: span.cloned(),
                path: path.to_owned(),
                message,
            });
        }
    }

    /// Returns whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Returns whether few of them are reported.
    pub(super) fn are_many(&self) -> bool {
        self.number > 10 * MOST_LISTED
    }

    /// Returns the first of them, in the order of the file, and their number. What several levels of a tree share is wrong once.
    pub(super) fn first(mut self, source: &SourceText) -> (Vec<Mistake>, usize) {
        let (mut known, before) = (HashSet::new(), self.notes.len());
        self.notes.retain(|note| known.insert(note.clone()));
        let number = self.number - (before - self.notes.len());
        self.notes
            .sort_by_key(|note| note.span.as_ref().map(|span| span.start));
        self.notes.truncate(MOST_LISTED);
        let notes = self.notes.into_iter();
        let mistakes = notes
            .map(|note| Mistake::new(source, note.span.as_ref(), note.path, note.message))
            .collect();
        (mistakes, number)
    }
}

impl FileError {
    pub(super) fn new(mistakes: Vec<Mistake>) -> Self {
        let number = mistakes.len();
        Self { mistakes, number }
    }

    /// Returns the error of these mistakes, of which there is at least one.
    // For `tower-ratelimit-server`.
    #[doc(hidden)]
    pub fn of(notes: Notes, source: &SourceText) -> Self {
        let (mistakes, number) = notes.first(source);
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
            many if many > MOST_LISTED => write!(f, "the first {MOST_LISTED} of {many} mistakes"),
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
pub struct SourceText {
    name: Arc<str>,
    text: Arc<str>,
    /// The offset at which each line begins.
    lines: Arc<[usize]>,
    /// `None` until the text is parsed: then no line is shown, since each may contain a secret.
    secrets: Option<Arc<Secrets>>,
}

impl SourceText {
    /// Names a text in which nothing is secret.
    pub fn without_secrets(name: &str, text: &str) -> Self {
        let mut source = Self::new(name, text);
        source.without(Secrets::default());
        source
    }

    pub(super) fn new(name: &str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1));
        Self {
            name: name.into(),
            text: text.into(),
            lines: lines.collect(),
            secrets: None,
        }
    }

    /// Shows the lines without a secret from now on.
    pub(super) fn without(&mut self, secrets: Secrets) {
        self.secrets = Some(Arc::new(secrets));
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of the line in which these bytes begin, counted from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
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
        let before = characters(start, span.start.min(end));
        let length = characters(span.start.min(end), span.end.min(end));
        let secrets = self.secrets.as_ref();
        if secrets.is_none_or(|secrets| secrets.are_in(text, &(start..end))) {
            return Location {
                line,
                column: before + 1,
                shown: None,
            };
        }
        let is_long = text.chars().nth(WIDEST).is_some();
        let skipped = if is_long {
            before.saturating_sub(WIDEST / 2)
        } else {
            0
        };
        let mut shown = text.chars().skip(skipped);
        let begins = (skipped > 0).then_some('…');
        let part = begins.into_iter().chain(shown.by_ref().take(WIDEST));
        // A tab would move the caret.
        let part = part.map(|c| if c.is_control() { ' ' } else { c });
        let mut part: String = part.collect();
        if shown.next().is_some() {
            part.push('…');
        }
        Location {
            line,
            column: before + 1,
            shown: Some(Shown {
                text: part,
                indent: before - skipped + begins.iter().count(),
                length: length.min(WIDEST - (before - skipped).min(WIDEST)),
            }),
        }
    }
}

/// How many characters of a line are shown.
const WIDEST: usize = 160;

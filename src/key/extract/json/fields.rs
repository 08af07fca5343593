//! What has been read of the body of a request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::path::{EXAMPLE, JsonPath};
use super::scan::{Found, scan};
use crate::error::ConfigError;

/// The most paths that are looked for. Each is a bit of a word.
const MOST_PATHS: usize = 64;

/// The fields of a request's JSON body that a [`ReadJsonLayer`](crate::middleware::ReadJsonLayer) has read. They are in the
/// extensions of the request.
///
/// A closure of a policy takes them from there:
///
/// ```
/// use tower_ratelimit::key::JsonFields;
/// use tower_ratelimit::{FixedWindow, Policy, key};
///
/// // The body says how many rows the client wants; what cannot be read costs the most.
/// let rows = Policy::new("rows", FixedWindow::per_hour(10_000))
///     .key(key::client_ip())
///     .cost(|head| {
///         let rows = head.extension::<JsonFields>().and_then(|fields| fields.number("rows"));
///         rows.map_or(1_000, |rows| u32::try_from(rows).unwrap_or(u32::MAX))
///     });
/// ```
///
/// The `Debug` form shows no value.
#[derive(Clone)]
pub struct JsonFields {
    wanted: Arc<WantedFields>,
    /// Empty if nothing was read, which costs nothing.
    found: Vec<Found>,
    texts: u64,
    unread: Option<Unread>,
    /// `None` once the body has been read, or will not be.
    ahead: Option<Arc<AtomicBool>>,
}

/// Tells whether a policy reads the fields of a body that has not been read yet.
pub(crate) struct AheadOfBody(Arc<AtomicBool>);

impl AheadOfBody {
    /// Returns whether a field was read since the last time.
    pub(crate) fn was_read(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Why the body of a request was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// It was not looked at: no policy asks for it, or the request has no body.
    Unwanted,
    /// It is longer than it may be.
    TooLong,
    /// It is of another content type than JSON, or it has a content coding.
    NotJson,
    /// It is not one JSON object, or it broke off.
    Malformed,
    /// A text stands twice in it, or is longer than 256 bytes. A server may read either of two, so it cannot be
    /// said which one counts. Names that differ in case alone count as one.
    Unclear,
    /// A header of the Model Context Protocol says something else than the body: see
    /// [`ReadJsonLayer::mcp`](crate::middleware::ReadJsonLayer::mcp).
    HeaderMismatch,
}

/// The paths that are looked for in a body.
#[derive(Clone, Default)]
pub(crate) struct WantedFields {
    paths: Vec<(JsonPath, Kind)>,
    /// Whether a path that is not among them counts as one that the body does not have.
    are_all: bool,
    /// Whether the headers of the Model Context Protocol have to say what the body says.
    are_in_headers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// A text for a price, which no policy names.
    Model,
}

impl WantedFields {
    /// Adds a path at which there is a text.
    pub(crate) fn text(&mut self, path: &str) -> Result<(), ConfigError> {
        self.add(path, Kind::Text)
    }

    /// Adds a path at which there is a number. Of several, the largest counts.
    pub(crate) fn number(&mut self, path: &str) -> Result<(), ConfigError> {
        self.add(path, Kind::Number)
    }

    /// Adds the path of a text for a price, which may be unclear.
    pub(crate) fn model(&mut self, path: &str) -> Result<(), ConfigError> {
        self.add(path, Kind::Model)
    }

    fn add(&mut self, path: &str, kind: Kind) -> Result<(), ConfigError> {
        let parsed = JsonPath::parse(path, EXAMPLE)?;
        let mut known = self.paths.iter_mut().filter(|(path, _)| *path == parsed);
        if let Some((_, of)) = known.next() {
            if kind == Kind::Text || *of == Kind::Model {
                *of = kind;
            }
            return Ok(());
        }
        if self.paths.len() == MOST_PATHS {
            let remedy = format!("read at most {MOST_PATHS} fields of a body");
            return Err(ConfigError::quoting("json", path, remedy));
        }
        self.paths.push((parsed, kind));
        Ok(())
    }

    /// Has the headers of the Model Context Protocol say what the body says.
    pub(super) fn also_in_headers(&mut self) {
        self.are_in_headers = true;
    }

    /// Takes other paths for those of fields that no body has.
    pub(crate) fn and_no_others(&mut self) {
        self.are_all = true;
    }

    /// Reads a body.
    pub(crate) fn read(self: &Arc<Self>, body: &[u8]) -> JsonFields {
        let paths: Vec<&JsonPath> = self.paths.iter().map(|(path, _)| path).collect();
        let Some((found, texts)) = scan(body, &paths) else {
            return self.unread(Unread::Malformed, body.len() as u64);
        };
        let mut texts_found = self.paths.iter().zip(&found);
        let is_unclear =
            texts_found.any(|((_, kind), found)| *kind == Kind::Text && found.is_unclear());
        JsonFields {
            unread: is_unclear.then_some(Unread::Unclear),
            ..JsonFields::of(self, found, texts)
        }
    }

    /// Returns the fields of a body that has not been read yet, and what tells whether they are read.
    pub(crate) fn ahead(self: &Arc<Self>) -> (JsonFields, AheadOfBody) {
        let is_read = Arc::new(AtomicBool::new(false));
        let fields = JsonFields {
            ahead: Some(Arc::clone(&is_read)),
            ..self.unread(Unread::Unwanted, 0)
        };
        (fields, AheadOfBody(is_read))
    }

    /// Returns the fields of a body of this length that was not read.
    pub(crate) fn unread(self: &Arc<Self>, why: Unread, length: u64) -> JsonFields {
        JsonFields {
            unread: Some(why),
            ..JsonFields::of(self, Vec::new(), length)
        }
    }
}

impl JsonFields {
    fn of(wanted: &Arc<WantedFields>, found: Vec<Found>, texts: u64) -> Self {
        Self {
            wanted: Arc::clone(wanted),
            found,
            texts,
            unread: None,
            ahead: None,
        }
    }

    /// Returns the fields of a request whose body is not at hand, such as that of a log: it has none of them.
    pub fn unknown() -> Self {
        let mut wanted = WantedFields::default();
        wanted.and_no_others();
        Arc::new(wanted).unread(Unread::Unwanted, 0)
    }

    /// Returns whether headers of the Model Context Protocol have to say what has been read.
    pub(super) fn are_in_headers(&self) -> bool {
        self.wanted.are_in_headers && self.unread.is_none()
    }

    /// Returns the fields of a request whose headers say something else.
    pub(super) fn mismatched(self) -> Self {
        Self {
            unread: Some(Unread::HeaderMismatch),
            ..self
        }
    }

    /// Returns the text at a path that the layer reads as a text. `None` if it is absent, stands there twice, is longer than 256
    /// bytes, or was not read.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.found(path)?.text()
    }

    /// Returns the number at a path that the layer reads, rounded up. Of several, the largest counts. `None` if it is absent or
    /// negative, or was not read.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.found(path)?.number()
    }

    /// Returns how many bytes all texts of the body have together, without the names of members: about what a model is to read. For
    /// a body that was not read, the length of the body, as far as it is known.
    pub(crate) fn bytes_of_texts(&self) -> u64 {
        self.note_reading();
        self.texts
    }

    /// Returns why the body was not read, or why a text in it is not clear.
    pub fn unread(&self) -> Option<Unread> {
        self.note_reading();
        self.unread
    }

    fn note_reading(&self) {
        if let Some(ahead) = &self.ahead {
            ahead.store(true, Ordering::Relaxed);
        }
    }

    fn found(&self, path: &str) -> Option<&Found> {
        self.note_reading();
        self.found.get(self.place(path)?)
    }

    fn place(&self, path: &str) -> Option<usize> {
        self.wanted
            .paths
            .iter()
            .position(|(known, _)| known.is(path))
    }

    /// Returns whether this path was looked for.
    pub(crate) fn knows(&self, path: &str) -> bool {
        let mut paths = self.wanted.paths.iter();
        let is_named = paths.any(|(known, kind)| known.is(path) && *kind != Kind::Model);
        self.wanted.are_all || is_named
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unwanted => "no policy asks for the body",
            Self::TooLong => "the body is too long",
            Self::NotJson => "the body is no JSON, or has a content coding",
            Self::Malformed => "the body is not one JSON object",
            Self::HeaderMismatch => "a header says something else than the body",
            Self::Unclear => "a text stands twice in the body, or is too long",
        })
    }
}

impl fmt::Debug for JsonFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonFields")
            .field("wanted", &self.wanted)
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WantedFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.paths.iter().map(|(path, _)| path);
        f.debug_list().entries(paths).finish()
    }
}

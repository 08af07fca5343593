//! Reads what an answer says that it has used, beside the body on its way to the client.

use std::io::{self, IoSlice, Write};

use bytes::Buf;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};

use super::Usage;
use super::events::Events;
use super::prices::Models;
use super::scanner::Scanner;

/// A frame may become so many times longer when it is inflated, and this many bytes more. A text of JSON becomes some ten times
/// longer; what becomes a thousand times longer is made to keep the processor busy.
const MOST_INFLATED: usize = 100;
const LEAST_INFLATED: usize = 64 * 1024;

/// The most pieces of one frame that are read.
const MOST_PIECES: usize = 16;

/// Reads one answer.
pub(crate) struct UsageReader {
    usage: Usage,
    /// `None` for an answer of another type or coding.
    coding: Option<Coding>,
    /// Whether a part of the answer was not read, so that what comes after it means nothing.
    is_lost: bool,
}

enum Coding {
    Identity(Text),
    Gzip(Box<MultiGzDecoder<Inflated>>),
}

enum Text {
    Json(Scanner),
    Events(Events),
}

/// The inflated text, of which a frame may still have so many bytes.
struct Inflated {
    text: Text,
    room: usize,
}

impl UsageReader {
    pub(crate) fn new(usage: &Usage, headers: &HeaderMap) -> Self {
        Self {
            usage: usage.clone(),
            coding: Text::of(usage, headers).and_then(|text| Coding::of(text, headers)),
            is_lost: false,
        }
    }

    /// Reads the data of a frame, and leaves it as it is.
    pub(crate) fn read(&mut self, data: &impl Buf) {
        let Some(coding) = &mut self.coding else {
            return;
        };
        if self.is_lost {
            return;
        }
        let mut pieces = [IoSlice::new(&[]); MOST_PIECES];
        let count = data.chunks_vectored(&mut pieces);
        let mut left = data.remaining();
        for piece in pieces.iter().take(count) {
            left = left.saturating_sub(piece.len());
            if coding.read(piece).is_err() {
                self.is_lost = true;
                return;
            }
        }
        self.is_lost = left > 0;
    }

    /// Returns how many units the answer to a request that asks for this model has used so far, if it says so.
    pub(crate) fn units(&self, requested: Option<&str>) -> Option<u32> {
        let scanner = self.coding.as_ref()?.scanner();
        let answered = scanner.found_text();
        let models = Models {
            answered,
            requested,
        };
        self.usage.units(scanner.found(), models)
    }
}

impl Coding {
    fn of(text: Text, headers: &HeaderMap) -> Option<Self> {
        let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
        match (codings.next(), codings.next()) {
            (None, _) => Some(Self::Identity(text)),
            (Some(coding), None) if is_one_of(coding.as_bytes(), &["identity"]) => {
                Some(Self::Identity(text))
            }
            (Some(coding), None) if is_one_of(coding.as_bytes(), &["gzip", "x-gzip"]) => {
                let inflated = Inflated { text, room: 0 };
                Some(Self::Gzip(Box::new(MultiGzDecoder::new(inflated))))
            }
            _ => None,
        }
    }

    fn scanner(&self) -> &Scanner {
        let text = match self {
            Self::Identity(text) => text,
            Self::Gzip(decoder) => &decoder.get_ref().text,
        };
        match text {
            Text::Json(scanner) => scanner,
            Text::Events(events) => events.scanner(),
        }
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Identity(text) => {
                text.read(bytes);
                Ok(())
            }
            Self::Gzip(decoder) => {
                let room = bytes.len().saturating_mul(MOST_INFLATED);
                decoder.get_mut().room = room.saturating_add(LEAST_INFLATED);
                decoder.write_all(bytes)?;
                // The decoder passes on what it has, so that a stream is read as far as it has come.
                decoder.flush()
            }
        }
    }
}

impl Text {
    /// Returns `None` for a type of which nothing is read.
    fn of(usage: &Usage, headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE)?.as_bytes();
        let kind = kind.split(|byte| *byte == b';').next()?;
        let scanner = || Scanner::new(usage.wanted());
        if is_one_of(kind, &["text/event-stream"]) {
            return Some(Self::Events(Events::new(scanner())));
        }
        let is_json = is_one_of(
            kind,
            &[
                "application/json",
                "application/x-ndjson",
                "application/jsonl",
            ],
        );
        let is_of_json = kind.trim_ascii().to_ascii_lowercase().ends_with(b"+json");
        (is_json || is_of_json).then(|| Self::Json(scanner()))
    }

    fn read(&mut self, bytes: &[u8]) {
        match self {
            Self::Json(scanner) => scanner.read(bytes),
            Self::Events(events) => events.read(bytes),
        }
    }
}

impl Write for Inflated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room = self
            .room
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        self.text.read(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compares a token of a header with others, ignoring case and white space around it.
fn is_one_of(token: &[u8], others: &[&str]) -> bool {
    let token = token.trim_ascii();
    let mut others = others.iter();
    others.any(|other| token.eq_ignore_ascii_case(other.as_bytes()))
}

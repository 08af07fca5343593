//! A reader of server-sent events that come in pieces: the data of each event is a document.
//!
//! The format is that of the HTML standard, section 9.2.6. The data is scanned as it comes, so nothing of an event is kept.

use memchr::memchr2;

use super::scanner::Scanner;
#[cfg(test)]
use super::scanner::Wanted;

/// Reads the documents in the data of events.
pub(super) struct Events {
    scanner: Scanner,
    line: Line,
    /// Whether a carriage return has ended the last line, so that a line feed belongs to it.
    after_return: bool,
    /// Whether the event has data so far.
    has_data: bool,
}

/// Where in a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// In the name of its field, of which so many bytes are those of `data`.
    Name(usize),
    /// After the colon of `data`, where one space may follow.
    Colon,
    Data,
    /// In a field that does not matter.
    Other,
}

const DATA: &[u8] = b"data";

impl Events {
    pub(super) fn new(scanner: Scanner) -> Self {
        Self {
            scanner,
            line: Line::Name(0),
            after_return: false,
            has_data: false,
        }
    }

    pub(super) fn scanner(&self) -> &Scanner {
        &self.scanner
    }

    /// Reads the next piece.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let [byte, rest @ ..] = bytes {
            let is_rest_of_end = self.after_return && *byte == b'\n';
            self.after_return = *byte == b'\r';
            if is_rest_of_end {
                bytes = rest;
                continue;
            }
            match (self.line, byte) {
                (_, b'\r' | b'\n') => self.end_line(),
                (Line::Name(4), b':') => self.begin_data(),
                (Line::Name(read), byte) => {
                    self.line = match DATA.get(read) {
                        Some(next) if next == byte => Line::Name(read + 1),
                        _ => Line::Other,
                    };
                }
                (Line::Colon, b' ') => self.line = Line::Data,
                (Line::Colon | Line::Data, _) => {
                    self.line = Line::Data;
                    let end = end_of_line(bytes);
                    let (data, after) = bytes.split_at(end);
                    self.scanner.read(data);
                    bytes = after;
                    continue;
                }
                (Line::Other, _) => {
                    bytes = bytes.split_at(end_of_line(bytes)).1;
                    continue;
                }
            }
            bytes = rest;
        }
    }

    fn begin_data(&mut self) {
        if self.has_data {
            // The lines of one event are joined by line feeds.
            self.scanner.read(b"\n");
        } else {
            self.scanner.begin();
            self.has_data = true;
        }
        self.line = Line::Colon;
    }

    fn end_line(&mut self) {
        if self.line == Line::Name(0) {
            // An empty line ends the event.
            self.has_data = false;
        }
        self.line = Line::Name(0);
    }
}

fn end_of_line(bytes: &[u8]) -> usize {
    memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::JsonPath;

    fn found(text: &str, piece: usize) -> Option<u64> {
        let path = JsonPath::known("n");
        let mut events = Events::new(Scanner::new(&Wanted::numbers([path])));
        for piece in text.as_bytes().chunks(piece) {
            events.read(piece);
        }
        events.scanner().found()[0]
    }

    #[test]
    fn data_is_read_whatever_ends_the_lines_and_wherever_they_are_cut() {
        for (text, expected) in [
            ("data: {\"n\":1}\n\n", Some(1)),
            ("data:{\"n\":1}\r\rdata:{\"n\":2}\r\r", Some(2)),
            (
                "event: x\r\ndata: {\"n\":1}\r\n\r\ndata: [DONE]\r\n\r\n",
                Some(1),
            ),
            ("data: {\"n\":\ndata: 7}\n\n", Some(7)),
            ("data: {\"n\":1\n\ndata: {\"n\":2}", Some(2)),
            ("data: {\"n\":1}\n\ndata: {\"n\":2", Some(1)),
            (
                ": data: {\"n\":1}\nid: {\"n\":2}\ndatas: {\"n\":3}\n\n",
                None,
            ),
            ("data\n\ndata: {\"n\":4}\n\n", Some(4)),
            ("da: {\"n\":4}\nevent:data:{\"n\":4}\n\n", None),
            ("data:  {\"n\":5}", Some(5)),
        ] {
            for piece in 1..=text.len() {
                assert_eq!(found(text, piece), expected, "{text:?} by {piece}");
            }
        }
    }
}

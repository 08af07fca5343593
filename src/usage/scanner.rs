//! A reader of JSON that comes in pieces: it looks for numbers and short texts at some paths, and keeps nothing else.
//!
//! No parser of a library takes pieces without keeping the texts in them, which here are what a model has written.

use std::ops::ControlFlow;
use std::sync::Arc;

use memchr::memchr2;

use crate::key::{JsonPath, LONGEST_NAME, whole_number};

/// The most paths that one scanner looks for.
pub(super) const MOST_PATHS: usize = 32;

/// The deepest document that is read. What is deeper is given up.
const DEEPEST: u32 = 128;

/// The longest text that is read, in bytes as it is written.
const LONGEST_TEXT: usize = 256;

/// The longest number that is read: `u64::MAX` has 20 digits.
const LONGEST_NUMBER: usize = 32;

/// The paths that a scanner looks for.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    /// Those of numbers, and then those of texts.
    paths: Arc<[JsonPath]>,
    numbers: usize,
    names: Arc<[Name]>,
}

/// A name that stands on paths, and the bits of those that have it at this level.
struct Name {
    level: usize,
    text: Box<str>,
    paths: u32,
}

impl Wanted {
    pub(super) fn numbers(paths: impl Into<Arc<[JsonPath]>>) -> Self {
        let paths = paths.into();
        Self::new(paths.len(), paths)
    }

    /// Adds paths of one text, which stands at one of them by the shape of the document.
    pub(super) fn and_texts(self, texts: impl IntoIterator<Item = JsonPath>) -> Self {
        let numbers = self.paths.iter().take(self.numbers).cloned();
        Self::new(self.numbers, numbers.chain(texts).collect())
    }

    fn new(numbers: usize, paths: Arc<[JsonPath]>) -> Self {
        debug_assert!(paths.len() <= MOST_PATHS);
        let mut names: Vec<Name> = Vec::new();
        for (place, path) in paths.iter().enumerate() {
            for (level, name) in path.names().enumerate() {
                let mut known = names.iter_mut();
                match known.find(|known| known.level == level && *known.text == *name) {
                    Some(known) => known.paths |= 1 << place,
                    None => names.push(Name {
                        level,
                        text: name.into(),
                        paths: 1 << place,
                    }),
                }
            }
        }
        Self {
            paths,
            numbers,
            names: names.into(),
        }
    }

    pub(super) fn paths(&self) -> &[JsonPath] {
        &self.paths
    }

    /// Returns a bit for each path of a text.
    fn texts(&self) -> u32 {
        let numbers = u32::try_from(self.numbers).unwrap_or(u32::MAX);
        u32::MAX.checked_shl(numbers).unwrap_or(0)
    }
}

/// Reads documents, one after the other, and remembers the last number at each path, and the last text.
pub(super) struct Scanner {
    paths: Arc<[JsonPath]>,
    names: Arc<[Name]>,
    /// The bits of the paths of texts, as far as there are such.
    texts: u32,
    found: Box<[Option<u64>]>,
    found_text: Option<Box<str>>,
    place: Place,
    depth: u32,
    /// One bit for each level, the deepest lowest: whether it is an object.
    objects: u128,
    /// For each object on a path, which paths lead through it. Levels below have none.
    leading: Vec<u32>,
    /// The levels below the last of `leading`.
    beyond: u32,
    /// Which paths lead to the value that comes.
    wanted: u32,
    /// The begin of a name, of a number or of a text that is wanted.
    text: Vec<u8>,
    is_cut: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Value,
    /// A value, or the end of an empty array.
    ValueOrEnd,
    /// A name, or the end of an object.
    NameOrEnd,
    Name,
    Colon,
    /// A comma, or the end of the level.
    AfterValue,
    InName,
    InString,
    /// In a string that is wanted.
    InText,
    /// After a backslash in one of these.
    Escaped(Quoted),
    InNumber,
    InWord,
    /// The document is broken, or too deep.
    Lost,
}

/// What stands in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoted {
    Name,
    String,
    Text,
}

impl Scanner {
    pub(super) fn new(wanted: &Wanted) -> Self {
        Self {
            found: vec![None; wanted.numbers].into(),
            found_text: None,
            texts: wanted.texts(),
            paths: Arc::clone(&wanted.paths),
            names: Arc::clone(&wanted.names),
            place: Place::Value,
            depth: 0,
            objects: 0,
            leading: Vec::new(),
            beyond: 0,
            wanted: u32::MAX,
            text: Vec::new(),
            is_cut: false,
        }
    }

    /// Returns the last number at each path.
    pub(super) fn found(&self) -> &[Option<u64>] {
        &self.found
    }

    /// Returns the last text at one of the paths of texts.
    pub(super) fn found_text(&self) -> Option<&str> {
        self.found_text.as_deref()
    }

    /// Begins a new document. What was found so far stays. One that has been cut off does not count.
    pub(super) fn begin(&mut self) {
        self.place = Place::Value;
        self.depth = 0;
        self.objects = 0;
        self.leading.clear();
        self.beyond = 0;
        self.wanted = u32::MAX;
        self.text.clear();
        self.is_cut = false;
    }

    /// Reads the next piece.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let [byte, rest @ ..] = bytes {
            bytes = match self.place {
                Place::Lost => return,
                Place::InString => self.read_quoted(bytes, Quoted::String),
                Place::InName => self.read_quoted(bytes, Quoted::Name),
                Place::InText => self.read_quoted(bytes, Quoted::Text),
                Place::Escaped(quoted) => {
                    self.keep(&[*byte], quoted);
                    self.place = Place::of(quoted);
                    rest
                }
                Place::InNumber => {
                    let (digits, rest) = bytes.split_at(run(bytes, |byte| is_of_a_number(*byte)));
                    self.keep_number(digits);
                    if !rest.is_empty() {
                        self.end_number();
                    }
                    rest
                }
                Place::InWord => {
                    let (_, rest) = bytes.split_at(run(bytes, u8::is_ascii_lowercase));
                    if !rest.is_empty() {
                        self.end_value();
                    }
                    rest
                }
                _ => {
                    if self.take_structure(*byte).is_break() {
                        self.place = Place::Lost;
                        return;
                    }
                    rest
                }
            };
        }
    }

    /// Reads what stands in quotes, which is most of a document, to its end or to a backslash. Returns what comes after that.
    fn read_quoted<'b>(&mut self, bytes: &'b [u8], quoted: Quoted) -> &'b [u8] {
        let end = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        let (text, rest) = bytes.split_at(end);
        self.keep(text, quoted);
        let Some((byte, rest)) = rest.split_first() else {
            return rest;
        };
        if *byte == b'\\' {
            self.keep(b"\\", quoted);
            self.place = Place::Escaped(quoted);
            return rest;
        }
        match quoted {
            Quoted::Name => self.end_name(),
            Quoted::Text => self.end_text(),
            Quoted::String => self.end_value(),
        }
        rest
    }

    /// Takes one byte between names and values. Breaks where no JSON has it.
    fn take_structure(&mut self, byte: u8) -> ControlFlow<()> {
        if byte.is_ascii_whitespace() {
            return ControlFlow::Continue(());
        }
        match (self.place, byte) {
            (Place::Value | Place::ValueOrEnd, _) if byte != b']' => return self.begin_value(byte),
            (Place::NameOrEnd | Place::Name, b'"') => {
                self.text.clear();
                let leads_nowhere = self.beyond > 0 || self.leading.last() == Some(&0);
                self.is_cut = leads_nowhere;
                self.place = Place::InName;
            }
            (Place::Colon, b':') => self.place = Place::Value,
            (Place::AfterValue, b',') if self.depth > 0 => {
                if self.is_in_object() {
                    self.place = Place::Name;
                } else {
                    self.wanted = self.wanted_of_item();
                    self.place = Place::Value;
                }
            }
            (Place::AfterValue | Place::NameOrEnd, b'}') => return self.close(true),
            (Place::AfterValue | Place::ValueOrEnd, b']') => return self.close(false),
            // Documents may follow each other.
            (Place::AfterValue, _) if self.depth == 0 => {
                self.begin();
                return self.begin_value(byte);
            }
            _ => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn begin_value(&mut self, byte: u8) -> ControlFlow<()> {
        match byte {
            b'{' => return self.open(true),
            b'[' => return self.open(false),
            b'"' if self.wanted & self.texts != 0 && self.is_at_a_text() => {
                self.text.clear();
                self.is_cut = false;
                self.place = Place::InText;
            }
            b'"' => self.place = Place::InString,
            b'-' | b'0'..=b'9' => {
                self.text.clear();
                self.is_cut = self.wanted == 0;
                self.keep_number(&[byte]);
                self.place = Place::InNumber;
            }
            b'a'..=b'z' => self.place = Place::InWord,
            _ => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn open(&mut self, is_object: bool) -> ControlFlow<()> {
        if self.depth == DEEPEST {
            return ControlFlow::Break(());
        }
        // An array around the documents of a stream is not on the path. Another one ends it.
        let is_on_a_path = self.beyond == 0 && self.wanted != 0 && (is_object || self.depth == 0);
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(is_object);
        if !is_on_a_path {
            self.beyond += 1;
        } else if is_object {
            self.leading.push(self.wanted);
        }
        self.wanted = if is_object { 0 } else { self.wanted_of_item() };
        self.place = if is_object {
            Place::NameOrEnd
        } else {
            Place::ValueOrEnd
        };
        ControlFlow::Continue(())
    }

    fn close(&mut self, is_object: bool) -> ControlFlow<()> {
        if self.depth == 0 || self.is_in_object() != is_object {
            return ControlFlow::Break(());
        }
        self.depth -= 1;
        self.objects >>= 1;
        if self.beyond > 0 {
            self.beyond -= 1;
        } else if is_object {
            self.leading.pop();
        }
        self.end_value();
        ControlFlow::Continue(())
    }

    fn is_in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    /// Returns which paths lead to the items of the array in which the scanner is.
    fn wanted_of_item(&self) -> u32 {
        if self.beyond == 0 && self.leading.is_empty() {
            u32::MAX
        } else {
            0
        }
    }

    fn end_name(&mut self) {
        self.wanted = 0;
        self.place = Place::Colon;
        if self.is_cut {
            return;
        }
        let Some(leading) = self.leading.last() else {
            return;
        };
        let level = self.leading.len() - 1;
        for name in &*self.names {
            let paths = leading & name.paths;
            if paths != 0 && name.level == level && name.text.as_bytes() == self.text {
                self.wanted |= paths;
            }
        }
    }

    fn end_number(&mut self) {
        if self.beyond == 0 && self.wanted != 0 && !self.is_cut {
            let number = str::from_utf8(&self.text).ok().and_then(whole_number);
            let levels = self.leading.len();
            for (place, path) in self.paths.iter().enumerate() {
                if self.wanted >> place & 1 == 1 && path.len() == levels {
                    let found = self.found.get_mut(place);
                    if let (Some(found), Some(number)) = (found, number) {
                        *found = Some(number);
                    }
                }
            }
        }
        self.end_value();
    }

    /// Returns whether the value that comes is at the end of the path of a text.
    fn is_at_a_text(&self) -> bool {
        let levels = self.leading.len();
        let mut paths = self.paths.iter().enumerate();
        self.beyond == 0
            && paths.any(|(place, path)| {
                self.wanted & self.texts & 1 << place != 0 && path.len() == levels
            })
    }

    fn end_text(&mut self) {
        if !self.is_cut {
            let quoted = [b"\"", &*self.text, b"\""].concat();
            if let Ok(text) = serde_json::from_slice::<Box<str>>(&quoted) {
                self.found_text = Some(text);
            }
        }
        self.end_value();
    }

    fn end_value(&mut self) {
        self.place = Place::AfterValue;
    }

    fn keep(&mut self, bytes: &[u8], quoted: Quoted) {
        match quoted {
            // A name on a path has no escapes.
            Quoted::Name if bytes == b"\\" => self.is_cut = true,
            Quoted::Name => self.keep_at_most(bytes, LONGEST_NAME),
            Quoted::Text => self.keep_at_most(bytes, LONGEST_TEXT),
            Quoted::String => {}
        }
    }

    fn keep_number(&mut self, bytes: &[u8]) {
        self.keep_at_most(bytes, LONGEST_NUMBER);
    }

    fn keep_at_most(&mut self, bytes: &[u8], most: usize) {
        if self.is_cut {
            return;
        }
        if self.text.len() + bytes.len() <= most {
            self.text.extend_from_slice(bytes);
        } else {
            self.is_cut = true;
        }
    }
}

impl Place {
    fn of(quoted: Quoted) -> Self {
        match quoted {
            Quoted::Name => Self::InName,
            Quoted::String => Self::InString,
            Quoted::Text => Self::InText,
        }
    }
}

/// Returns how many bytes at the begin are such.
fn run(bytes: &[u8], is_such: impl Fn(&u8) -> bool) -> usize {
    let end = bytes.iter().position(|byte| !is_such(byte));
    end.unwrap_or(bytes.len())
}

fn is_of_a_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scanner(paths: &[&str]) -> Scanner {
        let paths: Vec<_> = paths.iter().map(|path| JsonPath::known(path)).collect();
        Scanner::new(&Wanted::numbers(paths))
    }

    /// Returns the last text at `model` or `message.model`.
    fn found_text(pieces: &[&[u8]]) -> Option<String> {
        let number = JsonPath::known("n");
        let texts = ["model", "message.model"].map(JsonPath::known);
        let mut scanner = Scanner::new(&Wanted::numbers([number]).and_texts(texts));
        for piece in pieces {
            scanner.read(piece);
        }
        scanner.found_text().map(str::to_owned)
    }

    fn found(paths: &[&str], pieces: &[&[u8]]) -> Vec<Option<u64>> {
        let mut scanner = scanner(paths);
        for piece in pieces {
            scanner.read(piece);
        }
        scanner.found().to_vec()
    }

    #[test]
    fn numbers_are_found_at_their_paths_and_nowhere_else() {
        let text = br#"
            {"n":1,"usage":{"n":2,"deep":{"n":3},"list":[{"n":4}],"s":"\"n\":5","n2":6},
             "list":[{"usage":{"n":7}}],"a\u0062":8,"none":null,"yes":true}"#;
        let paths = [
            "n",
            "usage.n",
            "usage.deep.n",
            "usage.list.n",
            "usage.s",
            "none",
            "usage",
            "ab",
        ];
        let numbers = [Some(1), Some(2), Some(3), None, None, None, None, None];
        assert_eq!(found(&paths, &[text]), numbers);
    }

    #[test]
    fn the_last_number_counts_in_one_document_and_over_several() {
        assert_eq!(found(&["n"], &[br#"{"n":1,"n":2}"#]), [Some(2)]);
        assert_eq!(
            found(&["n"], &[b"{\"n\":1}\n{\"n\":null}\n{\"n\":3} "]),
            [Some(3)]
        );
        assert_eq!(found(&["n"], &[br#"[{"n":1},{"n":5}]"#]), [Some(5)]);
        assert_eq!(found(&["n"], &[br#"[[{"n":1}]]"#]), [None]);
    }

    #[test]
    fn fractions_are_rounded_up_and_no_number_is_negative() {
        for (text, number) in [
            ("12", Some(12)),
            ("12.2", Some(13)),
            ("1e3", Some(1000)),
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("-3", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("99999999999999999999", Some(u64::MAX)),
            ("1-2", None),
            ("000000000000000000000000000000000001", None),
        ] {
            let document = format!("{{\"n\":{text}}}");
            assert_eq!(found(&["n"], &[document.as_bytes()]), [number], "{text}");
        }
    }

    #[test]
    fn what_is_cut_off_broken_or_too_deep_keeps_what_was_found() {
        assert_eq!(found(&["n", "m"], &[br#"{"n":1,"m":2"#]), [Some(1), None]);
        assert_eq!(found(&["n", "m"], &[br#"{"n":1,]"m":2}"#]), [Some(1), None]);
        assert_eq!(found(&["n"], &[br#"}{"n":1}"#]), [None]);
        let deep = [b"{\"m\":".as_slice(), &b"[".repeat(200), b"1"].concat();
        assert_eq!(
            found(&["n"], &[&deep, &b"]".repeat(200), b",\"n\":1}"]),
            [None]
        );
        let mut deep = scanner(&["n"]);
        deep.read(&b"{\"a\":".repeat(100_000));
        assert!(deep.leading.capacity() < 300);
    }

    #[test]
    fn a_text_of_any_length_is_passed_over() {
        let mut scanner = scanner(&["n"]);
        scanner.read(b"{\"text\":\"");
        for _ in 0..1_000 {
            scanner.read(&[b'x'; 10_000]);
        }
        assert!(scanner.text.capacity() <= LONGEST_NAME);
        scanner.read(b"\",\"n\":4}");
        assert_eq!(scanner.found(), [Some(4)]);
    }

    #[test]
    fn a_short_text_is_found_at_its_path_and_nowhere_else() {
        let long = "x".repeat(LONGEST_TEXT);
        let (fits, too_long) = (
            format!(r#"{{"model":"{long}"}}"#),
            format!(r#"{{"model":"x{long}"}}"#),
        );
        for (text, found) in [
            (r#"{"model":"a","n":1}"#, Some("a")),
            (
                r#"{"type":"x","message":{"model":"b","n":{"model":"c"}}}"#,
                Some("b"),
            ),
            (r#"{"model":"a"}{"model":"b"}"#, Some("b")),
            (r#"{"model":"a\/b \u00e9\"c"}"#, Some("a/b é\"c")),
            (
                r#"{"model":["a"],"n":{"model":"b"},"message":"c","text":"model"}"#,
                None,
            ),
            (r#"{"model":{"model":"a"},"message":[{"model":"b"}]}"#, None),
            (r#"{"model":7,"message":null}"#, None),
            (r#"{"model":"a"#, None),
            (r#"{"model":"\x"}"#, None),
            (&fits, Some(long.as_str())),
            (&too_long, None),
        ] {
            for piece in [1, 2, 3, 1_000] {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
                assert_eq!(found_text(&pieces).as_deref(), found, "{text} by {piece}");
            }
        }
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            (0_u32..2_000).prop_map(|number| number.to_string()),
            r#"[a-z "\\{}\[\]:,\n]{0,8}"#.prop_map(|text| format!("{text:?}")),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| format!("[{}]", items.join(" , "))),
                prop::collection::vec(("[abn]", inner), 0..4).prop_map(|members| {
                    let members = members
                        .iter()
                        .map(|(name, value)| format!("{name:?}: {value}"));
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_places_of_cuts_change_nothing(text in json(), cuts in prop::collection::vec(0_usize..200, 0..6)) {
            let paths = ["n", "a.n", "a.b.n", "b"];
            let whole = found(&paths, &[text.as_bytes()]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut begin = 0;
            for cut in cuts {
                pieces.push(&text.as_bytes()[begin..cut]);
                begin = cut;
            }
            pieces.push(&text.as_bytes()[begin..]);
            prop_assert_eq!(found(&paths, &pieces), whole);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut scanner = scanner(&["a", "a.b"]);
            scanner.read(&bytes);
            prop_assert!(scanner.depth <= DEEPEST);
        }
    }
}

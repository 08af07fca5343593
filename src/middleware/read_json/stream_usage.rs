//! Asks a service in the language of OpenAI for the usage of a stream, and takes the event out again with which it answers.

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::reading::is_plain;

/// The most bytes of an event that are held. A longer one is not that of the usage.
const LONGEST_EVENT: usize = 64 * 1_024;

/// What a request says about its stream.
#[derive(Deserialize)]
struct Chat<'a> {
    #[serde(borrow, default, deserialize_with = "some")]
    stream: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "some")]
    stream_options: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions<'a> {
    #[serde(borrow, default, deserialize_with = "some")]
    include_usage: Option<&'a RawValue>,
}

/// What an event says.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: &'a RawValue,
    #[serde(borrow)]
    usage: &'a RawValue,
}

/// Reads an object. A list would do for these types otherwise.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let is_object = text.trim_start().starts_with('{');
    is_object.then(|| serde_json::from_str(text).ok())?
}

/// Reads `null` as what it is: the member is there.
fn some<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// Returns the body that asks for the usage, if this is that of a stream which does not ask for it.
pub(super) fn asking(body: &[u8]) -> Option<Bytes> {
    const ASKS: &str = r#""include_usage":true"#;
    let text = str::from_utf8(body).ok()?;
    let chat: Chat<'_> = object(text)?;
    if chat.stream?.get() != "true" {
        return None;
    }
    let (part, asks) = match chat.stream_options {
        None => {
            let brace = text.find('{')? + 1;
            (brace..brace, format!("\"stream_options\":{{{ASKS}}},"))
        }
        Some(none) if none.get() == "null" => (place(text, none.get())?, format!("{{{ASKS}}}")),
        Some(options) => {
            let inner: StreamOptions<'_> = object(options.get())?;
            match inner.include_usage.map(RawValue::get) {
                Some(not @ ("false" | "null")) => (place(text, not)?, "true".to_owned()),
                // The client asks by itself, or by a value that some services take for a yes, such as 1.
                Some(_) => return None,
                None => {
                    let brace = place(text, options.get())?.start + 1;
                    let is_empty = options.get().trim_matches(['{', '}']).trim().is_empty();
                    let comma = if is_empty { "" } else { "," };
                    (brace..brace, format!("{ASKS}{comma}"))
                }
            }
        }
    };
    let (before, after) = (text.get(..part.start)?, text.get(part.end..)?);
    Some(Bytes::from([before, &asks, after].concat()))
}

/// Returns where a part of a text stands in it.
fn place(text: &str, part: &str) -> Option<std::ops::Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    Some(start..start + part.len())
}

/// The fields that hold for these very bytes of a body.
const OF_THE_BYTES: [&str; 7] = [
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
    "signature",
    "signature-input",
    "x-amz-content-sha256",
];

/// Returns whether the body of a request with these headers or trailers may be another one than the client has sent.
pub(super) fn may_change(fields: &HeaderMap) -> bool {
    let of_the_bytes = OF_THE_BYTES.iter().any(|name| fields.contains_key(*name));
    let mut credentials = fields.get_all(AUTHORIZATION).iter();
    !of_the_bytes && !credentials.any(signs_the_body)
}

/// Returns whether credentials may be a signature of the request with its body.
fn signs_the_body(credentials: &HeaderValue) -> bool {
    let scheme = credentials.as_bytes().split(|byte| *byte == b' ').next();
    let scheme = scheme.unwrap_or_default().to_ascii_lowercase();
    scheme.starts_with(b"aws4-") || scheme == b"signature"
}

/// Fits the headers of a request to its new body. The events of its answer have to be plain.
pub(super) fn fit(headers: &mut HeaderMap, body: &Bytes) {
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Takes out the headers or trailers of an answer that do not hold without the event of the usage.
pub(super) fn fit_answer(fields: &mut HeaderMap) {
    fields.remove(CONTENT_LENGTH);
    fields.remove(ETAG);
    for name in OF_THE_BYTES {
        fields.remove(name);
    }
}

/// Returns whether the events of an answer with these headers can be read.
pub(super) fn has_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.and_then(|kind| kind.split(|byte| *byte == b';').next());
    let is_stream = |kind: &[u8]| kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream");
    is_plain(headers) && kind.is_some_and(is_stream)
}

/// Takes the event of the usage out of a stream.
#[derive(Debug, Default)]
pub(super) struct WithoutUsage {
    /// The event so far.
    event: BytesMut,
    /// The bytes of its last line.
    line: usize,
    /// Whether a carriage return has ended the last line, so that a line feed belongs to it.
    after_return: bool,
    /// Whether the event is too long to be held.
    is_long: bool,
    /// Whether the event before was taken out.
    has_taken_out: bool,
}

impl WithoutUsage {
    /// Returns what of these bytes, and of those before, goes to the client.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> Bytes {
        let mut passed = BytesMut::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.take(part, &mut passed);
            bytes = rest;
        }
        passed.freeze()
    }

    /// Takes a part of a line, or its end.
    fn take(&mut self, part: &[u8], passed: &mut BytesMut) {
        let is_rest_of_line_end = part == b"\n" && self.after_return;
        self.after_return = part.ends_with(b"\r");
        if is_rest_of_line_end && self.event.is_empty() && !self.is_long {
            // It belongs to the event before.
            if !self.has_taken_out {
                passed.extend_from_slice(part);
            }
            return;
        }
        if self.is_long {
            passed.extend_from_slice(part);
        } else {
            self.event.extend_from_slice(part);
        }
        if is_rest_of_line_end {
            return;
        }
        if self.event.len() > LONGEST_EVENT {
            self.is_long = true;
            passed.extend_from_slice(&self.event.split());
        }
        let has_ended = self.after_return || part.ends_with(b"\n");
        self.line += part.len() - usize::from(has_ended);
        if has_ended && self.line > 0 && self.event.starts_with(b":") {
            // A comment, before the event, keeps the connection alive and is not held back.
            self.line = 0;
            self.has_taken_out = false;
            passed.extend_from_slice(&self.event.split());
            return;
        }
        if has_ended && std::mem::take(&mut self.line) == 0 {
            // An empty line ends the event.
            let event = self.event.split();
            self.has_taken_out = !std::mem::take(&mut self.is_long) && is_of_usage(&event);
            if !self.has_taken_out {
                passed.extend_from_slice(&event);
            }
        }
    }

    /// Returns what is left at the end of the stream, or where it breaks off.
    pub(super) fn end(&mut self) -> Bytes {
        self.event.split().freeze()
    }
}

/// Returns whether this is the event that tells the usage, and nothing else.
fn is_of_usage(event: &[u8]) -> bool {
    let lines = event.split(|byte| matches!(byte, b'\n' | b'\r'));
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let (Some(data), None) = (data.next(), data.next()) else {
        return false;
    };
    let text = str::from_utf8(data).ok();
    let Some(chunk) = text.and_then(object::<Chunk<'_>>) else {
        return false;
    };
    let choices = chunk.choices.get().strip_prefix('[');
    let choices = choices.and_then(|choices| choices.strip_suffix(']'));
    choices.is_some_and(|choices| choices.trim().is_empty()) && chunk.usage.get().starts_with('{')
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_ENCODING;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stream_asks_for_its_usage_in_its_own_words() {
        for (body, expected) in [
            (
                r#" {"stream":true,"n":1}"#,
                Some(r#" {"stream_options":{"include_usage":true},"stream":true,"n":1}"#),
            ),
            (
                r#"{"stream":true,"stream_options":null}"#,
                Some(r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
            ),
            (
                r#"{"stream":true,"stream_options": { } }"#,
                Some(r#"{"stream":true,"stream_options": {"include_usage":true } }"#),
            ),
            (
                r#"{"stream_options":{"include_obfuscation":false},"stream":true}"#,
                Some(
                    r#"{"stream_options":{"include_usage":true,"include_obfuscation":false},"stream":true}"#,
                ),
            ),
            (
                r#"{"stream":true,"stream_options":{"a":1,"include_usage":false}}"#,
                Some(r#"{"stream":true,"stream_options":{"a":1,"include_usage":true}}"#),
            ),
            (
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
                None,
            ),
            (
                r#"{"stream":true,"stream_options":{"include_usage":null}}"#,
                Some(r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
            ),
            (
                r#"{"str\u0065am":true,"stream\u005foptions":{"include\u005fusage":false}}"#,
                Some(r#"{"str\u0065am":true,"stream\u005foptions":{"include\u005fusage":true}}"#),
            ),
            // Some services take these for a yes.
            (
                r#"{"stream":true,"stream_options":{"include_usage":1}}"#,
                None,
            ),
            (
                r#"{"stream":true,"stream_options":{"include_usage":"true"}}"#,
                None,
            ),
            (
                r#"{"stream":true,"stream_options":{},"stream_options":{}}"#,
                None,
            ),
            (r#"{"stream":true,"stream_options":"{"#, None),
            ("\u{feff}{\"stream\":true}", None),
            (r#"{"stream":true,"stream_options":[]}"#, None),
            (r"[true]", None),
            (r#"{"stream":true,"stream":true}"#, None),
            (r#"{"stream":false}"#, None),
            (r#"{"stream":null}"#, None),
            ("{}", None),
            ("[]", None),
        ] {
            let changed = asking(body.as_bytes());
            let changed = changed.as_deref().map(|body| str::from_utf8(body).unwrap());
            assert_eq!(changed, expected, "{body}");
        }
    }

    const USAGE: &str = r#"data: {"choices": [ ],"usage":{"total_tokens":7}}"#;

    fn passed(stream: &str, pieces: &[usize]) -> String {
        let mut filter = WithoutUsage::default();
        let mut passed = Vec::new();
        let (mut rest, mut pieces) = (stream.as_bytes(), pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, others) = rest.split_at((*pieces.next().unwrap()).min(rest.len()));
            passed.extend(filter.pass(piece));
            rest = others;
        }
        passed.extend(filter.end());
        String::from_utf8(passed).unwrap()
    }

    #[test]
    fn events_that_are_not_the_usage_pass_as_they_are() {
        let long = format!(
            "data: {{\"choices\":[],\"usage\":{{\"a\":\"{}\"}}}}\n\n",
            "x".repeat(LONGEST_EVENT)
        );
        for stream in [
            "data: [DONE]\n\n",
            "data: {\"choices\":[{}],\"usage\":{}}\n\n",
            "data: {\"choices\":[],\"usage\":null}\n\n",
            "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
            "data: {\"choices\":[],\ndata: \"usage\":{}}\n\n",
            ": a comment\n\n",
            "data: [[],{}]\n\n",
            "data: cut o",
            ": a comment\n: another\n\n",
            ": a comment\r\n\r\n",
            "\n\n\r\r\n\n",
            // Without its empty line, it is no event.
            USAGE,
            &long,
        ] {
            assert_eq!(passed(stream, &[7]), stream);
        }
        assert_eq!(
            passed(&format!("{long}{USAGE}\n\nx"), &[1_000]),
            format!("{long}x")
        );
        let mut filter = WithoutUsage::default();
        for _ in 0..100 {
            filter.pass(&[b'x'; 10_000]);
        }
        assert!(filter.event.len() <= LONGEST_EVENT);
    }

    #[test]
    fn a_comment_is_not_held_back() {
        for end in ["\n", "\r\n", "\r"] {
            let mut filter = WithoutUsage::default();
            let usage = format!("{USAGE}{end}{end}");
            assert_eq!(filter.pass(usage.as_bytes()), "");
            let comment = format!(": wait{end}");
            assert_eq!(filter.pass(comment.as_bytes()), comment);
            assert_eq!(filter.pass(usage.as_bytes()), "");
            assert_eq!(filter.pass(b"data: [DO"), "");
            assert_eq!(filter.end(), "data: [DO");
        }
    }

    #[test]
    fn a_body_that_is_signed_or_has_a_digest_does_not_change() {
        for (name, value, expected) in [
            ("content-digest", "sha-256=:AAAA:", false),
            ("repr-digest", "sha-256=:AAAA:", false),
            ("digest", "sha-256=AAAA", false),
            ("content-md5", "AAAA", false),
            ("signature", "sig=:AAAA:", false),
            ("x-amz-content-sha256", "aaaa", false),
            ("authorization", "AWS4-HMAC-SHA256 Credential=a", false),
            ("authorization", "Signature keyId=a", false),
            ("authorization", "Bearer Signature", true),
            ("etag", "\"a\"", true),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(name, HeaderValue::from_static(value));
            assert_eq!(may_change(&fields), expected, "{name}: {value}");
        }
    }

    #[test]
    fn only_plain_events_are_read() {
        for (kind, coding, expected) in [
            ("text/event-stream", "identity", true),
            ("Text/Event-Stream ; charset=utf-8", "Identity", true),
            ("text/event-stream", "gzip", false),
            ("application/json", "identity", false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
            assert_eq!(has_events(&fields), expected, "{kind} {coding}");
            fields.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert!(!has_events(&fields), "{kind} {coding}");
        }
    }

    proptest! {
        #[test]
        fn the_event_of_the_usage_is_taken_out_in_whatever_pieces(
            texts in prop::collection::vec("[a-z\"]{0,8}", 0..5),
            place in 0_usize..5,
            end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            pieces in prop::collection::vec(1_usize..40, 1..4),
        ) {
            let mut events: Vec<String> = texts
                .iter()
                .map(|text| format!("id: 1{end}data: {{\"choices\":[{text:?}],\"usage\":null}}{end}{end}"))
                .collect();
            let without = events.concat();
            events.insert(place.min(texts.len()), format!("{USAGE}{end}{end}"));
            let passed = passed(&events.concat(), &pieces);
            prop_assert_eq!(passed, without);
        }
    }
}

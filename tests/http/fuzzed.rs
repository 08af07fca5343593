//! Parsers of what clients send, with arbitrary bytes.

use std::borrow::Cow;

use http::{HeaderValue, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use tower_ratelimit::key::{self, Extract, IntoKey, Missing};

use crate::extractors::{read, sent};

/// Bytes of a header, most of which have a meaning for the parsers.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b"; =,\"sid%&+?#".to_vec()),
        2 => 0x21..0x7f_u8,
        1 => prop_oneof![Just(b'\t'), 0x80..=0xff_u8],
    ];
    vec(byte, 0..40)
}

/// Returns the cookie by a simple rule: the text behind `sid=` between semicolons, without surrounding blanks.
fn cookie_of(lines: &[Vec<u8>]) -> Option<Vec<u8>> {
    let pairs = lines
        .iter()
        .flat_map(|line| line.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        (name.trim_ascii() == b"sid").then(|| value[1..].trim_ascii().to_vec())
    });
    values.next()
}

fn is_token(text: &[u8]) -> bool {
    let end = text.iter().rposition(|byte| *byte != b'=');
    let body = end.map_or(&[][..], |end| &text[..=end]);
    let is_body = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    !body.is_empty() && body.iter().all(is_body)
}

fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap()
}

proptest! {
    #[test]
    fn a_cookie_is_found_where_it_stands_and_nowhere_else(
        lines in vec(prop_oneof![field(), vec(any::<bool>(), 1..6).prop_map(|pairs| {
            let pairs = pairs.iter().map(|ours| if *ours { "sid=v1" } else { "sidx=v2" });
            pairs.collect::<Vec<_>>().join("; ").into_bytes()
        })], 0..3),
    ) {
        let mut request = sent(&[]);
        for line in &lines {
            request.headers_mut().append("cookie", value(line));
        }
        let found = read(&key::cookie("sid"), &request);
        match cookie_of(&lines) {
            None => prop_assert_eq!(found, Err(Missing::ByClient)),
            Some(text) if std::str::from_utf8(&text).is_err() => prop_assert!(found.is_ok()),
            Some(text) => {
                let text = String::from_utf8(text).unwrap();
                let is_it = key::cookie("sid").one_of([text.as_str()]);
                prop_assert!(found.is_ok() && is_it(&key::Head::of(&request)), "{text:?}");
            }
        }
    }

    #[test]
    fn a_token_is_what_rfc_6750_says_and_nothing_else(
        scheme in prop::sample::select(vec!["Bearer", "bearer", "BEARER", "Basic", "Bearerx", ""]),
        blanks in 0..3_usize,
        text in prop_oneof![field(), "[A-Za-z0-9._~+/=-]{0,20}".prop_map(String::into_bytes)],
    ) {
        let line = [scheme.as_bytes(), &vec![b' '; blanks], &text].concat();
        let mut request = sent(&[]);
        request.headers_mut().append("authorization", value(&line));
        let found = read(&key::bearer_token(), &request);
        // Blanks at the start of the text are blanks behind the scheme.
        let all_blanks = blanks + text.iter().take_while(|byte| **byte == b' ').count();
        let token = &text[all_blanks - blanks..];
        let is_bearer = scheme.eq_ignore_ascii_case("bearer") && all_blanks > 0;
        prop_assert_eq!(found.is_ok(), is_bearer && is_token(token), "{:?}", line);
    }

    #[test]
    fn a_parameter_is_what_a_form_would_read(query in "[a-zq=&%+0-9;?/]{0,30}") {
        let uri = format!("/?{query}");
        let request = Request::get(uri).body(()).unwrap();
        let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pair = pairs.find(|pair| decoded(pair.split('=').next().unwrap_or("")) == "q");
        let expected = pair.map(|pair| decoded(pair.split_once('=').map_or("", |(_, value)| value)));
        let found = key::query("q").extract(&key::Head::of(&request));
        match expected {
            None => prop_assert_eq!(found, Err(Missing::ByClient)),
            Some(text) => prop_assert_eq!(found, Ok(text.into_key()), "{}", query),
        }
    }
}

/// Percent-decoding by hand: `+` is a blank, and an invalid escape stays.
fn decoded(text: &str) -> Cow<'static, str> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let escape = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], escape) {
            (b'%', Some(byte)) if hex.is_some_and(|hex| !hex.contains('+')) => {
                out.push(byte);
                at += 3;
            }
            (b'+', _) => {
                out.push(b' ');
                at += 1;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned().into()
}

//! `Forwarded` of RFC 7239, read from the right.
//!
//! A client can write the left part of a line, and can leave a quote open there. So each line is
//! read by itself, the number of elements is bounded, and a malformed element ends the chain.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;

use super::address::node;
use super::proxies::{EXAMINED, Element};

/// Returns the elements, the last one first.
///
/// Each line is read by itself, so that a quote that a client leaves open on its own line does not
/// swallow the line of a proxy.
pub(super) fn elements(headers: &HeaderMap) -> impl Iterator<Item = Element> {
    let lines = headers.get_all(FORWARDED).into_iter().rev();
    lines.flat_map(|line| LastElements::split(line.as_bytes()))
}

/// The elements of a line, the last one first.
///
/// Because of the quotes, the ends of the elements are known only from left to right, so the last
/// elements are kept on the way.
struct LastElements<'a> {
    last: [&'a [u8]; EXAMINED],
    count: usize,
    left: usize,
}

impl<'a> LastElements<'a> {
    fn split(text: &'a [u8]) -> Self {
        let mut line = Self {
            last: [&[]; EXAMINED],
            count: 0,
            left: 0,
        };
        let mut start = 0;
        let mut is_open = false;
        let mut is_escaped = false;
        for (index, byte) in text.iter().enumerate() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_open => is_escaped = true,
                b'"' => is_open = !is_open,
                b',' if !is_open => {
                    line.keep(&text[start..index]);
                    start = index + 1;
                }
                _ => {}
            }
        }
        // If a quote is still open, this element is broken, and the elements to its left are not
        // read.
        line.keep(&text[start..]);
        line
    }

    fn keep(&mut self, element: &'a [u8]) {
        self.last[self.count % EXAMINED] = element;
        self.count += 1;
        self.left = self.count;
    }
}

impl Iterator for LastElements<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        self.left = self.left.checked_sub(1)?;
        let is_examined = self.count - self.left <= EXAMINED;
        Some(if is_examined {
            element(self.last[self.left % EXAMINED])
        } else {
            Element::Broken
        })
    }
}

fn element(text: &[u8]) -> Element {
    if text.trim_ascii().is_empty() {
        return Element::Empty;
    }
    let mut client = None;
    let mut rest = text;
    loop {
        match pair(&mut rest) {
            Some(Some((name, value))) if name.eq_ignore_ascii_case(b"for") => {
                if client.replace(value).is_some() {
                    return Element::Broken;
                }
            }
            Some(_) => {}
            None => return Element::Broken,
        }
        match rest.split_first() {
            None => break,
            Some((b';', behind)) => rest = behind,
            Some(_) => return Element::Broken,
        }
    }
    let address = client.and_then(value_address);
    address.map_or(Element::Unnamed, Element::Address)
}

/// Returns the address in a value: a token, or the text between two quotes with its backslashes. A
/// token has no backslashes.
fn value_address(value: &[u8]) -> Option<IpAddr> {
    if value.contains(&b'\\') {
        let mut bytes = [0; LONGEST];
        unescape(value, &mut bytes).and_then(node)
    } else {
        node(value)
    }
}

/// Longer than any address with a port.
const LONGEST: usize = 64;

fn unescape<'a>(text: &[u8], into: &'a mut [u8; LONGEST]) -> Option<&'a [u8]> {
    let mut len = 0;
    let mut is_escaped = false;
    for byte in text {
        if *byte == b'\\' && !is_escaped {
            is_escaped = true;
            continue;
        }
        is_escaped = false;
        *into.get_mut(len)? = *byte;
        len += 1;
    }
    Some(&into[..len])
}

/// Takes a pair from the beginning of the text, with the blanks around it. The outer `None` is a
/// malformed pair; the inner `None` is an empty pair before the next semicolon.
///
/// The grammar has no blanks around semicolons. Some proxies write them, so they are accepted.
#[expect(clippy::option_option, reason = "a pair may be left out")]
fn pair<'a>(rest: &mut &'a [u8]) -> Option<Option<(&'a [u8], &'a [u8])>> {
    *rest = rest.trim_ascii_start();
    if matches!(rest.first(), None | Some(b';')) {
        return Some(None);
    }
    let name = token(rest)?;
    *rest = rest.strip_prefix(b"=")?;
    let value = match rest.strip_prefix(b"\"") {
        Some(text) => {
            let len = quoted_len(text)?;
            *rest = &text[len + 1..];
            &text[..len]
        }
        None => token(rest)?,
    };
    *rest = rest.trim_ascii_start();
    Some(Some((name, value)))
}

/// Takes a token of RFC 9110, section 5.6.2.
fn token<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let len = rest.iter().take_while(|byte| is_token(**byte)).count();
    let (token, behind) = rest.split_at(len);
    *rest = behind;
    (!token.is_empty()).then_some(token)
}

/// Returns the number of bytes before the closing quote.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|byte| match byte {
        _ if is_escaped => {
            is_escaped = false;
            false
        }
        b'\\' => {
            is_escaped = true;
            false
        }
        byte => *byte == b'"',
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Element {
        Element::Address(text.parse().unwrap())
    }

    #[test]
    fn an_element_names_its_client_in_every_way_of_the_grammar() {
        for (text, expected) in [
            ("for=192.0.2.1", address("192.0.2.1")),
            ("FOR=192.0.2.1", address("192.0.2.1")),
            ("for=\"192.0.2.1\"", address("192.0.2.1")),
            ("for=\"192.0.2.1:80\"", address("192.0.2.1")),
            ("for=\"192.0.2.1\\:8\\0\"", address("192.0.2.1")),
            ("for=\"[2001:db8::1]\"", address("2001:db8::1")),
            ("For=\"[2001:db8::1]:_x\"", address("2001:db8::1")),
            (";;proto=https;for=192.0.2.1;", address("192.0.2.1")),
            (" proto=https ; for=192.0.2.1 ", address("192.0.2.1")),
            ("by=\"a\\\"b,;c\";for=192.0.2.1", address("192.0.2.1")),
            ("host=\"\";for=192.0.2.1", address("192.0.2.1")),
            ("for=unknown", Element::Unnamed),
            ("for=_hidden", Element::Unnamed),
            ("for=\"_hidden:80\"", Element::Unnamed),
            ("for=\"\"", Element::Unnamed),
            ("for=\"2001:db8::1\"", Element::Unnamed),
            ("by=192.0.2.1", Element::Unnamed),
            ("forward=192.0.2.1", Element::Unnamed),
            (";", Element::Unnamed),
            ("", Element::Empty),
            (" \t", Element::Empty),
            ("for", Element::Broken),
            ("for=", Element::Broken),
            ("for =192.0.2.1", Element::Broken),
            ("for= 192.0.2.1", Element::Broken),
            ("=192.0.2.1", Element::Broken),
            ("192.0.2.1", Element::Broken),
            ("for=192.0.2.1:80", Element::Broken),
            ("for=[2001:db8::1]", Element::Broken),
            ("for=192.0.2.1 x", Element::Broken),
            ("for=192.0.2.1;for=192.0.2.2", Element::Broken),
            ("for=192.0.2.1;For=192.0.2.1", Element::Broken),
            ("for=\"192.0.2.1\"x", Element::Broken),
            ("for=\"192.0.2.1", Element::Broken),
            ("for=\"192.0.2.1\\\"", Element::Broken),
            ("for=192.0.2.1;é=1", Element::Broken),
        ] {
            assert_eq!(element(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_long_quoted_text_with_backslashes_is_no_address() {
        let text = format!("for=\"{}\"", "\\1".repeat(1_000_000));
        assert_eq!(element(text.as_bytes()), Element::Unnamed);
    }

    #[test]
    fn a_line_comes_from_its_end_and_what_is_too_far_left_is_broken() {
        let elements = |text: &str| LastElements::split(text.as_bytes()).collect::<Vec<_>>();
        let (one, two) = (address("192.0.2.1"), address("192.0.2.2"));
        assert_eq!(elements(""), [Element::Empty]);
        assert_eq!(elements("for=192.0.2.1, for=192.0.2.2"), [two, one]);
        let quoted = "for=192.0.2.1;by=\",\\\",\",for=192.0.2.2";
        assert_eq!(elements(quoted), [two, one]);
        assert_eq!(elements("for=192.0.2.1,by=\"x")[0], Element::Broken);

        for count in [EXAMINED, EXAMINED + 1, 3 * EXAMINED + 5] {
            let line = "for=192.0.2.1,".repeat(count - 1) + "for=192.0.2.2";
            let elements = elements(&line);
            assert_eq!(elements.len(), count);
            assert_eq!(elements[0], two);
            let kept = &elements[1..EXAMINED];
            assert!(kept.iter().all(|element| *element == one), "{count}");
            let lost = &elements[EXAMINED..];
            assert!(lost.iter().all(|element| *element == Element::Broken));
        }
    }
}

//! HTTP/1 on a connection of the server, in two writes: it answers a beginning of the requests that one strict reading of the bytes
//! finds, with the bodies of that reading, and no other.
//!
//! The first line says after how many bytes the first write ends.

#![no_main]

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use http::Uri;
use libfuzzer_sys::fuzz_target;
use ratelimitd::server::Answers;
use tower_ratelimit_fuzz::{Served, line};

/// What a service, or a reader, takes for a request.
#[derive(Clone, Debug, PartialEq)]
struct Read {
    method: String,
    target: Uri,
    body: Vec<u8>,
}

struct Scene {
    served: Served,
    seen: Arc<Mutex<Vec<Read>>>,
}

thread_local! {
    static SCENE: Scene = Scene::new();
}

fuzz_target!(|text: &[u8]| {
    let (first, bytes) = line(text);
    let Some(split) = std::str::from_utf8(first)
        .ok()
        .and_then(|first| first.parse::<usize>().ok())
    else {
        return;
    };
    // HTTP/2 has other frames.
    if bytes.starts_with(b"PRI ") {
        return;
    }
    let strict = requests(bytes);
    SCENE.with(|scene| {
        let seen = scene.send(bytes.split_at(split.min(bytes.len())));
        assert!(strict.starts_with(&seen), "seen {seen:?}\nread {strict:?}");
    });
});

impl Scene {
    fn new() -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let service = Router::new().fallback(move |request: Request| {
            let told = Arc::clone(&told);
            async move {
                let (head, body) = request.into_parts();
                // A request whose body has not come whole is not answered.
                if let Ok(body) = to_bytes(body, usize::MAX).await {
                    told.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(Read {
                            method: head.method.to_string(),
                            target: head.uri,
                            body: body.to_vec(),
                        });
                }
            }
        });
        let served = Served::new("framing", Answers::Operators(service));
        Self { served, seen }
    }

    /// Returns what the service has seen.
    fn send(&self, (first, rest): (&[u8], &[u8])) -> Vec<Read> {
        self.served.exchange(&[first, rest]);
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads requests by the letter of RFC 9112, up to the first byte that is none of theirs.
fn requests(mut bytes: &[u8]) -> Vec<Read> {
    let mut requests = Vec::new();
    while let Some((request, rest)) = request(bytes) {
        requests.push(request);
        bytes = rest;
    }
    requests
}

fn request(bytes: &[u8]) -> Option<(Read, &[u8])> {
    let mut rest = bytes;
    // Empty lines may stand before a request.
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        rest = after;
    }
    let (first, mut rest) = ended(rest)?;
    let mut words = std::str::from_utf8(first).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !version.starts_with("HTTP/1.") {
        return None;
    }
    let (mut length, mut is_coded, mut is_chunked) = (None, false, false);
    loop {
        let (field, after) = ended(rest)?;
        rest = after;
        if field.is_empty() {
            break;
        }
        let colon = field.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let value = std::str::from_utf8(value).ok().filter(|_| is_number)?;
            if length.replace(value.parse::<usize>().ok()?).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // Of several codings, the last one is that of the frames (RFC 9112, section 6.3).
            let last = value.rsplit(|byte| *byte == b',').next()?.trim_ascii();
            is_coded = true;
            is_chunked = last.eq_ignore_ascii_case(b"chunked");
        }
    }
    if is_coded && !is_chunked {
        return None;
    }
    let body = match (length, is_chunked) {
        (Some(_), true) => return None,
        (length, false) => {
            let (body, after) = rest.split_at_checked(length.unwrap_or(0))?;
            rest = after;
            body.to_vec()
        }
        (None, true) => {
            let (body, after) = chunks(rest)?;
            rest = after;
            body
        }
    };
    let (method, target) = (method.to_owned(), target.parse().ok()?);
    Some((
        Read {
            method,
            target,
            body,
        },
        rest,
    ))
}

fn chunks(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let (size, after) = ended(rest)?;
        let size = std::str::from_utf8(size.split(|byte| *byte == b';').next()?).ok()?;
        if !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            rest = after;
            break;
        }
        let (chunk, after) = after.split_at_checked(size)?;
        body.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n")?;
    }
    loop {
        let (trailer, after) = ended(rest)?;
        rest = after;
        if trailer.is_empty() {
            return Some((body, rest));
        }
    }
}

/// Returns the bytes of a line that ends with CR LF, and has neither elsewhere, and the rest.
fn ended(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &bytes[..end];
    let is_clear = !line.iter().any(|byte| b"\r\n\0".contains(byte));
    is_clear.then_some((line, &bytes[end + 2..]))
}

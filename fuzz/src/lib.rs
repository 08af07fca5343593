//! What the targets share: heads of HTTP from lines of text, bodies in pieces, futures that are ready at once, and a server.

mod served;

use std::convert::Infallible;
use std::future::Future;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::StreamBody;

pub use self::served::{Served, status};

/// Returns the first line, and the rest.
pub fn line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[]),
    }
}

/// Reads lines such as `name: value`. One that no message can have is left out.
pub fn fields(lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = HeaderName::from_bytes(parts.next().unwrap_or_default());
        let value = HeaderValue::from_bytes(parts.next().unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    fields
}

/// Reads a line such as `GET /path?query`, and fields. `None` if no request has such a line.
pub fn request(text: &[u8]) -> Option<Request<()>> {
    let (first, lines) = line(text);
    let mut words = std::str::from_utf8(first).ok()?.splitn(2, ' ');
    let mut request = Request::builder()
        .method(words.next()?)
        .uri(words.next()?)
        .body(())
        .ok()?;
    *request.headers_mut() = fields(lines);
    Some(request)
}

/// Reads a status, and fields. `None` if no response has such a status.
pub fn response(text: &[u8]) -> Option<Response<()>> {
    let (status, lines) = line(text);
    let status: u16 = std::str::from_utf8(status).ok()?.trim().parse().ok()?;
    let mut response = Response::builder().status(status).body(()).ok()?;
    *response.headers_mut() = fields(lines);
    Some(response)
}

/// Returns the same fields, with all values of a name in one line.
pub fn joined(fields: &HeaderMap) -> HeaderMap {
    let mut joined = HeaderMap::new();
    for name in fields.keys() {
        let values: Vec<&[u8]> = fields
            .get_all(name)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        let value = HeaderValue::from_bytes(&values.join(&b", "[..])).expect("each part is one");
        joined.insert(name, value);
    }
    joined
}

/// A body that comes in frames of this many bytes, from one on.
pub fn body(bytes: &[u8], frame: usize) -> impl Body<Data = Bytes, Error = Infallible> + use<> {
    let frames: Vec<Result<Frame<Bytes>, Infallible>> = bytes
        .chunks(frame.max(1))
        .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))))
        .collect();
    StreamBody::new(stream::iter(frames))
}

/// Returns what a future returns that waits for nothing.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it waits for nothing")
}

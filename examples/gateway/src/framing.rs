//! Finds requests that have several lengths: both `Content-Length` and `Transfer-Encoding`, or one of them twice.
//!
//! Two readers of such a request may disagree about its end, which makes smuggling possible. hyper follows
//! `Transfer-Encoding` and removes the other header, and makes one of two equal lengths, so a service never sees that
//! both were there. This module reads the same bytes beside hyper, as far as it takes to find the head of each request.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most fields of a head that hyper reads.
const MOST_FIELDS: usize = 100;

/// More bytes than hyper accepts in a head.
const LONGEST_HEAD: usize = 512 * 1024;

const LONGEST_LINE: usize = 16 * 1024;

const HTTP2: &[u8] = b"PRI * HTTP/2.0";

pin_project! {
    /// A connection whose incoming bytes are inspected.
    #[derive(Debug)]
    pub(crate) struct Framed<T> {
        #[pin]
        inner: T,
        heads: Heads,
    }
}

/// The state of the inspection of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    framing: Arc<Mutex<Framing>>,
}

#[derive(Debug, Default)]
struct Framing {
    place: FramingState,
    /// The beginning of an incomplete head or line.
    partial: Vec<u8>,
    /// Whether each request that is not yet served has one length at most.
    clear: VecDeque<bool>,
}

/// The part that comes next on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramingState {
    #[default]
    Head,
    /// This many bytes of a body.
    Body(u64),
    ChunkSize,
    /// This many bytes of a chunk.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// Bytes of another protocol.
    Opaque,
    /// The bytes cannot be understood, and no further request is served.
    Broken,
}

impl Heads {
    /// Returns whether the next request has one length at most. Each request of HTTP/1 takes one answer.
    pub(crate) fn next_is_clear(&self) -> bool {
        let mut framing = self.lock();
        match framing.clear.pop_front() {
            Some(is_clear) => is_clear,
            None => framing.place == FramingState::Opaque,
        }
    }

    /// The bytes to come are not HTTP.
    pub(crate) fn upgrade(&self) {
        let mut framing = self.lock();
        framing.place = FramingState::Opaque;
        framing.partial = Vec::new();
    }

    fn lock(&self) -> MutexGuard<'_, Framing> {
        self.framing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Framing {
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.place {
                FramingState::Opaque | FramingState::Broken => return,
                FramingState::Head => self.head(bytes),
                FramingState::Body(left) => {
                    self.skip(bytes, left, FramingState::Body, FramingState::Head)
                }
                FramingState::Chunk(left) => {
                    self.skip(bytes, left, FramingState::Chunk, FramingState::ChunkEnd)
                }
                FramingState::ChunkSize | FramingState::ChunkEnd | FramingState::Trailers => {
                    self.line(bytes)
                }
            };
        }
    }

    /// Reads as much of a head as there is, and returns the part that comes after it.
    fn head<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let before = self.partial.len();
        if before == 0 && matches!(bytes[0], b'\r' | b'\n') {
            // Empty lines before a head are skipped by hyper too.
            return &bytes[1..];
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() >= HTTP2.len() && self.partial.starts_with(HTTP2) {
            return self.end_at(FramingState::Opaque);
        }
        // A head ends with a line.
        if !bytes.contains(&b'\n') {
            return self.wait_for_more(LONGEST_HEAD);
        }
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&self.partial) {
            Ok(httparse::Status::Complete(length)) => {
                let (place, is_clear) = after(request.headers);
                self.clear.push_back(is_clear);
                self.partial.clear();
                self.place = place;
                bytes
                    .get(length.saturating_sub(before)..)
                    .unwrap_or_default()
            }
            Ok(httparse::Status::Partial) => self.wait_for_more(LONGEST_HEAD),
            Err(_) => self.end_at(FramingState::Broken),
        }
    }

    fn skip<'b>(
        &mut self,
        bytes: &'b [u8],
        left: u64,
        rest: fn(u64) -> FramingState,
        next: FramingState,
    ) -> &'b [u8] {
        let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - here as u64;
        self.place = if left == 0 { next } else { rest(left) };
        &bytes[here..]
    }

    /// Reads a line of a chunked body, and returns the part that comes after it.
    fn line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.partial.extend_from_slice(bytes);
            return self.wait_for_more(LONGEST_LINE);
        };
        self.partial.extend_from_slice(&bytes[..end]);
        // As strict as hyper: a line of blanks is not empty.
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        self.place = match self.place {
            FramingState::ChunkSize => match chunk_size(line) {
                Some(0) => FramingState::Trailers,
                Some(size) => FramingState::Chunk(size),
                None => FramingState::Broken,
            },
            FramingState::ChunkEnd if line.is_empty() => FramingState::ChunkSize,
            FramingState::Trailers if line.is_empty() => FramingState::Head,
            FramingState::Trailers => FramingState::Trailers,
            _ => FramingState::Broken,
        };
        self.partial.clear();
        &bytes[end + 1..]
    }

    fn wait_for_more(&mut self, most: usize) -> &'static [u8] {
        if self.partial.len() > most {
            return self.end_at(FramingState::Broken);
        }
        &[]
    }

    fn end_at(&mut self, place: FramingState) -> &'static [u8] {
        self.place = place;
        self.partial = Vec::new();
        &[]
    }
}

/// Returns the part that follows a head with these fields, and whether that is clear.
fn after(fields: &[httparse::Header<'_>]) -> (FramingState, bool) {
    let named = |name: &'static str| {
        let fields = fields.iter();
        fields.filter(move |field| field.name.eq_ignore_ascii_case(name))
    };
    let (length, more) = (
        named("content-length").next(),
        named("content-length").nth(1),
    );
    if named("transfer-encoding").next().is_some() {
        return (FramingState::ChunkSize, length.is_none());
    }
    if more.is_some() {
        return (FramingState::Broken, false);
    }
    let Some(length) = length else {
        return (FramingState::Head, true);
    };
    let text = str::from_utf8(length.value).ok();
    match text.and_then(|text| text.trim().parse().ok()) {
        Some(0) => (FramingState::Head, true),
        Some(length) => (FramingState::Body(length), true),
        None => (FramingState::Broken, false),
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = str::from_utf8(line.split(|byte| *byte == b';').next()?).ok()?;
    u64::from_str_radix(text.trim(), 16).ok()
}

impl<T> Framed<T> {
    pub(crate) fn new(inner: T) -> (Self, Heads) {
        let heads = Heads::default();
        let framed = Self {
            inner,
            heads: heads.clone(),
        };
        (framed, heads)
    }
}

impl<T: AsyncRead> AsyncRead for Framed<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buffer.filled().len();
        ready!(this.inner.poll_read(cx, buffer))?;
        this.heads.lock().read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for Framed<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const SIZED: &str =
        "POST / HTTP/1.1\r\nContent-Length: 32\r\n\r\nGET / HTTP/1.1\r\nhost: inner\r\n\r\n?";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;name=value\r\n\r\n\r\n\n\r\nA\r\n0123456789\r\n0\r\nx-trailer: 1\r\n\r\n";
    const BOTH: &str =
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n";
    const BOTH_TURNED: &str =
        "POST / HTTP/1.1\r\nContent-Length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";

    /// Returns whether each request of these bytes is clear, if they arrive in pieces of this size.
    fn seen(bytes: &str, size: usize) -> Vec<bool> {
        let mut framing = Framing::default();
        bytes
            .as_bytes()
            .chunks(size)
            .for_each(|piece| framing.read(piece));
        framing.clear.into()
    }

    #[test]
    fn each_request_with_two_lengths_is_found_however_its_bytes_arrive() {
        let all = [PLAIN, SIZED, BOTH, CHUNKED, BOTH_TURNED, PLAIN].concat();
        for size in 1..=all.len() {
            let clear = seen(&all, size);
            assert_eq!(clear, [true, true, false, true, false, true], "{size}");
        }
    }

    #[test]
    fn bytes_that_cannot_be_understood_end_the_requests() {
        for broken in [
            "\0\0\0\n",
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        ] {
            let heads = Heads::default();
            heads.lock().read(broken.as_bytes());
            heads.lock().read(PLAIN.as_bytes());
            let first = heads.lock().clear.len();
            for _ in 0..first {
                heads.next_is_clear();
            }
            assert!(!heads.next_is_clear(), "{broken:?}");
        }
    }

    #[test]
    fn other_protocols_are_left_alone() {
        let heads = Heads::default();
        heads.lock().read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0");
        assert!(heads.next_is_clear());

        let heads = Heads::default();
        heads.lock().read(PLAIN.as_bytes());
        assert!(heads.next_is_clear());
        heads.upgrade();
        heads.lock().read(b"\x81\x85\n\n");
        assert_eq!(heads.lock().place, FramingState::Opaque);
    }
}

//! Lets bytes of HTTP/1 pass only if they have one reading.
//!
//! Two servers may disagree about the end of a request with two lengths, or about a line that ends without CR, which makes
//! smuggling possible. hyper accepts some of these, and a service does not see that they were there. This reader stands
//! before hyper and decides alone: hyper gets no byte after the first one that breaks these rules, so it cannot read
//! anything else.
//!
//! - Lines end with CR LF. Neither stands elsewhere in a line, nor does NUL.
//! - A field has a name, a colon after it, and no second line.
//! - A head has one `Content-Length`, of digits, or `Transfer-Encoding`.
//! - The size of a chunk has hexadecimal digits, and `;` may follow.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";

/// The rest of a head that hyper refuses with 400, and closes the connection.
const REFUSED: &[u8] = b"\0\r\n\r\n";

/// The longest name of a field that is compared.
const LONGEST_NAME: usize = "transfer-encoding".len();

pin_project! {
    /// A connection whose incoming bytes have one reading.
    #[derive(Debug)]
    pub(crate) struct Framed<T> {
        #[pin]
        inner: T,
        heads: Heads,
    }
}

/// A handle of the reader of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    framing: Arc<Mutex<Framing>>,
}

#[derive(Debug, Default)]
struct Framing {
    place: Place,
    /// The last byte was a CR.
    has_cr: bool,
    name: Name,
    /// `Content-Length`, or the size of a chunk.
    length: Option<u64>,
    is_chunked: bool,
    /// The bytes of [`REFUSED`] that hyper has read.
    refused: usize,
}

/// The beginning of the name of a field, in lower case.
#[derive(Debug, Default)]
struct Name {
    bytes: [u8; LONGEST_NAME],
    length: usize,
}

/// The part of the connection to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The first bytes, of which so many are those of HTTP/2.
    First(usize),
    BeforeHead,
    RequestLine,
    FieldName,
    /// The value of `Content-Length`, from its first digit on or after its last.
    Length {
        has_ended: bool,
    },
    FieldValue,
    /// This many bytes of a body.
    Body(u64),
    ChunkSize,
    ChunkExtension,
    /// This many bytes of a chunk.
    Chunk(u64),
    ChunkEnd,
    TrailerStart,
    Trailer,
    /// Bytes of another protocol.
    Opaque,
    /// A byte broke the rules, in a head or in a body.
    Broken {
        is_in_body: bool,
    },
}

/// A byte that breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unclear;

impl Default for Place {
    fn default() -> Self {
        Self::First(0)
    }
}

impl Heads {
    /// The bytes to come are not HTTP.
    pub(crate) fn upgrade(&self) {
        self.lock().place = Place::Opaque;
    }

    fn lock(&self) -> MutexGuard<'_, Framing> {
        self.framing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Framing {
    /// Reads these bytes, and returns how many of them are clear.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let mut read = 0;
        while let Some(byte) = bytes.get(read) {
            read += match self.place {
                Place::Opaque => return bytes.len(),
                Place::Broken { .. } => return read,
                Place::Body(left) => {
                    self.skip(bytes.len() - read, left, Place::Body, Place::BeforeHead)
                }
                Place::Chunk(left) => {
                    self.skip(bytes.len() - read, left, Place::Chunk, Place::ChunkEnd)
                }
                place => {
                    if self.byte(*byte) == Err(Unclear) {
                        let is_in_body = place.is_in_body();
                        self.place = Place::Broken { is_in_body };
                        return read;
                    }
                    1
                }
            };
        }
        read
    }

    /// Ends the bytes of a connection that is broken.
    fn end(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.place == (Place::Broken { is_in_body: true }) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let rest = &REFUSED[self.refused..];
        let next = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..next]);
        self.refused += next;
        Ok(())
    }

    fn is_broken(&self) -> bool {
        matches!(self.place, Place::Broken { .. })
    }

    fn skip(&mut self, here: usize, left: u64, rest: fn(u64) -> Place, next: Place) -> usize {
        let here = usize::try_from(left).map_or(here, |left| left.min(here));
        let left = left - here as u64;
        self.place = if left == 0 { next } else { rest(left) };
        here
    }

    fn byte(&mut self, byte: u8) -> Result<(), Unclear> {
        if self.has_cr {
            self.has_cr = false;
            return if byte == b'\n' {
                self.end_line()
            } else {
                Err(Unclear)
            };
        }
        match byte {
            b'\r' => {
                self.has_cr = true;
                Ok(())
            }
            b'\n' | 0 => Err(Unclear),
            byte => self.in_line(byte),
        }
    }

    fn in_line(&mut self, byte: u8) -> Result<(), Unclear> {
        let is_blank = matches!(byte, b' ' | b'\t');
        match self.place {
            Place::First(known) if HTTP2.get(known) == Some(&byte) => {
                self.place = Place::First(known + 1);
            }
            Place::First(_) | Place::BeforeHead => self.place = Place::RequestLine,
            Place::FieldName if is_blank => return Err(Unclear),
            Place::FieldName if byte == b':' => self.end_name()?,
            Place::FieldName => self.name.push(byte),
            Place::Length { has_ended } if is_blank => {
                let has_ended = has_ended || self.length.is_some();
                self.place = Place::Length { has_ended };
            }
            Place::Length { has_ended: false } => self.digit(byte, 10)?,
            Place::Length { .. } | Place::ChunkEnd => return Err(Unclear),
            Place::ChunkSize if byte == b';' && self.length.is_some() => {
                self.place = Place::ChunkExtension;
            }
            Place::ChunkSize => self.digit(byte, 16)?,
            Place::TrailerStart if is_blank || byte == b':' => return Err(Unclear),
            Place::TrailerStart => self.place = Place::Trailer,
            _ => {}
        }
        Ok(())
    }

    fn digit(&mut self, byte: u8, radix: u8) -> Result<(), Unclear> {
        let digit = char::from(byte).to_digit(radix.into()).ok_or(Unclear)?;
        let before = self.length.unwrap_or(0).checked_mul(radix.into());
        let length = before.and_then(|before| before.checked_add(digit.into()));
        self.length = Some(length.ok_or(Unclear)?);
        Ok(())
    }

    fn end_name(&mut self) -> Result<(), Unclear> {
        let name = std::mem::take(&mut self.name);
        let has_length = self.length.is_some();
        self.place = match name.text() {
            b"" => return Err(Unclear),
            b"content-length" if has_length || self.is_chunked => return Err(Unclear),
            b"content-length" => Place::Length { has_ended: false },
            b"transfer-encoding" if has_length => return Err(Unclear),
            b"transfer-encoding" => {
                self.is_chunked = true;
                Place::FieldValue
            }
            _ => Place::FieldValue,
        };
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Unclear> {
        self.place = match self.place {
            Place::First(0) | Place::BeforeHead | Place::TrailerStart => Place::BeforeHead,
            Place::First(known) if known + 2 == HTTP2.len() => Place::Opaque,
            Place::First(_) | Place::RequestLine | Place::FieldValue => Place::FieldName,
            Place::Length { .. } if self.length.is_some() => Place::FieldName,
            Place::FieldName if self.name.length == 0 => self.end_head(),
            Place::ChunkSize | Place::ChunkExtension => match self.length.take().ok_or(Unclear)? {
                0 => Place::TrailerStart,
                size => Place::Chunk(size),
            },
            Place::ChunkEnd => Place::ChunkSize,
            Place::Trailer => Place::TrailerStart,
            _ => return Err(Unclear),
        };
        Ok(())
    }

    fn end_head(&mut self) -> Place {
        let length = self.length.take();
        if std::mem::take(&mut self.is_chunked) {
            return Place::ChunkSize;
        }
        length
            .filter(|length| *length > 0)
            .map_or(Place::BeforeHead, Place::Body)
    }
}

impl Place {
    fn is_in_body(self) -> bool {
        matches!(
            self,
            Self::ChunkSize
                | Self::ChunkExtension
                | Self::ChunkEnd
                | Self::TrailerStart
                | Self::Trailer
        )
    }
}

impl Name {
    fn push(&mut self, byte: u8) {
        if let Some(next) = self.bytes.get_mut(self.length) {
            *next = byte.to_ascii_lowercase();
        }
        self.length += 1;
    }

    /// Returns the name, or the beginning of a longer one, which is that of no field here.
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(b"longer")
    }
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
        if this.heads.lock().is_broken() {
            return Poll::Ready(this.heads.lock().end(buffer));
        }
        let before = buffer.filled().len();
        ready!(this.inner.poll_read(cx, buffer))?;
        let mut framing = this.heads.lock();
        let clear = framing.read(&buffer.filled()[before..]);
        buffer.set_filled(before + clear);
        if clear == 0 && framing.is_broken() {
            return Poll::Ready(framing.end(buffer));
        }
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
    const HEAD: &str = "POST / HTTP/1.1\r\n";
    const CHUNKS: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Returns the bytes that pass if these arrive in pieces of this size, and the place after them.
    fn passed(bytes: &str, size: usize) -> (Vec<u8>, Place) {
        let mut framing = Framing::default();
        let mut passed = Vec::new();
        for piece in bytes.as_bytes().chunks(size) {
            let clear = framing.read(piece);
            passed.extend_from_slice(&piece[..clear]);
        }
        (passed, framing.place)
    }

    #[test]
    fn clear_requests_pass_however_their_bytes_arrive() {
        let all = [PLAIN, SIZED, "\r\n", CHUNKED, PLAIN].concat();
        for size in 1..=all.len() {
            let (bytes, place) = passed(&all, size);
            assert_eq!(str::from_utf8(&bytes), Ok(&*all), "{size}");
            assert_eq!(place, Place::BeforeHead, "{size}");
        }
    }

    #[test]
    fn nothing_passes_after_the_first_byte_that_has_two_readings() {
        for (clear, unclear) in [
            ("", "\0"),
            ("", "\nGET / HTTP/1.1"),
            ("GET / HTTP/1.1", "\nhost: a\r\n\r\n"),
            ("GET / HTTP/1.1\r\nhost: a", "\n\r\n"),
            ("GET / HTTP/1.1\r\nhost: a\r", "x\r\n\r\n"),
            ("GET / HTTP/1.1\r\nhost: a\r\n", " b\r\n\r\n"),
            ("GET / HTTP/1.1\r\nhost", " : a\r\n\r\n"),
            ("GET / HTTP/1.1\r\n", ": a\r\n\r\n"),
            ("GET / HTTP/1.1\r\nhost\r", "\n\r\n"),
        ] {
            for size in 1..=clear.len() + unclear.len() {
                let (bytes, place) = passed(&[clear, unclear].concat(), size);
                assert_eq!(str::from_utf8(&bytes), Ok(clear), "{size}");
                assert_eq!(place, Place::Broken { is_in_body: false });
            }
        }
        for fields in [
            "Content-Length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            "content-length: 3\r\nCONTENT-LENGTH: 3\r\n\r\n",
            "content-length: 3, 3\r\n\r\n",
            "content-length: 3 3\r\n\r\n",
            "content-length: +3\r\n\r\n",
            "content-length: 0x3\r\n\r\n",
            "content-length: \r\n\r\n",
            "content-length: 18446744073709551616\r\n\r\n",
        ] {
            let place = passed(&[HEAD, fields].concat(), 7).1;
            assert_eq!(place, Place::Broken { is_in_body: false }, "{fields}");
        }
    }

    #[test]
    fn a_body_that_two_servers_end_at_two_places_breaks_off() {
        for (clear, unclear) in [
            ("", "x\r\n"),
            ("", " 0\r\n\r\n"),
            ("\r", "\n\r\n"),
            ("0;a", "\n\r\n"),
            ("0;\r", "X\r\n\r\n"),
            ("0\r\n", "\n"),
            ("0\r\nx: 1", "\n\r\n"),
            ("0\r\n", " x: 1\r\n\r\n"),
            ("1\r\na", "b\r\n"),
            ("1\r\na", "\n0\r\n\r\n"),
            ("1000000000000000", "0\r\n"),
        ] {
            for size in 1..=CHUNKS.len() {
                let (bytes, place) = passed(&[CHUNKS, clear, unclear].concat(), size);
                let expected = [CHUNKS, clear].concat();
                assert_eq!(str::from_utf8(&bytes), Ok(&*expected), "{size}");
                assert_eq!(place, Place::Broken { is_in_body: true }, "{unclear:?}");
            }
        }
    }

    #[test]
    fn other_protocols_are_left_alone() {
        for size in 1..20 {
            let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\n";
            assert_eq!(
                passed(preface, size),
                (preface.as_bytes().to_vec(), Place::Opaque)
            );
        }
        assert_eq!(passed("PRI / HTTP/1.1\r\n\r\n", 3).1, Place::BeforeHead);
        let heads = Heads::default();
        heads.lock().read(PLAIN.as_bytes());
        heads.upgrade();
        assert_eq!(heads.lock().read(b"\x81\x85\n\n"), 4);
    }
}

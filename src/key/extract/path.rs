//! The paths that servers may read in the target of a request.

use std::borrow::Cow;

use super::Head;

/// The most readings of a path that are looked at, and the longest path of which there are several.
const MOST_READINGS: usize = 64;
const LONGEST: usize = 2_048;

impl<'a> Head<'a> {
    /// Returns the path of the target in its normal form: `/admin` for `/%61dmin`, `/x/../admin` and `//admin`.
    ///
    /// - A letter, a digit, `-`, `.`, `_` or `~` that is written as `%XX` is written as itself (RFC 3986, section 6.2.2.2).
    /// - The segments `.` and `..` are resolved (RFC 3986, section 5.2.4).
    /// - Of several `/` in a row, one is left, as many servers do.
    ///
    /// Some servers take these for one path, and others do not. A limit by path has to look at
    /// [all readings](Self::any_reading). It allocates only if the two differ.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::key::Head;
    ///
    /// let request = Request::get("/x/..//%61dmin/%2F?q").body(())?;
    /// let head = Head::of(&request);
    /// assert_eq!(head.normal_path(), "/admin/%2F");
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn normal_path(&self) -> Cow<'a, str> {
        normal_path(self.path())
    }

    /// Returns the path if all servers read it as it is written, for an exemption by path. An upstream may serve
    /// `/health/..%2fapi` as `/api`.
    ///
    /// Such a path has no empty segment before its end, none of dots alone, and no character but letters, digits and
    /// `-._~!$&'()*+,=:@`. An escape (`%XX`) stands for a letter, a digit, a space, `-`, `_` or `~`.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::{RateLimitLayer, key::Head};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .allow(|head| head.plain_path().is_some_and(|path| path.starts_with("/health/")));
    ///
    /// let request = Request::get("/health/..%2fapi").body(())?;
    /// assert_eq!(Head::of(&request).plain_path(), None);
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn plain_path(&self) -> Option<&'a str> {
        Some(self.path()).filter(|path| is_plain(path))
    }

    /// Returns whether this holds for any path that a server, or several in a row, may read in the target, for a limit by
    /// path: the path as it was sent, its [normal form](Self::normal_path), and those in which escapes are decoded once or
    /// several times, `\` is `/`, parameters (`;…`) are cut off, and the path ends at a NUL, `?` or `#` that was
    /// escaped.
    ///
    /// A path with more than 64 readings, or with several and more than 2,048 bytes, may be read as any path: the answer
    /// is `true`. It allocates only if there are several readings.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::{Policy, TokenBucket, key, key::Head};
    ///
    /// let is_api = |head: &Head<'_>| head.any_reading(|path| path.starts_with("/api"));
    /// let policy = Policy::new("api", TokenBucket::per_second(5)).key(key::client_ip()).when(is_api);
    ///
    /// let request = Request::get("/health/..%2fapi").body(())?;
    /// assert!(is_api(&Head::of(&request)));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn any_reading(&self, holds: impl FnMut(&str) -> bool) -> bool {
        any_reading(self.path(), holds)
    }

    /// Returns whether every server reads the path as it was sent, and compares it so.
    pub fn has_one_reading(&self) -> bool {
        has_one_reading(self.path())
    }
}

fn has_one_reading(path: &str) -> bool {
    is_plain(path) && !path.contains('%')
}

/// See [`Head::any_reading`].
fn any_reading(path: &str, mut holds: impl FnMut(&str) -> bool) -> bool {
    if holds(path) {
        return true;
    }
    if has_one_reading(path) {
        return false;
    }
    match readings(path) {
        Some(readings) => readings.iter().any(|reading| holds(reading)),
        None => true,
    }
}

/// See [`Head::plain_path`].
pub(crate) fn is_plain(path: &str) -> bool {
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    let mut segments = path.split('/');
    let last = segments.next_back().unwrap_or_default();
    segments.all(is_plain_segment) && (last.is_empty() || is_plain_segment(last))
}

fn is_plain_segment(segment: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-._~!$&'()*+,=:@".contains(letter);
    let is_harmless = |escaped: u8| {
        !escaped.is_ascii() || escaped.is_ascii_alphanumeric() || b" -_~".contains(&escaped)
    };
    let mut pieces = segment.split('%');
    let written = pieces.next().unwrap_or_default();
    let is_written_so = written.chars().all(is_plain)
        && pieces.all(|piece| {
            let rest = piece.get(2..).unwrap_or_default();
            escaped(piece).is_some_and(is_harmless) && rest.chars().all(is_plain)
        });
    let decoded = decode(segment);
    is_written_so
        // Other forms of `/` are no letters, and neither are bytes that are no text.
        && decoded.chars().all(|letter| is_plain(letter) || letter == ' ')
        // Some servers leave out dots and spaces at the end.
        && decoded.chars().any(|letter| letter != '.' && letter != ' ')
}

/// Returns all paths that servers may read, or `None` if there are too many.
fn readings(path: &str) -> Option<Vec<String>> {
    const STEPS: [fn(&str) -> Cow<'_, str>; 8] = [
        normal_path,
        decode,
        |path| path.replace('\\', "/").into(),
        without_parameters,
        without_empty_segments,
        without_dots,
        |path| path.split('\0').next().unwrap_or_default().into(),
        |path| path.split(['?', '#']).next().unwrap_or_default().into(),
    ];
    if path.len() > LONGEST {
        return None;
    }
    let mut readings = vec![path.to_owned()];
    let mut next = 0;
    // Servers stand one behind the other, and each reads what the one before it has made.
    while let Some(reading) = readings.get(next).cloned() {
        for step in STEPS {
            let reading = step(&reading);
            if !readings.iter().any(|known| *known == reading) {
                readings.push(reading.into_owned());
            }
        }
        if readings.len() > MOST_READINGS {
            return None;
        }
        next += 1;
    }
    Some(readings)
}

/// Decodes all escapes once.
fn decode(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut pieces = path.split('%');
    let mut decoded = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match escaped(piece) {
            Some(byte) => {
                decoded.push(byte);
                decoded.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => decoded.extend([b"%", piece.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned().into()
}

/// Returns the byte that the two digits after a `%` stand for.
fn escaped(digits: &str) -> Option<u8> {
    let digits = digits.get(..2)?;
    let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = u8::from_str_radix(digits, 16).ok();
    byte.filter(|_| is_hexadecimal)
}

/// `/a/b` for `/a;x=1/b;y`, as servers of Java read it.
fn without_parameters(path: &str) -> Cow<'_, str> {
    let segments = path.split('/');
    let names: Vec<&str> = segments
        .map(|segment| segment.split(';').next().unwrap_or_default())
        .collect();
    names.join("/").into()
}

/// `/a/b` for `//a//b`.
fn without_empty_segments(path: &str) -> Cow<'_, str> {
    let mut left = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter != '/' || !left.ends_with('/') {
            left.push(letter);
        }
    }
    left.into()
}

/// `/a/b` for `/a//../b`: an empty segment is one (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> Cow<'_, str> {
    resolve(path, |_| true)
}

/// Returns the normal form of a path: see [`Head::normal_path`].
pub fn normal_path(path: &str) -> Cow<'_, str> {
    let pairs = path.as_bytes().windows(2);
    let may_differ = |pair: &[u8]| pair[0] == b'%' || matches!(pair, b"//" | b"/.");
    if !path.starts_with('/') || !pairs.into_iter().any(may_differ) {
        return Cow::Borrowed(path);
    }
    let decoded = without_needless_escapes(path);
    resolve(&decoded, |segment| !segment.is_empty())
}

/// Resolves `.` and `..` among the segments of which this holds, and leaves the others out.
fn resolve(path: &str, counts: impl Fn(&str) -> bool) -> Cow<'static, str> {
    let mut segments: Vec<&str> = Vec::new();
    let mut is_directory = false;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        is_directory = matches!(segment, "" | "." | "..");
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment if counts(segment) => segments.push(segment),
            _ => {}
        }
    }
    let mut resolved = String::with_capacity(path.len() + 1);
    for segment in &segments {
        resolved.push('/');
        resolved.push_str(segment);
    }
    if resolved.is_empty() || (is_directory && !resolved.ends_with('/')) {
        resolved.push('/');
    }
    Cow::Owned(resolved)
}

fn without_needless_escapes(path: &str) -> String {
    let is_unreserved = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let mut pieces = path.split('%');
    let mut decoded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some(byte) = escaped(piece).filter(is_unreserved) {
            decoded.push(char::from(byte));
            decoded.push_str(&piece[2..]);
        } else {
            decoded.push('%');
            decoded.push_str(piece);
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_its_normal_form_is_borrowed() {
        for path in ["/", "/admin", "/admin/", "/a.b/c", "/a/b..", "*", ""] {
            assert!(
                matches!(normal_path(path), Cow::Borrowed(same) if same == path),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_is_plain_if_every_server_reads_it_as_it_is_written() {
        for plain in [
            "/",
            "/health",
            "/health/",
            "/health/a.b/..c/v1:x",
            "/files/a%20b/%c3%a4",
            "/bäume/x%2Dy",
            "/shop.Cart/Add",
        ] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "",
            "*",
            "health",
            "//health",
            "/health//x",
            "/health/./x",
            "/health/../api",
            "/health/.../api",
            "/health/%2e%2e/api",
            "/health/..%20/api",
            "/health/..%2fapi",
            "/health/..%5capi",
            "/health/..\\api",
            "/health/..;/api",
            "/health/%252e%252e/api",
            "/health/x%00",
            "/health/%c0%ae%c0%ae/api",
            "/health/..%ef%bc%8fapi",
            "/health/%3f",
            "/health/%",
            "/health/%u002e",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn a_path_has_the_readings_of_all_servers() {
        for path in [
            "/api",
            "/health/..%2fapi",
            "/health/..%2Fapi",
            "/health/%2e%2e%2fapi",
            "/health/..%5capi",
            "/health/..\\api",
            "/health/..;x=1/api",
            "/health/..%3bx/api",
            "/api;x",
            "/api%3bx",
            "/health/%252e%252e%252fapi",
            "/health/%25252e./api",
            "/%61pi",
            "//api",
            "/api%00.png",
            "/api%3f.png",
            "/api%23",
            "/x//../api",
            "/x//../../api",
            "/x;/%2e%2e\\%61pi%00;y",
        ] {
            assert!(any_reading(path, |path| path == "/api"), "{path}");
        }
        for path in ["/", "/health/", "/health/api", "/apis", "/x%2fapi", "*", ""] {
            assert!(!any_reading(path, |path| path == "/api"), "{path}");
        }
        // A server that keeps empty segments.
        assert!(any_reading("/x//../api", |path| path == "/x/api"));
        let long = format!("/{}%2e", "a".repeat(LONGEST));
        assert!(any_reading(&long, |_| false));
        let many = "/a;%5c%255c//../%00;b%3f\\c/..;/".repeat(20);
        assert!(any_reading(&many, |_| false));
    }

    #[test]
    fn every_spelling_of_a_path_has_one_normal_form() {
        for (path, expected) in [
            ("/%61dmin", "/admin"),
            ("/%41dmin", "/Admin"),
            ("//admin", "/admin"),
            ("/admin//", "/admin/"),
            ("/./admin", "/admin"),
            ("/x/../admin", "/admin"),
            ("/x/%2e%2E/admin", "/admin"),
            ("/../../admin", "/admin"),
            ("/admin/.", "/admin/"),
            ("/admin/x/..", "/admin/"),
            ("/..", "/"),
            ("//", "/"),
            ("/.well-known", "/.well-known"),
            // These say something else.
            ("/a%2Fb", "/a%2Fb"),
            ("/%3Fq", "/%3Fq"),
            ("/%", "/%"),
            ("/%6", "/%6"),
            ("/%+1x", "/%+1x"),
            ("/%zz%61", "/%zza"),
            ("/%c3%a4", "/%c3%a4"),
            ("/ä%", "/ä%"),
        ] {
            assert_eq!(normal_path(path), expected, "{path}");
            assert_eq!(normal_path(&normal_path(path)), expected, "{path} twice");
        }
    }
}

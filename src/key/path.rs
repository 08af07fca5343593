use std::borrow::Cow;

use super::Head;

impl<'a> Head<'a> {
    /// Returns the path of the target in its normal form: `/admin` for `/%61dmin`, `/x/../admin` and `//admin`.
    ///
    /// - A letter, a digit, `-`, `.`, `_` or `~` that is written as `%XX` is written as itself (RFC 3986, section 6.2.2.2).
    /// - The segments `.` and `..` are resolved (RFC 3986, section 5.2.4).
    /// - Of several `/` in a row, one is left, as many servers do.
    ///
    /// Some servers take these for one path, and others do not. A limit by path has to look at both forms. It allocates only
    /// if the two differ.
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
}

/// Returns the normal form of a path: see [`Head::normal_path`].
pub(crate) fn normal_path(path: &str) -> Cow<'_, str> {
    let pairs = path.as_bytes().windows(2);
    let may_differ = |pair: &[u8]| pair[0] == b'%' || matches!(pair, b"//" | b"/.");
    if !path.starts_with('/') || !pairs.into_iter().any(may_differ) {
        return Cow::Borrowed(path);
    }
    let decoded = without_needless_escapes(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut is_directory = false;
    for segment in decoded.split('/').skip(1) {
        is_directory = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_directory || normal.is_empty() {
        normal.push('/');
    }
    Cow::Owned(normal)
}

fn without_needless_escapes(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        decoded.push_str(before);
        if let Some(plain) = unreserved(escape) {
            decoded.push(plain);
            rest = &escape[3..];
        } else {
            decoded.push('%');
            rest = &escape[1..];
        }
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the character that is escaped at the beginning of this text, if it needs no escape.
fn unreserved(text: &str) -> Option<char> {
    let digits = text.get(1..3)?;
    let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = u8::from_str_radix(digits, 16)
        .ok()
        .filter(|_| is_hexadecimal)?;
    let plain = char::from(byte);
    (plain.is_ascii_alphanumeric() || matches!(plain, '-' | '.' | '_' | '~')).then_some(plain)
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

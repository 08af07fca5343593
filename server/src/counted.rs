//! What is counted is what the upstream reads.
//!
//! Of a field that stands twice, the limits read the first, and an upstream may read the other. Some upstreams take one name
//! for another: CGI reads `_` and `-` alike, and PHP `.` and `_`. So a client could send an exhausted token behind another
//! one that is counted.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use tower_ratelimit_config::Config;

use crate::fields::{self, KEPT, OF_THE_CONNECTION};
use crate::head::{Refusal, bad};

/// The fields of requests that the limits read.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    headers: Arc<[HeaderName]>,
    cookies: Arc<[String]>,
    query_fields: Arc<[String]>,
}

impl Counted {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            headers: config.headers(),
            cookies: config.cookies(),
            query_fields: config.query_fields(),
        }
    }

    /// Returns whether the limits read this header.
    pub(crate) fn reads(&self, name: &HeaderName) -> bool {
        self.headers.contains(name)
    }

    /// Returns whether the limits read one value of this header, of which a client may send two.
    pub(crate) fn reads_one(&self, name: &HeaderName) -> bool {
        self.reads(name) && !fields::is_forwarding(name.as_str())
    }

    /// Leaves in a request that is forwarded what is counted. What cannot be left out unnoticed is refused.
    ///
    /// A header or a query field that stands twice is refused: the upstream gets both as they were sent, or another request.
    /// A cookie may stand twice in the requests of a browser, for two paths, so the first stays.
    pub(crate) fn leave(&self, parts: &mut Parts) -> Result<(), Refusal> {
        self.check(parts)?;
        let passes = |name: &&HeaderName| self.passes_for_another(name);
        let found: Vec<HeaderName> = parts.headers.keys().filter(passes).cloned().collect();
        for name in found {
            parts.headers.remove(name);
        }
        for cookie in &*self.cookies {
            leave_one(&mut parts.headers, cookie);
        }
        Ok(())
    }

    /// Refuses a request that another proxy forwards as it is, if the upstream may read another field than the limits.
    pub(crate) fn refuse(&self, parts: &Parts) -> Result<(), Refusal> {
        self.check(parts)?;
        let has_lookalike = parts.headers.keys().any(|name| {
            !self.reads(name)
                && self
                    .headers
                    .iter()
                    .any(|other| alike(name.as_str(), other.as_str()))
        });
        if has_lookalike {
            return Err(bad("a field passes for one by which requests are counted"));
        }
        let mut cookies = self.cookies.iter();
        if cookies.any(|cookie| of_name(&parts.headers, cookie).count() > 1) {
            return Err(bad("a cookie by which requests are counted stands once"));
        }
        Ok(())
    }

    fn check(&self, parts: &Parts) -> Result<(), Refusal> {
        let one_alone =
            |name: &&HeaderName| *name != COOKIE && !fields::is_forwarding(name.as_str());
        let mut names = self
            .headers
            .iter()
            .chain([&AUTHORIZATION])
            .filter(one_alone);
        if names.any(|name| parts.headers.get_all(name).iter().nth(1).is_some()) {
            return Err(bad("a header by which requests are counted stands once"));
        }
        let query = parts.uri.query().unwrap_or_default();
        if self.query_fields.iter().all(|name| is_clear(query, name)) {
            return Ok(());
        }
        Err(bad(
            "a query field by which requests are counted stands once",
        ))
    }

    /// Returns whether an upstream may take this header for one that the limits read, or that says who asks for what.
    fn passes_for_another(&self, name: &HeaderName) -> bool {
        let is_alike = |known: &HeaderName| known != name && alike(name.as_str(), known.as_str());
        if self.reads(name) {
            return false;
        }
        // Of two names with no signs but `-`, none passes for the other.
        let has_signs = || name.as_str().bytes().any(|byte| folded(byte) != byte);
        let may_be_forwarding = || {
            let dashed: Vec<u8> = name.as_str().bytes().map(folded).collect();
            str::from_utf8(&dashed).is_ok_and(fields::is_forwarding)
        };
        self.headers.iter().any(is_alike)
            || has_signs()
                && (KEPT.iter().any(is_alike)
                    || OF_THE_CONNECTION.iter().any(is_alike)
                    || !fields::is_forwarding(name.as_str()) && may_be_forwarding())
    }
}

/// Returns a byte of a name without the differences that some upstreams do not see.
fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() || !byte.is_ascii() {
        byte.to_ascii_lowercase()
    } else {
        b'-'
    }
}

fn alike(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().map(folded).eq(other.bytes().map(folded))
}

/// Returns whether each server reads the same value of this field in a query. Some end a field at `;` too, and some take
/// `token[]` for `token`.
fn is_clear(query: &str, name: &str) -> bool {
    let mut seen = 0;
    query.split('&').all(|pair| {
        let fields = pair.split(';');
        let named = fields.map(name_in_query).filter(|found| {
            let found = found.trim_start();
            let found = found.split('[').next().unwrap_or_default();
            alike(found, name)
        });
        let named: Vec<Cow<'_, str>> = named.collect();
        seen += named.len();
        seen <= 1
            && (named.is_empty() || !pair.contains(';'))
            && named.iter().all(|found| found == name)
    })
}

fn name_in_query(field: &str) -> Cow<'_, str> {
    let name = field.split('=').next().unwrap_or_default();
    match percent_decode_str(name).decode_utf8_lossy() {
        decoded if decoded.contains('+') => decoded.replace('+', " ").into(),
        decoded => decoded,
    }
}

/// Returns the cookies of this name, or of one that passes for it.
fn of_name<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter(move |pair| is_named(pair, name))
}

fn is_named(pair: &[u8], name: &str) -> bool {
    str::from_utf8(name_of(pair)).is_ok_and(|found| {
        let found = percent_decode_str(found).decode_utf8_lossy();
        alike(&found, name)
    })
}

fn name_of(pair: &[u8]) -> &[u8] {
    let name = pair.split(|byte| *byte == b'=').next();
    name.unwrap_or_default().trim_ascii()
}

/// Leaves one cookie of those that a server may read under this name: the first, which is counted.
fn leave_one(headers: &mut HeaderMap, name: &str) {
    if of_name(headers, name).all(|pair| name_of(pair) == name.as_bytes())
        && of_name(headers, name).count() <= 1
    {
        return;
    }
    let mut is_there = false;
    let lines = headers.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let left: Vec<&[u8]> = pairs
        .filter(|pair| {
            if !is_named(pair, name) {
                return true;
            }
            let is_first = !is_there && name_of(pair) == name.as_bytes() && pair.contains(&b'=');
            is_there |= is_first;
            is_first
        })
        .map(<[u8]>::trim_ascii)
        .collect();
    match HeaderValue::from_bytes(&left.join(&b"; "[..])) {
        Ok(left) if !left.is_empty() => drop(headers.insert(COOKIE, left)),
        _ => drop(headers.remove(COOKIE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn counted() -> Counted {
        let names = ["x-api-key", "x_tenant", "cookie"];
        Counted {
            headers: names.into_iter().map(HeaderName::from_static).collect(),
            cookies: Arc::new(["sid".to_owned()]),
            query_fields: Arc::new(["token".to_owned(), "my_key".to_owned()]),
        }
    }

    fn parts(target: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::get(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_field_that_passes_for_another_one_is_removed() {
        let fields = [
            ("host", "a"),
            ("x_api_key", "forged"),
            ("x-api_key", "forged"),
            ("x.api.key", "forged"),
            ("x-tenant", "forged"),
            ("content_type", "forged"),
            ("transfer_encoding", "chunked"),
            ("x_original_url", "/admin"),
            ("x_forwarded_for", "forged"),
            ("x_real_ip", "forged"),
            ("x_request_id", "own"),
            ("x-api-key", "own"),
            ("x_tenant", "own"),
        ];
        let mut parts = parts("/", &fields);
        counted().refuse(&parts).unwrap_err();
        counted().leave(&mut parts).unwrap();
        let mut names: Vec<&str> = parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["host", "x-api-key", "x_request_id", "x_tenant"]);
    }

    #[test]
    fn a_counted_field_stands_once() {
        for fields in [
            &[("x-api-key", "a"), ("x-api-key", "b")],
            &[("x_tenant", "a"), ("x_tenant", "a")],
            &[("authorization", "a"), ("authorization", "b")],
        ] {
            counted().leave(&mut parts("/", fields)).unwrap_err();
            counted().refuse(&parts("/", fields)).unwrap_err();
        }
        let others = [("x-own", "a"), ("x-own", "b"), ("x-api-key", "a")];
        counted().leave(&mut parts("/", &others)).unwrap();
        counted().refuse(&parts("/", &others)).unwrap();
    }

    #[test]
    fn a_counted_query_field_has_one_value_for_all_servers() {
        for query in [
            "token=a&token=b",
            "token=a&tok%65n=b",
            "token=a;token=b",
            "token=a;x",
            "x;token=a",
            "token=a&token[]=b",
            "token%5b0%5d=b",
            "Token=a",
            "+token=a",
            "my.key=a",
            "token&token",
        ] {
            let target = format!("/?{query}");
            counted().leave(&mut parts(&target, &[])).expect_err(query);
            counted().refuse(&parts(&target, &[])).expect_err(query);
        }
        for query in [
            "",
            "token=a",
            "a=1&a=2&token=b;c".trim_end_matches(";c"),
            "a;b&tok%65n=c&my_key=d",
            "tokens=1&tokens=2",
        ] {
            counted()
                .leave(&mut parts(&format!("/?{query}"), &[]))
                .expect(query);
        }
    }

    #[test]
    fn of_a_counted_cookie_the_first_is_left() {
        for (sent, left) in [
            ("sid=a; x=1; sid=b", "sid=a; x=1"),
            ("x=1;sid=a;SID=b; s%69d=c", "x=1; sid=a"),
            ("SID=b; x=1; sid=a", "x=1; sid=a"),
            ("sid; sid=a", "sid=a"),
            ("x=1; x=2; sid=a", "x=1; x=2; sid=a"),
        ] {
            let mut parts = parts("/", &[("cookie", sent)]);
            let is_clear = sent == left;
            assert_eq!(counted().refuse(&parts).is_ok(), is_clear, "{sent}");
            counted().leave(&mut parts).unwrap();
            assert_eq!(parts.headers[COOKIE], left);
        }
    }
}

//! Gives a head one reading, before the limits see it.
//!
//! The limits and the upstream have to read the same request. The gateway refuses a head that two servers
//! could read in two ways, and normalizes what HTTP lets a client write in several ways.

use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Method, StatusCode, Uri, Version};

/// The reason why a request is not served.
pub(crate) type Refusal = (StatusCode, &'static str);

pub(crate) const fn bad(why: &'static str) -> Refusal {
    (StatusCode::BAD_REQUEST, why)
}

/// Leaves one path, one `Host` and one `Cookie`.
pub(crate) fn give_one_reading(parts: &mut Parts) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "this is no forward proxy"));
    }
    transfer_coding(parts)?;
    if parts
        .headers
        .get_all(CONTENT_LENGTH)
        .iter()
        .nth(1)
        .is_some()
    {
        // The reader of HTTP/1 has refused it. HTTP/2 lets two equal ones pass.
        return Err(bad("a request has one Content-Length"));
    }
    host(parts)?;
    target(parts)?;
    join_cookies(&mut parts.headers);
    Ok(())
}

/// hyper decodes `chunked` only. A body in another coding would reach the upstream without the name of that coding.
fn transfer_coding(parts: &Parts) -> Result<(), Refusal> {
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).into_iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_chunked(coding) => Ok(()),
        _ => Err((
            StatusCode::NOT_IMPLEMENTED,
            "the one transfer coding is chunked",
        )),
    }
}

/// The host of the target comes before `Host`, as RFC 9112 §3.2.2 says. HTTP/2 has it in the target always.
fn host(parts: &mut Parts) -> Result<(), Refusal> {
    let is_valid = |host: &str| match host.parse::<Authority>() {
        Ok(authority) => !authority.as_str().contains('@'),
        Err(_) => host.is_empty(),
    };
    let mut hosts = parts.headers.get_all(HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => return Err(bad("a request has one Host")),
        (Some(host), None) if !host.to_str().is_ok_and(is_valid) => {
            return Err(bad("Host is no host"));
        }
        // A client of HTTP/1.0 may know no host.
        (None, _) if parts.version > Version::HTTP_10 && parts.uri.authority().is_none() => {
            return Err(bad("a request has a Host"));
        }
        _ => {}
    }
    if let Some(authority) = parts.uri.authority() {
        let host = Some(authority.as_str()).filter(|host| is_valid(host));
        let host = host.and_then(|host| HeaderValue::from_str(host).ok());
        let host = host.ok_or(bad("the host of the target is no host"))?;
        parts.headers.insert(HOST, host);
    }
    Ok(())
}

/// Leaves the path and the query of a target.
fn target(parts: &mut Parts) -> Result<(), Refusal> {
    let is_of_the_server = parts.method == Method::OPTIONS && parts.uri.path() == "*";
    if !parts.uri.path().starts_with('/') && !is_of_the_server {
        return Err(bad("the target has no path"));
    }
    if parts.uri.authority().is_some() {
        let path = parts.uri.path_and_query().cloned();
        parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    Ok(())
}

/// HTTP/2 may send each cookie in a field of its own, and HTTP/1.1 has one field (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .into_iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn read(target: &str, version: Version, fields: &[(&str, &str)]) -> Result<Parts, StatusCode> {
        let mut request = Request::get(target).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        match give_one_reading(&mut parts) {
            Ok(()) => Ok(parts),
            Err((status, _)) => Err(status),
        }
    }

    #[test]
    fn every_form_of_a_target_leaves_its_path_and_its_host() {
        for (target, sent, version, uri, host) in [
            ("/a?b", Some("one"), Version::HTTP_11, "/a?b", Some("one")),
            (
                "http://two/a?b",
                Some("one"),
                Version::HTTP_11,
                "/a?b",
                Some("two"),
            ),
            (
                "http://two",
                Some("one"),
                Version::HTTP_11,
                "/",
                Some("two"),
            ),
            ("http://two/a", None, Version::HTTP_2, "/a", Some("two")),
            (
                "http://two/a",
                Some("one"),
                Version::HTTP_2,
                "/a",
                Some("two"),
            ),
            ("/a", Some(""), Version::HTTP_11, "/a", Some("")),
            ("/a", None, Version::HTTP_10, "/a", None),
        ] {
            let fields: Vec<_> = sent.map(|host| ("host", host)).into_iter().collect();
            let parts = read(target, version, &fields).unwrap();
            assert_eq!(parts.uri, uri, "{target}");
            let seen = parts.headers.get(HOST).map(|host| host.to_str().unwrap());
            assert_eq!(seen, host, "{target} {sent:?}");
        }
    }

    #[test]
    fn a_head_that_could_be_read_in_two_ways_is_refused() {
        let host = ("host", "a");
        for (target, fields) in [
            ("/", &[][..]),
            (
                "/",
                &[host, ("content-length", "1"), ("content-length", "1")],
            ),
            ("/", &[host, ("host", "b")]),
            ("/", &[host, host]),
            ("/", &[("host", "a b")]),
            ("/", &[("host", "user@a")]),
            ("http://user@a/", &[host]),
            ("a:80", &[host]),
            ("*", &[host]),
        ] {
            let refused = read(target, Version::HTTP_11, fields);
            assert_eq!(refused.unwrap_err(), 400, "{target} {fields:?}");
        }
        let unnamed = read("/", Version::HTTP_2, &[]);
        assert_eq!(unnamed.unwrap_err(), 400);
        for codings in [
            &["gzip, chunked"][..],
            &["gzip", "chunked"],
            &["chunked", "chunked"],
        ] {
            let mut fields = vec![host];
            fields.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            let refused = read("/", Version::HTTP_11, &fields);
            assert_eq!(refused.unwrap_err(), 501, "{fields:?}");
        }
        let chunked = [host, ("transfer-encoding", "Chunked")];
        assert!(read("/", Version::HTTP_11, &chunked).is_ok());
    }

    #[test]
    fn cookies_of_several_fields_are_one_field() {
        let fields = [("host", "a"), ("cookie", "a=1"), ("cookie", "b=2; c=3")];
        let parts = read("/", Version::HTTP_2, &fields).unwrap();
        let cookies: Vec<_> = parts.headers.get_all(COOKIE).into_iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }
}

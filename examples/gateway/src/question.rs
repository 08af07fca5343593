//! Answers whether a request is within its limits, for a proxy that forwards it by itself.

use std::convert::Infallible;

use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::{Body, fields, told};

type Asking = BoxCloneSyncService<Request<()>, Response<Body>, Infallible>;

/// The headers with the method of a request: nginx is configured to use the first, and Caddy and Traefik use
/// the other.
const METHODS: [&str; 2] = ["x-original-method", "x-forwarded-method"];

const URIS: [&str; 3] = ["x-original-uri", "x-original-url", "x-forwarded-uri"];

/// A malformed header about the original request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unusable;

/// Answers 200 within the limits, and the refusal beyond them. With `?refuse=403`, each refusal is a 403.
pub(crate) async fn answer(asking: Asking, request: Request<()>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let is_for_nginx = query.split('&').any(|pair| pair == "refuse=403");
    let (mut parts, ()) = request.into_parts();
    if original(&mut parts) == Err(Unusable) {
        let text =
            "the method and the URI of the original request are unusable, or contradict each other";
        return told(StatusCode::BAD_REQUEST, text);
    }
    let mut response = match asking.oneshot(Request::from_parts(parts, ())).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if is_for_nginx && !response.status().is_success() {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Makes the head of the original request from the head of the question.
fn original(parts: &mut Parts) -> Result<(), Unusable> {
    let Parts {
        method,
        uri,
        headers,
        ..
    } = parts;
    if let Some(told) = told_in(headers, &METHODS)? {
        *method = Method::from_bytes(told.as_bytes()).map_err(|_| Unusable)?;
    }
    *uri = match told_in(headers, &URIS)? {
        Some(told) => {
            let uri = Uri::try_from(told.as_bytes()).map_err(|_| Unusable)?;
            let path = uri.path_and_query().cloned();
            Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        }
        None => Uri::from_static("/"),
    };
    if fields::is_grpc(headers) {
        // A refusal of gRPC has status 200, which a proxy would take for a yes.
        headers.remove(CONTENT_TYPE);
    }
    let of_the_question = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE];
    for name in of_the_question {
        headers.remove(name);
    }
    Ok(())
}

/// Returns the value of one of these headers. A proxy sets one of them, and a client may have sent another:
/// two different values are an error.
fn told_in(headers: &mut HeaderMap, names: &[&str]) -> Result<Option<HeaderValue>, Unusable> {
    let mut told: Option<HeaderValue> = None;
    for name in names {
        for value in headers.get_all(*name) {
            match &told {
                Some(told) if told != value => return Err(Unusable),
                _ => told = Some(value.clone()),
            }
        }
    }
    for name in names {
        headers.remove(*name);
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fields: &[(&str, &str)]) -> Result<(Method, String), Unusable> {
        let mut request = Request::get("/_limit/check?refuse=403");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        original(&mut parts)?;
        Ok((parts.method, parts.uri.to_string()))
    }

    #[test]
    fn the_original_request_is_read_as_each_proxy_tells_it() {
        for (fields, method, uri) in [
            (
                [("x-original-method", "POST"), ("x-original-uri", "/a?b=c")],
                "POST",
                "/a?b=c",
            ),
            (
                [("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/a")],
                "PUT",
                "/a",
            ),
            (
                [
                    ("x-original-url", "https://example.com/a?b"),
                    ("x-other", ""),
                ],
                "GET",
                "/a?b",
            ),
            (
                [("x-original-uri", "http://example.com"), ("x-other", "")],
                "GET",
                "/",
            ),
            ([("x-a", ""), ("x-b", "")], "GET", "/"),
        ] {
            let (asked_method, asked_uri) = asked(&fields).unwrap();
            assert_eq!(
                (asked_method.as_str(), &*asked_uri),
                (method, uri),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn a_client_cannot_tell_another_request_than_its_proxy() {
        for fields in [
            [("x-original-uri", "/dear"), ("x-forwarded-uri", "/cheap")],
            [("x-original-uri", "/dear"), ("x-original-uri", "/cheap")],
            [("x-original-method", "POST"), ("x-forwarded-method", "GET")],
            [("x-original-uri", "/a b"), ("x-other", "")],
            [("x-original-method", "a b"), ("x-other", "")],
        ] {
            assert_eq!(asked(&fields), Err(Unusable), "{fields:?}");
        }
        let both = [("x-original-uri", "/a"), ("x-forwarded-uri", "/a")];
        assert_eq!(asked(&both).unwrap().1, "/a");
    }
}

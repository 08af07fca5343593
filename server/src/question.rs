//! Answers whether a request is within its limits, for a proxy that forwards it by itself.

use std::convert::Infallible;

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_ratelimit::response::AnswerInHttp;

use crate::counted::Counted;
use crate::{Body, full, told};

type Asking = BoxCloneSyncService<Request<()>, Response<Body>, Infallible>;

/// The headers with the method of a request: nginx is configured to use the first, and Caddy and Traefik use
/// the other.
const METHODS: [&str; 2] = ["x-original-method", "x-forwarded-method"];

const URIS: [&str; 3] = ["x-original-uri", "x-original-url", "x-forwarded-uri"];

/// A malformed header about the original request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unusable;

/// A mark in the extensions of a response: the limits have let the request pass.
#[derive(Clone, Copy, Debug)]
struct Passed;

/// Answers a request that is within its limits.
pub(crate) async fn pass(_: Request<()>) -> Result<Response<Body>, Infallible> {
    let mut response = Response::new(full(""));
    response.extensions_mut().insert(Passed);
    Ok(response)
}

/// Returns whether this asks for refusals with status 403, and no other.
pub(crate) fn is_for_nginx(question: &Uri) -> bool {
    let query = question.query().unwrap_or_default();
    question.path() == "/_limit/check" && query.split('&').any(|pair| pair == "refuse=403")
}

/// Answers 200 within the limits, and the refusal beyond them. With `?refuse=403`, each refusal is a 403.
pub(crate) async fn answer(
    asking: Asking,
    request: Request<()>,
    counted: &Counted,
) -> Response<Body> {
    let is_for_nginx = is_for_nginx(request.uri());
    let mut response = ask(asking, request, counted).await;
    // The verdict decides, and not how a response looks: a refusal may have a status of its own.
    let has_passed = response.extensions().get::<Passed>().is_some();
    let is_refusal = response.status().is_client_error() || response.status().is_server_error();
    if has_passed {
        *response.status_mut() = StatusCode::OK;
    } else if is_for_nginx || !is_refusal {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn ask(asking: Asking, request: Request<()>, counted: &Counted) -> Response<Body> {
    let (mut parts, ()) = request.into_parts();
    if original(&mut parts) == Err(Unusable) {
        let text =
            "the method and the URI of the original request are unusable, or contradict each other";
        return told(StatusCode::BAD_REQUEST, text);
    }
    // The proxy forwards the request as it is, whatever is counted.
    if let Err((status, why)) = counted.refuse(&parts) {
        return told(status, why);
    }
    parts.extensions.insert(AnswerInHttp);
    match asking.oneshot(Request::from_parts(parts, ())).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
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

//! Answers whether a request is within its limits, for a proxy that forwards it by itself.

use std::convert::Infallible;

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::RateLimitLayer;
use tower_ratelimit::key::{JsonFields, Unread};
use tower_ratelimit::middleware::ReadJsonLayer;
use tower_ratelimit::response::AnswerInHttp;

use crate::counted::Counted;
use crate::{Body, full, text_response};

pub(crate) type Decider = BoxCloneSyncService<Request<()>, Response<Body>, Infallible>;

/// Returns what answers whether a request is within these limits.
pub(crate) fn decider(layer: &RateLimitLayer) -> Decider {
    let decider = layer.layer(service_fn(pass));
    let decider = decider.map_response(|response| response.map(BodyExt::boxed_unsync));
    BoxCloneSyncService::new(decider)
}

/// The headers with the method of a request: nginx is configured to use the first, and Caddy and Traefik use
/// the other.
const METHODS: [&str; 2] = ["x-original-method", "x-forwarded-method"];

/// The paths of questions. Envoy asks with the original path behind it, and with the original method.
const PATH: &str = "/_limit/check";

const URIS: [&str; 3] = ["x-original-uri", "x-original-url", "x-forwarded-uri"];

/// The header with the host of a request: the `Host` of Traefik is the address of this server.
const HOSTS: [&str; 1] = ["x-forwarded-host"];

/// A malformed header about the original request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unusable;

/// A mark in the extensions of a response: the limits have let the request pass.
#[derive(Clone, Copy, Debug)]
struct Passed;

/// What a proxy sends of the body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentBody {
    Nothing,
    Whole(Vec<u8>),
    /// The proxy has cut the rest off.
    Beginning(Vec<u8>),
}

impl SentBody {
    /// Reads the fields of the body, or says why they cannot be read, if the request is refused then.
    pub(crate) fn read(
        &self,
        read: &ReadJsonLayer,
        request: &mut Request<()>,
    ) -> Result<(), Unread> {
        match self {
            Self::Nothing => {
                request.extensions_mut().insert(JsonFields::unknown());
                Ok(())
            }
            Self::Whole(body) => read.read_whole(request, body),
            Self::Beginning(begin) => read.read_beginning(request, begin),
        }
    }
}

/// Answers a request that is within its limits.
async fn pass(_: Request<()>) -> Result<Response<Body>, Infallible> {
    let mut response = Response::new(full(""));
    response.extensions_mut().insert(Passed);
    Ok(response)
}

/// Returns whether this is a question.
pub(crate) fn is_one(question: &Uri) -> bool {
    let path = question.path().strip_prefix(PATH);
    path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether this asks for refusals with status 403, and no other.
pub(crate) fn is_for_nginx(question: &Uri) -> bool {
    let query = question.query().unwrap_or_default();
    question.path() == PATH && query.split('&').any(|pair| pair == "refuse=403")
}

/// Answers 200 within the limits, and the refusal beyond them. With `?refuse=403`, each refusal is a 403.
pub(crate) async fn answer(
    decider: Decider,
    request: Request<()>,
    counted: &Counted,
) -> Response<Body> {
    let is_for_nginx = is_for_nginx(request.uri());
    let (mut parts, ()) = request.into_parts();
    let mut response = match original(&mut parts) {
        Ok(()) => {
            // This proxy does not send the body.
            parts.extensions.insert(JsonFields::unknown());
            decide(decider, Request::from_parts(parts, ()), counted).await
        }
        Err(Unusable) => text_response(
            StatusCode::BAD_REQUEST,
            "the method, the URI or the host of the original request is unusable, or two of them contradict each other",
        ),
    };
    if has_passed(&response) {
        *response.status_mut() = StatusCode::OK;
    } else if is_for_nginx || !is_refusal(response.status()) {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Decides about a request that a proxy forwards by itself, whatever is counted.
pub(crate) async fn decide(
    decider: Decider,
    request: Request<()>,
    counted: &Counted,
) -> Response<Body> {
    let (mut parts, ()) = request.into_parts();
    if let Err((status, why)) = counted.refuse(&parts) {
        return text_response(status, why);
    }
    parts.extensions.insert(AnswerInHttp);
    match decider.oneshot(Request::from_parts(parts, ())).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Returns whether this response lets the request pass. The verdict decides, and not how the response looks: a refusal may
/// have a status of its own.
pub(crate) fn has_passed(response: &Response<Body>) -> bool {
    response.extensions().get::<Passed>().is_some()
}

/// Returns whether a proxy takes this status for a refusal.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Makes the head of the original request from the head of the question.
fn original(parts: &mut Parts) -> Result<(), Unusable> {
    let Parts {
        method,
        uri,
        headers,
        ..
    } = parts;
    if let Some(value) = take_header(headers, &METHODS)? {
        *method = Method::from_bytes(value.as_bytes()).map_err(|_| Unusable)?;
    }
    let uri_header = take_header(headers, &URIS)?;
    let named = uri_header.map(|value| Uri::try_from(value.as_bytes()).map_err(|_| Unusable));
    let named = named.transpose()?.map(|uri| path_of(&uri));
    let prefixed = prefixed(uri)?;
    let host = take_header(headers, &HOSTS)?;
    // Envoy sends `Host` as it was, and what a client has sent beside it.
    if let (Some(host), None) = (host, &prefixed) {
        if !is_host(&host) {
            return Err(Unusable);
        }
        headers.insert(HOST, host);
    }
    *uri = match (named, prefixed) {
        (Some(named), Some(prefixed)) if named != prefixed => return Err(Unusable),
        (named, prefixed) => named
            .or(prefixed)
            .unwrap_or_else(|| PathAndQuery::from_static("/"))
            .into(),
    };
    let of_the_question = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE];
    for name in of_the_question {
        headers.remove(name);
    }
    Ok(())
}

fn is_host(value: &HeaderValue) -> bool {
    let authority = value.to_str().ok().map(str::parse::<Authority>);
    matches!(authority, Some(Ok(host)) if !host.as_str().contains('@'))
}

fn path_of(uri: &Uri) -> PathAndQuery {
    let path = uri.path_and_query().cloned();
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// Returns the path and the query behind the path of questions.
fn prefixed(question: &Uri) -> Result<Option<PathAndQuery>, Unusable> {
    let path = question.path_and_query().map(PathAndQuery::as_str);
    let rest = path.and_then(|path| path.strip_prefix(PATH));
    let rest = rest.filter(|rest| rest.starts_with('/'));
    let path = rest.map(|rest| rest.parse().map_err(|_| Unusable));
    path.transpose()
}

/// Returns the value of one of these headers. A proxy sets one of them, and a client may have sent another:
/// two different values are an error.
fn take_header(headers: &mut HeaderMap, names: &[&str]) -> Result<Option<HeaderValue>, Unusable> {
    let mut found: Option<HeaderValue> = None;
    for name in names {
        for value in headers.get_all(*name) {
            match &found {
                Some(found) if found != value => return Err(Unusable),
                _ => found = Some(value.clone()),
            }
        }
    }
    for name in names {
        headers.remove(*name);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original_of(fields: &[(&str, &str)]) -> Result<(Method, String), Unusable> {
        original_at("/_limit/check?refuse=403", fields)
    }

    fn original_at(target: &str, fields: &[(&str, &str)]) -> Result<(Method, String), Unusable> {
        let mut request = Request::get(target);
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
            let (its_method, its_uri) = original_of(&fields).unwrap();
            assert_eq!(
                (its_method.as_str(), &*its_uri),
                (method, uri),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn the_original_path_may_stand_behind_that_of_the_question() {
        for (target, expected) in [
            ("/_limit/check/a/b?c=d", "/a/b?c=d"),
            ("/_limit/check/", "/"),
            ("/_limit/check//a", "//a"),
            ("/_limit/check/_limit/check", "/_limit/check"),
            ("/_limit/check/a?refuse=403", "/a?refuse=403"),
            ("/_limit/check?a", "/"),
        ] {
            assert!(is_one(&target.parse().unwrap()), "{target}");
            assert_eq!(original_at(target, &[]).unwrap().1, expected, "{target}");
        }
        for target in ["/_limit/checks", "/_limit/checks/a", "/_limit/status"] {
            assert!(!is_one(&target.parse().unwrap()), "{target}");
        }
        let other = [("x-original-uri", "/cheap")];
        assert_eq!(original_at("/_limit/check/dear", &other), Err(Unusable));
        assert_eq!(
            original_at("/_limit/check/cheap", &other).unwrap().1,
            "/cheap"
        );
    }

    #[test]
    fn the_original_host_is_the_forwarded_one_but_behind_the_path_of_envoy() {
        let host = |target: &str, hosts: &[&str]| -> Result<String, Unusable> {
            let mut request = Request::get(target).header("host", "proxy:3000");
            for host in hosts {
                request = request.header("x-forwarded-host", *host);
            }
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            original(&mut parts)?;
            assert!(!parts.headers.contains_key("x-forwarded-host"));
            Ok(parts.headers["host"].to_str().unwrap().to_owned())
        };
        let is = |host: &str| Ok::<_, Unusable>(host.to_owned());
        assert_eq!(host(PATH, &[]), is("proxy:3000"));
        assert_eq!(host(PATH, &["shop:80"]), is("shop:80"));
        assert_eq!(host("/_limit/check/a", &["shop"]), is("proxy:3000"));
        for hosts in [&["a b"][..], &["a@b"], &["a, b"], &[""], &["a", "b"]] {
            assert_eq!(host(PATH, hosts), Err(Unusable), "{hosts:?}");
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
            assert_eq!(original_of(&fields), Err(Unusable), "{fields:?}");
        }
        let both = [("x-original-uri", "/a"), ("x-forwarded-uri", "/a")];
        assert_eq!(original_of(&both).unwrap().1, "/a");
    }
}

//! A small upstream, to try the server with `--sample`.

use std::convert::Infallible;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::{Body, full};

/// Shown for the value of a hidden field.
const HIDDEN: &str = "(hidden)";

/// Answers each request with a description of it, as JSON. Of the header fields for which `hides` returns true, and of the query
/// fields that could hold a credential, it shows the names only.
pub async fn serve(listener: TcpListener, hides: fn(&HeaderName) -> bool) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            let service =
                service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, hides)) });
            // The client has gone.
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(request: &Request<Incoming>, hides: fn(&HeaderName) -> bool) -> Response<Body> {
    let headers: Map<String, Value> = request
        .headers()
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            let shown = if hides(name) { HIDDEN } else { &*value };
            (name.to_string(), json!(shown))
        })
        .collect();
    let arrived = json!({
        "method": request.method().as_str(),
        "uri": without_credentials(request.uri()),
        "headers": headers,
    });
    let mut response = Response::new(full(arrived.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Returns whether a field could hold a credential, by its name.
#[must_use]
pub fn is_credential(name: &HeaderName) -> bool {
    is_of_a_credential(name.as_str())
}

/// A query field may be encoded, and a name that is hidden in vain does no harm.
fn is_of_a_credential(name: &str) -> bool {
    let words = [
        "auth", "cookie", "key", "token", "secret", "password", "session", "%",
    ];
    let name = name.to_ascii_lowercase();
    words.into_iter().any(|word| name.contains(word))
}

fn without_credentials(uri: &Uri) -> String {
    let uri = uri.to_string();
    let Some((path, query)) = uri.split_once('?') else {
        return uri;
    };
    let fields = query.split('&').map(|field| match field.split_once('=') {
        Some((name, _)) if is_of_a_credential(name) => format!("{name}={HIDDEN}"),
        _ => field.to_owned(),
    });
    format!("{path}?{}", fields.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_field_that_could_hold_a_credential_has_no_value() {
        for (uri, expected) in [
            ("/a?api_key=hunter2&b=c", "/a?api_key=(hidden)&b=c"),
            ("/a?Access_Token=hunter2", "/a?Access_Token=(hidden)"),
            ("/a?%6bey=hunter2", "/a?%6bey=(hidden)"),
            ("/a?b&c=d=e", "/a?b&c=d=e"),
            ("/a?", "/a?"),
            ("/a", "/a"),
        ] {
            assert_eq!(without_credentials(&uri.parse().unwrap()), expected);
        }
    }

    #[test]
    fn credentials_are_known_by_the_name_of_their_field() {
        for (name, expected) in [
            ("authorization", true),
            ("proxy-authorization", true),
            ("cookie", true),
            ("x-api-key", true),
            ("x-csrf-token", true),
            ("x-forwarded-for", false),
            ("user-agent", false),
        ] {
            assert_eq!(
                is_credential(&HeaderName::from_static(name)),
                expected,
                "{name}"
            );
        }
    }
}

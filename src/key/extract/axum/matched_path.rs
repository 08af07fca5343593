use axum::extract::{MatchedPath as FromAxum, OriginalUri};

use crate::diagnostics::Diagnostic;
use crate::key::extract::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};

/// The path of the matched axum route, such as `/users/{id}`.
///
/// Requests for paths without a route share one quota. If no router has seen the request (the layer
/// is around the router, instead of inside it through `Router::layer`), the server is not set up to
/// provide the path: the answer is `500 Internal Server Error`, and the log says so once
/// (`TRL007`). axum provides no path inside `nest_service`.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("address", TokenBucket::per_second(5))
///     .key(key::client_ip().and(key::matched_path()));
/// ```
pub fn matched_path() -> Extractor<MatchedPath> {
    Extractor::of(MatchedPath(()))
}

#[derive(Clone, Copy, Debug)]
pub struct MatchedPath(());

const NO_ROUTER: Diagnostic = Diagnostic::new(
    "TRL007",
    "matched path",
    "no router has seen the request, so routes cannot be told apart",
    "put the layer into the router: `Router::new().route(..).layer(limit)`; \
     in a file of limits: `operation = \"path\"` names paths without a router",
);

impl Origin for MatchedPath {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl Typed for MatchedPath {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        match head.extension::<FromAxum>() {
            Some(path) => Ok(path.as_str()),
            // A router sets `OriginalUri` whether or not a route matches.
            None if head.extension::<OriginalUri>().is_some() => Err(Missing::ByClient),
            None => Err(Missing::ByServer(NO_ROUTER)),
        }
    }
}

impl Keyed for MatchedPath {
    fn key(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

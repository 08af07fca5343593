use super::matched_path::{MatchedPath, matched_path};
use crate::key::extract::method::{Method, method};
use crate::key::extract::{And, Extractor};

/// The route: the [`method`] and the [`matched_path`] as one key.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("route", TokenBucket::per_second(100)).key(key::route());
/// ```
pub fn route() -> Extractor<And<Extractor<Method>, Extractor<MatchedPath>>> {
    method().and(matched_path())
}

use super::And;
use super::combinators::{combinators, hashed};
use super::{Extract, Head, Key, KeyOf, MatchedPath, Method, Missing, matched_path, method};

/// The route: the [`method`] and the [`matched_path`] as one key.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("route", TokenBucket::per_second(100)).key(key::route());
/// ```
pub fn route() -> Route {
    Route(And::new(method(), matched_path()))
}

/// The extractor that [`route`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Route(And<Method, MatchedPath>);

impl Extract for Route {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.0.extract(head)
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl KeyOf for Route {
    /// The method and the path of the route.
    type Value<'a> = (&'a str, &'a str);

    fn make(&self, route: (&str, &str)) -> Result<Key, Missing> {
        self.0.make(route)
    }
}

combinators!(Route);
hashed!(Route);

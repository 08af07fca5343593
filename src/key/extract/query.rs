use std::borrow::Cow;

use super::credentials;
use super::{Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Read, Typed};

/// The decoded value of a query parameter. If there are several values, the first counts.
///
/// A client chooses its parameters: a policy on a parameter alone is a bypass, because each fresh
/// value has a fresh quota. Declare a policy on the address beside it. A handler may read the last
/// of several values. Invalid UTF-8 is replaced (U+FFFD) in names and in values.
///
/// Clients that leave the parameter out share one quota. A parameter without a value is present,
/// and empty. For a secret value, such as a token in a link, [`hashed`](Extractor::hashed) keeps 128
/// bits of a keyed hash.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("search", TokenBucket::per_second(5))
///     .key(key::client_ip().and(key::query("index")));
/// ```
pub fn query(name: impl Into<String>) -> Extractor<Query> {
    Extractor::of(Query { name: name.into() })
}

#[derive(Clone, Debug)]
pub struct Query {
    name: String,
}

impl Origin for Query {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some(format!("query parameter {}", self.name))
    }

    fn credential(&self) -> Option<String> {
        credentials::in_parameter(&self.name)
    }
}

impl Typed for Query {
    type Value<'a> = Cow<'a, str>;

    fn value<'a>(&self, head: &Head<'a>) -> Result<Cow<'a, str>, Missing> {
        let query = head.uri().query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| *name == self.name)
            .map(|(_, value)| value)
            .ok_or(Missing::ByClient)
    }
}

impl Read for Query {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.value(head)?.into_key())
    }
}

impl KeyOf for Query {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

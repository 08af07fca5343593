use std::borrow::Cow;

use super::combinators::{combinators, hashed, map};
use super::credentials;
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};

/// The value of a parameter of the query, decoded as forms are; the first one if there are
/// several.
///
/// A client chooses what it sends: a policy on a parameter alone is a bypass, because each fresh
/// value has a fresh quota. Declare a policy on the address beside it. Mind too that a handler may
/// read the last of several, and that what is not UTF-8 is replaced (U+FFFD), in the name as well
/// as in the value.
///
/// Clients that leave it out share one quota; a parameter without a value is there, and empty. A
/// value that must not be seen, such as a token in a link, becomes 128 bits of a keyed hash by
/// [`hashed`](Query::hashed).
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("search", TokenBucket::per_second(5))
///     .key(key::client_ip().and(key::query("index")));
/// ```
pub fn query(name: impl Into<String>) -> Query {
    Query { name: name.into() }
}

/// The extractor that [`query`] returns.
#[derive(Clone, Debug)]
pub struct Query {
    name: String,
}

impl Take for Query {
    type Out<'a> = Cow<'a, str>;

    fn take<'a>(&self, head: &Head<'a>) -> Result<Cow<'a, str>, Missing> {
        let query = head.uri().query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| *name == self.name)
            .map(|(_, value)| value)
            .ok_or(Missing::ByClient)
    }
}

impl Extract for Query {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.take(head)?.into_key())
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        credentials::in_parameter(&self.name)
    }
}

impl KeyOf for Query {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

combinators!(Query);
hashed!(Query);
map!(Query, Cow<'_, str>);

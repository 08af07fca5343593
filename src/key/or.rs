use super::combinators::{combinators, hashed};
use super::{Extract, Head, Key, KeyOf, Missing};

/// The key of the first of two sources that has one: what `or` returns.
///
/// The key contains its source. A client that writes an address into a header is not counted as
/// that address:
///
/// ```
/// use tower_ratelimit::key;
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let user = key::extension::<User>().optional().map(|user: &User| user.id);
/// let policy = Policy::new("caller", TokenBucket::per_second(5)).key(user.or(key::client_ip()));
/// ```
///
/// A client that chooses whether to send the first key chooses which of the two counts it, and a
/// fresh value each time has a fresh quota each time. Take a verified first key, or declare a
/// policy on the address beside it.
///
/// The second key is read only if the client has left the first out. If the server has not provided
/// the first, the result is [`Missing::ByServer`], so a server error does not move clients to
/// another quota. The key is missing if both are missing.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: Extract, B: Extract> Extract for Or<A, B> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match self.first.extract(head) {
            Ok(key) => Ok(key.of_first()),
            Err(Missing::ByClient) => Ok(self.second.extract(head)?.of_second()),
            Err(by_server) => Err(by_server),
        }
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match self.first.plain(head) {
            Err(Missing::ByClient) => self.second.plain(head),
            answer => answer,
        }
    }

    fn identity(&self) -> Option<String> {
        let (first, second) = (self.first.identity()?, self.second.identity()?);
        Some(format!("({first} or {second})"))
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        let second = || self.second.credential_in_the_clear();
        self.first.credential_in_the_clear().or_else(second)
    }

    fn is_of_this_process(&self) -> bool {
        self.first.is_of_this_process() || self.second.is_of_this_process()
    }
}

/// The source that a request has, of two that are joined by `or`. [`key_of`](Or::key_of) makes a key of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source<A, B> {
    /// The first source.
    First(A),
    /// The second source, of a request without the first.
    Second(B),
}

impl<A: KeyOf, B: KeyOf> KeyOf for Or<A, B> {
    type Value<'a> = Source<A::Value<'a>, B::Value<'a>>;

    fn make(&self, value: Self::Value<'_>) -> Result<Key, Missing> {
        match value {
            Source::First(value) => Ok(self.first.make(value)?.of_first()),
            Source::Second(value) => Ok(self.second.make(value)?.of_second()),
        }
    }
}

combinators!(Or<A, B>; A, B);
hashed!(Or<A, B>; A, B);

use super::combinators::{combinators, hashed};
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};

/// Two keys as one: what `and` returns.
///
/// The parts cannot run together: `("a", "b:c")` is not `("a:b", "c")`. The key is missing if
/// either part is missing. All requests without a part then share one quota, whatever the other
/// part is. To count them apart, give that part a substitute with `or`.
///
/// ```
/// use tower_ratelimit::key;
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// let by_user = Policy::new("login", TokenBucket::per_minute(5))
///     .key(key::client_ip().and(key::query("user")));
/// let by_address = Policy::new("logins", TokenBucket::per_minute(20)).key(key::client_ip());
/// ```
///
/// Each value of a part that the client chooses has a quota of its own. The second policy bounds
/// how many users one address can try, and how many spellings of one user.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B> {
    first: A,
    second: B,
}

impl<A, B> And<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: Extract, B: Extract> Extract for And<A, B> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        both(self.first.extract(head), self.second.extract(head))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        both(self.first.plain(head), self.second.plain(head))
    }

    fn identity(&self) -> Option<String> {
        let (first, second) = (self.first.identity()?, self.second.identity()?);
        Some(format!("({first} and {second})"))
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        let second = || self.second.credential_in_the_clear();
        self.first.credential_in_the_clear().or_else(second)
    }

    fn is_of_this_process(&self) -> bool {
        self.first.is_of_this_process() || self.second.is_of_this_process()
    }
}

impl<A: KeyOf, B: KeyOf> KeyOf for And<A, B> {
    type Value<'a> = (A::Value<'a>, B::Value<'a>);

    fn make(&self, (first, second): Self::Value<'_>) -> Result<Key, Missing> {
        both(self.first.make(first), self.second.make(second))
    }
}

/// A part that the server fails to provide is reported first, even if the client has left the other
/// part out.
fn both(first: Result<Key, Missing>, second: Result<Key, Missing>) -> Result<Key, Missing> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second).into_key()),
        (Err(by_server @ Missing::ByServer(_)), _) | (_, Err(by_server @ Missing::ByServer(_))) => {
            Err(by_server)
        }
        _ => Err(Missing::ByClient),
    }
}

combinators!(And<A, B>; A, B);
hashed!(And<A, B>; A, B);

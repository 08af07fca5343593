use super::combinators::{combinators, hashed, map};
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, KeyOf, Missing};

/// The method of the request.
///
/// The nine standard methods (RFC 9110 and PATCH) are told apart. All other methods are one key,
/// `"other"`, so that an invented method has no fresh quota. A client chooses the method: use this
/// key beside another, or in a policy for the whole site.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("address", TokenBucket::per_second(5))
///     .key(key::client_ip().and(key::method()));
/// ```
pub fn method() -> Method {
    Method(())
}

/// The extractor that [`method`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Method(());

const OTHER: &str = "other";

impl Take for Method {
    type Out<'a> = &'a str;

    fn take<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        Ok(known(head.method().as_str()))
    }
}

/// Returns the method itself if HTTP has it, and one name for all inventions.
fn known(method: &str) -> &str {
    match method {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => {
            method
        }
        _ => OTHER,
    }
}

impl Extract for Method {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.take(head)?.into_key())
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl KeyOf for Method {
    type Value<'a> = &'a str;

    fn make(&self, method: &str) -> Result<Key, Missing> {
        Ok(known(method).into_key())
    }
}

combinators!(Method);
hashed!(Method);
map!(Method, &str);

use super::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};

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
pub fn method() -> Extractor<Method> {
    Extractor::of(Method(()))
}

#[derive(Clone, Copy, Debug)]
pub struct Method(());

const OTHER: &str = "other";

impl Origin for Method {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl Typed for Method {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
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

impl Keyed for Method {
    fn key(&self, method: &str) -> Result<Key, Missing> {
        Ok(known(method).into_key())
    }
}

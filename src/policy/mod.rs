//! A named rule: an algorithm, whom it counts, what a request costs and when it applies.

#[cfg(feature = "http")]
mod http;

use crate::algorithm::Algorithm;
use crate::error::ConfigError;

#[cfg(feature = "http")]
pub use self::http::Http;

/// A named rule.
///
/// A policy starts with a name and an algorithm; whoever asks a [`Limiter`](crate::Limiter) then
/// gives the key and the cost. For a [`RateLimitLayer`](crate::RateLimitLayer),
/// [`key`](Policy::key) says how to take the key from a request, and makes it a
/// `Policy<`[`Http`]`>`. [`key`](Policy::key) comes first, since [`cost`](Policy::cost) and
/// [`when`](Policy::when) read the same kind of request.
///
/// # Defaults
///
/// - cost: 1
/// - when: always
///
/// ```
/// use tower_ratelimit::key::{self, Head};
/// use tower_ratelimit::{FixedWindow, Policy};
///
/// let uploads = Policy::new("uploads", FixedWindow::per_day(1_000))
///     .key(key::client_ip())
///     .when(|head| head.method() == "POST")
///     .cost(|head| if head.path().starts_with("/bulk") { 10 } else { 1 });
/// ```
#[derive(Clone, Debug)]
#[must_use = "a policy limits nothing until a limiter or a layer has it"]
pub struct Policy<R = Unkeyed> {
    name: String,
    algorithm: Algorithm,
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "without HTTP there is nothing to read")
    )]
    reads: R,
}

/// What a policy reads of a request when whoever asks gives the key: nothing.
///
/// Where a `Policy<Http>` is expected, say whom it counts: `.key(key::client_ip())`.
#[derive(Clone, Copy, Debug)]
pub struct Unkeyed;

impl Policy {
    /// A policy of this name, which appears in decisions and in responses.
    ///
    /// The name is checked when a limiter or a layer is built: 1 to 64 printable characters of
    /// ASCII, and not the name of another policy in any case of letters.
    pub fn new(name: impl Into<String>, algorithm: impl Into<Algorithm>) -> Self {
        Self {
            name: name.into(),
            algorithm: algorithm.into(),
            reads: Unkeyed,
        }
    }
}

impl<R> Policy<R> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is anything to ask: an unlimited policy allows everything.
    pub(crate) fn is_limited(&self) -> bool {
        !matches!(self.algorithm, Algorithm::Unlimited)
    }

    /// How it is enforced.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }
}

/// Refuses a list of policies that cannot be told apart, or whose names cannot stand in a header
/// field.
pub(crate) fn check_names<'a>(
    names: &(impl Iterator<Item = &'a str> + Clone),
) -> Result<(), ConfigError> {
    const LONGEST: usize = 64;
    let printable = |byte: u8| (0x20..=0x7e).contains(&byte);
    for (index, name) in names.clone().enumerate() {
        if !(1..=LONGEST).contains(&name.len()) || !name.bytes().all(printable) {
            let remedy = "give 1 to 64 printable characters of ASCII";
            return Err(ConfigError::quoting("policy name", name, remedy));
        }
        let mut before = names.clone().take(index);
        if before.any(|other| other.eq_ignore_ascii_case(name)) {
            let remedy = "give each policy a name of its own; case is ignored";
            return Err(ConfigError::quoting("policy name", name, remedy));
        }
    }
    Ok(())
}

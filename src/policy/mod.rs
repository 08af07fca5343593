//! A named rule: an algorithm, whom it counts, what a request costs and when it applies.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod keyed;
#[cfg(feature = "http")]
mod no_key;
#[cfg(feature = "http")]
mod patience;

mod never_binds;
mod on_store_failure;

use crate::algorithm::Algorithm;
use crate::decision::Rule;
use crate::error::ConfigError;

pub use self::on_store_failure::OnStoreFailure;

pub(crate) use self::never_binds::{Keyless, Scope, warn_of_those_that_never_bind};

#[cfg(feature = "http")]
pub use self::http::Http;
#[cfg(feature = "http")]
pub use self::keyed::Keyed;
#[cfg(feature = "http")]
pub use self::no_key::NoKey;
#[cfg(feature = "http")]
pub(crate) use self::no_key::check_status;
#[cfg(feature = "http")]
pub(crate) use self::patience::Patience;

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
/// - not soft: a request over the limit is denied
/// - on a failure of its store: the same policy in this process ([`OnStoreFailure::Local`])
/// - no waiting: a request that is denied is refused at once (see `wait_up_to`)
/// - no key: one quota for all clients that left it out; `500` where the server does not provide
///   it (see [`NoKey`])
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
    is_soft: bool,
    on_store_failure: OnStoreFailure,
    #[cfg(feature = "http")]
    patience: Patience,
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
            is_soft: false,
            on_store_failure: OnStoreFailure::default(),
            #[cfg(feature = "http")]
            patience: Patience::default(),
            reads: Unkeyed,
        }
    }

    /// The same with another limit.
    pub(crate) fn limited_by(&self, algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            ..self.clone()
        }
    }

    /// As one of several that are asked about each request.
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope {
            name: &self.name,
            algorithm: &self.algorithm,
            is_soft: self.is_soft,
            counts: Some(String::new()),
            is_conditional: false,
            refuses: Keyless::None,
        }
    }
}

impl<R> Policy<R> {
    /// Lets requests over the limit go on, marked, so that whoever serves them can serve less.
    ///
    /// Clients are told its numbers as those of any other: one that heeds them slows down before the
    /// service serves it less. A request over the limit is not charged to this policy, and is to the others that apply.
    /// [`Decision::over_limit`](crate::Decision::over_limit) names the policy, and behind a layer a
    /// handler finds an [`OverLimit`](crate::middleware::OverLimit) among the request's extensions.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("full", FixedWindow::per_hour(1)).soft())
    ///     .policy(Policy::new("any", FixedWindow::per_hour(2)))
    ///     .build()?;
    ///
    /// assert_eq!(limiter.check_now("ann", 1).over_limit().count(), 0);
    /// let second = limiter.check_now("ann", 1);
    /// assert!(second.is_allowed());
    /// assert_eq!(second.over_limit().next().unwrap().0, "full");
    /// assert!(!limiter.check_now("ann", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn soft(mut self) -> Self {
        self.is_soft = true;
        self
    }

    /// Whether it is [soft](Self::soft).
    pub fn is_soft(&self) -> bool {
        self.is_soft
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is anything to ask: an unlimited policy allows everything.
    pub(crate) fn is_limited(&self) -> bool {
        !matches!(self.algorithm, Algorithm::Unlimited)
    }

    /// Whether it holds requests until it is their turn.
    pub(crate) fn shapes(&self) -> bool {
        matches!(self.algorithm, Algorithm::LeakyQueue(_))
    }

    /// What decisions and responses tell of it.
    pub(crate) fn rule(&self) -> Rule {
        let (limit, period) = (self.algorithm.limit(), self.algorithm.period());
        Rule::new(&self.name, limit, period)
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
            let remedy = "name a policy with 1 to 64 printable characters of ASCII";
            return Err(ConfigError::quoting("name", name, remedy));
        }
        let mut before = names.clone().take(index);
        if before.any(|other| other.eq_ignore_ascii_case(name)) {
            let remedy = "give each policy a name of its own; case is ignored";
            return Err(ConfigError::quoting("name", name, remedy));
        }
    }
    Ok(())
}

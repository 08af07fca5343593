//! What can be wrong: with a configuration, with a store.

use std::borrow::Cow;
use std::fmt;

/// A number or a name that was refused when something was built.
///
/// It names the field, shows the value that was given and says what would be right.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::Quota;
///
/// let error = Quota::new(10, Duration::from_nanos(1)).unwrap_err();
/// assert_eq!(error.field(), "period");
/// assert_eq!(error.value(), "1ns");
/// assert_eq!(
///     error.to_string(),
///     "`period` cannot be 1ns: give a length from 1 ms to 366 days",
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    value: String,
    remedy: Cow<'static, str>,
}

impl ConfigError {
    pub(crate) fn new(
        field: &'static str,
        value: impl fmt::Display,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            field,
            value: value.to_string(),
            remedy: remedy.into(),
        }
    }

    /// For text, of which an error shows the beginning only.
    pub(crate) fn quoting(
        field: &'static str,
        text: &str,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        const SHOWN: usize = 40;
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::new(field, format_args!("{shown:?}"), remedy)
    }

    /// The name of the field that was refused: that of the setting in code, such as `max_keys`.
    pub fn field(&self) -> &str {
        self.field
    }

    /// The value that was given, as text.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would be right.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` cannot be {}: {}",
            self.field, self.value, self.remedy
        )
    }
}

/// The same sentence, since `unwrap` and a `main` that returns an error show this form.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// What was made; for conveniences that are meant for literals, at start-up.
#[cfg(feature = "http")]
#[track_caller]
pub(crate) fn or_panic<T>(made: Result<T, ConfigError>) -> T {
    match made {
        Ok(made) => made,
        Err(error) => panic!("{error}"),
    }
}

/// Why a store could not decide.
///
/// The in-process store never fails; a store behind a network can.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    reason: Option<&'static str>,
    /// Whether the store has told those who run the service by itself.
    #[cfg(feature = "http")]
    is_told: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store could not be reached, or did not answer in time. Asking again later can help.
    Unavailable,
    /// The store answered with something that no store of this version writes.
    /// Asking again does not help.
    Misconfigured,
    /// The store does not know how to do what it was asked. Asking again does not help.
    Unsupported,
    /// There is no room for what should be kept. Asking again later can help.
    Full,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self {
            kind,
            reason: None,
            #[cfg(feature = "http")]
            is_told: false,
            source: None,
        }
    }

    /// Names the reason in a word or two that stay the same, so that errors can be counted by it.
    pub fn because(self, reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            ..self
        }
    }

    /// The same of a store that logs by itself whether it works.
    #[cfg(feature = "redis")]
    pub(crate) fn told(self) -> Self {
        Self {
            #[cfg(feature = "http")]
            is_told: true,
            ..self
        }
    }

    #[cfg(feature = "http")]
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Adds what caused it. It is logged: leave secrets out of it, such as the password in an
    /// address.
    pub fn caused_by(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Why, in a word or two that stay the same: a label for metrics and alarms, which holds nothing
    /// of the request. `None` if the store does not say.
    ///
    /// Those of Redis are listed in the page on reliability, beside `RedisStore`.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Whether the same question can succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::Full
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.kind {
            StoreErrorKind::Unavailable => "the rate limiter's store is unavailable",
            StoreErrorKind::Misconfigured => "the rate limiter's store is misconfigured",
            StoreErrorKind::Unsupported => {
                "the rate limiter's store does not know how to do what it was asked"
            }
            StoreErrorKind::Full => "the rate limiter's store has no room for it",
        };
        f.write_str(said)?;
        match self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Why a snapshot of a [`MemoryStore`](crate::MemoryStore) could not be restored; nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError {
    kind: RestoreErrorKind,
}

/// The kind of a [`RestoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestoreErrorKind {
    /// The bytes are something else.
    NotASnapshot,
    /// The format is of this version, which this version of the crate does not read.
    AnotherVersion(u32),
    /// It was cut short, or changed since it was taken.
    Damaged,
    /// The program that took it makes other fingerprints of the same keys: it was built for
    /// another processor, or with another version of this crate or of the hash that it uses.
    AnotherBuild,
}

impl RestoreError {
    pub(crate) fn new(kind: RestoreErrorKind) -> Self {
        Self { kind }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> RestoreErrorKind {
        self.kind
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing was restored, since the snapshot ")?;
        match self.kind {
            RestoreErrorKind::NotASnapshot => f.write_str("is none: give what a store has taken"),
            RestoreErrorKind::AnotherVersion(version) => {
                write!(
                    f,
                    "is of version {version}, which this program does not read"
                )
            }
            RestoreErrorKind::Damaged => {
                f.write_str("is damaged: it was cut short, or changed since it was taken")
            }
            RestoreErrorKind::AnotherBuild => f.write_str(
                "was taken by a program that makes other fingerprints of keys: build both alike",
            ),
        }
    }
}

impl std::error::Error for RestoreError {}

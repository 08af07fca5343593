//! Errors: of a configuration, of a store, of a snapshot.
//!
//! An error of the configuration names the field, the value and the remedy, since a person has to correct it.
//! An error of a store is opaque except for its kind and its reason, since programs handle it and count it.

use std::borrow::Cow;
use std::fmt;

/// A value that a constructor or a builder refused.
///
/// It names the field, shows the value and says which values are right.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
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
    /// Creates an error about a field: its name, the value, and the remedy.
    pub fn new(
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

    /// Creates an error about text, of which it shows the first 40 characters, in quotes.
    pub fn quoting(field: &'static str, text: &str, remedy: impl Into<Cow<'static, str>>) -> Self {
        const SHOWN: usize = 40;
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::new(field, format_args!("{shown:?}"), remedy)
    }

    /// Returns the name of the field, as code calls the setting: `max_keys`.
    pub fn field(&self) -> &str {
        self.field
    }

    /// Returns the refused value, as text.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Which values are right.
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

/// Shows the text of `Display`, since `unwrap` and a `main` that returns an error show this form.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// Returns the value, or panics at the caller: for conveniences that take literals at start-up.
///
/// # Panics
///
/// If there is an error.
#[track_caller]
pub fn or_panic<T>(made: Result<T, ConfigError>) -> T {
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
    /// Whether the store logs by itself that it fails.
    is_logged: bool,
    /// Whether the store was read, and refuses to write.
    is_of_a_write: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store could not be reached, or did not answer in time. A later attempt can succeed.
    Unavailable,
    /// The store answered with something that no store of this version writes. A later attempt fails too.
    Misconfigured,
    /// The store does not support the operation. A later attempt fails too.
    Unsupported,
    /// The store has no room for the state. A later attempt can succeed.
    Full,
    /// A [`Resolver`](crate::plan::Resolver) did not find the plan in time, and refuses such requests. A later attempt
    /// can succeed. The store was not asked.
    Unresolved,
}

impl StoreError {
    /// Creates an error of this kind.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self {
            kind,
            reason: None,
            is_logged: false,
            is_of_a_write: false,
            source: None,
        }
    }

    /// Names the reason in one or two constant words, by which metrics can count errors.
    pub fn because(self, reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            ..self
        }
    }

    /// Marks the error of a store that logs its failures by itself.
    pub(crate) fn already_logged(self) -> Self {
        Self {
            is_logged: true,
            ..self
        }
    }

    /// Marks the error of a store that was read, and that could not write the result.
    pub(crate) fn of_a_write(self) -> Self {
        Self {
            is_of_a_write: true,
            ..self
        }
    }

    /// Copies the error for another request that has waited for the same answer.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn copied(&self) -> Self {
        Self {
            source: self.source.as_ref().map(|source| source.to_string().into()),
            ..*self
        }
    }

    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged
    }

    pub(crate) fn is_of_a_write(&self) -> bool {
        self.is_of_a_write
    }

    /// Adds the cause. The cause is logged, so it must not contain secrets such as the password in an
    /// address.
    pub fn caused_by(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns the reason in one or two constant words: a label for metrics and alarms, which contains nothing of the
    /// request. `None` if the store gives none.
    ///
    /// The page on reliability lists the reasons of `RedisStore`.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Returns whether a later attempt can succeed.
    pub fn is_transient(&self) -> bool {
        !matches!(
            self.kind,
            StoreErrorKind::Misconfigured | StoreErrorKind::Unsupported
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.kind {
            StoreErrorKind::Unavailable => "the rate limiter's store is unavailable",
            StoreErrorKind::Misconfigured => "the rate limiter's store is misconfigured",
            StoreErrorKind::Unsupported => {
                "the rate limiter's store does not support the operation"
            }
            StoreErrorKind::Full => "the rate limiter's store is full",
            StoreErrorKind::Unresolved => "the plan of the request is not known",
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

/// Why a [`MemoryStore`](crate::MemoryStore) could not restore a snapshot. It has restored no part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError {
    kind: RestoreErrorKind,
}

/// The kind of a [`RestoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestoreErrorKind {
    /// The bytes are not a snapshot.
    NotASnapshot,
    /// The format has this version, which this version of the crate does not read.
    AnotherVersion(u32),
    /// The snapshot was cut short, or changed after it was taken.
    Damaged,
    /// The program that took the snapshot makes other fingerprints of the same keys. It was built for another
    /// processor, or with another version of this crate or of the hash that it uses.
    AnotherBuild,
}

impl RestoreError {
    pub(crate) fn new(kind: RestoreErrorKind) -> Self {
        Self { kind }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> RestoreErrorKind {
        self.kind
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing was restored: ")?;
        match self.kind {
            RestoreErrorKind::NotASnapshot => {
                f.write_str("the bytes are not a snapshot; pass what `snapshot` returned")
            }
            RestoreErrorKind::AnotherVersion(version) => {
                write!(
                    f,
                    "the snapshot has version {version}, which this program does not read"
                )
            }
            RestoreErrorKind::Damaged => {
                f.write_str("the snapshot is damaged: it was cut short, or changed after it was taken")
            }
            RestoreErrorKind::AnotherBuild => f.write_str(
                "the snapshot comes from a program that makes other fingerprints of keys: build both for \
                 the same processor and with the same versions",
            ),
        }
    }
}

impl std::error::Error for RestoreError {}

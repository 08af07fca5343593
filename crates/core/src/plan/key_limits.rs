//! Limits by key, by prefix, and for all other keys.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::choice::{Choice, Rules, Subject};
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::error::ConfigError;
use crate::key::{IntoKey, Key};

/// Limits by key: for exact keys, for keys that begin with a text, and for all others.
///
/// An exact key comes first, then the longest prefix, then `other`. A prefix is compared with keys that are
/// text of at most 46 bytes: a longer key is a digest, and only its exact text finds it. A key that its
/// extractor hashes, as `key::api_key` does, is compared as the client has sent it. A key [of a tree](Key::branch) is compared by its
/// last part, unless its path is a digest.
///
/// Set it with [`Policy::key_limits`](crate::Policy::key_limits).
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::plan::KeyLimits;
/// use tower_ratelimit::{FixedWindow, Limiter, Policy};
///
/// let limits = KeyLimits::new()
///     .key("ann", FixedWindow::per_minute(500))
///     .prefix("partner-", FixedWindow::per_minute(100))
///     .other(FixedWindow::per_minute(10));
/// let policy = Policy::new("minute", FixedWindow::per_minute(1)).key_limits(limits);
/// let limiter = Limiter::builder().policy(policy).build_local()?;
///
/// let limit = |key: &str| limiter.check(key, 1).now().binding().unwrap().1.limit();
/// assert_eq!([limit("ann"), limit("partner-7"), limit("bob")], [500, 100, 10]);
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "limits by key limit nothing until a policy has them"]
pub struct KeyLimits {
    keys: Vec<(Key, String, Algorithm)>,
    prefixes: Vec<(String, Algorithm)>,
    other: Option<Algorithm>,
}

impl KeyLimits {
    /// Creates a table without entries: each key has the limit of its plan, or of the policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limit of one key.
    ///
    /// The limit must have the kind and the period of the policy, which is checked when the layer or the
    /// limiter is built. [`Algorithm::Unlimited`] does not count the requests.
    pub fn key<K: IntoKey + ToString>(mut self, key: K, limit: impl Into<Algorithm>) -> Self {
        let text = key.to_string();
        self.keys.push((key.into_key(), text, limit.into()));
        self
    }

    /// Sets the limit of one key, whose text a file has.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn key_of_text(mut self, key: Key, text: String, limit: Algorithm) -> Self {
        self.keys.push((key, text, limit));
        self
    }

    /// Sets the limit of keys that begin with this text, unless a longer prefix is in the table.
    pub fn prefix(mut self, prefix: impl Into<String>, limit: impl Into<Algorithm>) -> Self {
        self.prefixes.push((prefix.into(), limit.into()));
        self
    }

    /// Sets the limit of all keys without another entry.
    pub fn other(self, limit: impl Into<Algorithm>) -> Self {
        Self {
            other: Some(limit.into()),
            ..self
        }
    }

    /// Returns whether it sets a limit for every key.
    pub(crate) fn leave_none_out(&self) -> bool {
        self.other.is_some()
    }

    /// Prepares the table for a policy.
    ///
    /// # Errors
    ///
    /// When two entries have the same key or prefix, when a prefix is empty, and when a limit has another
    /// kind or period than the policy.
    pub(crate) fn prepare(
        &self,
        policy: Subject<'_>,
        rules: &mut Rules,
    ) -> Result<LimitsByKey, ConfigError> {
        let mut keys = HashMap::new();
        for (key, text, limit) in &self.keys {
            let choice = rules.add(LimitRule::Key(text.as_str().into()), policy, *limit)?;
            if keys.insert(*key, choice).is_some() {
                return Err(twice("key", text, policy.name));
            }
        }
        let mut by_length: Vec<(usize, HashMap<Box<str>, Choice>)> = Vec::new();
        for (prefix, limit) in &self.prefixes {
            if prefix.is_empty() {
                let remedy = "give it a character, or use `other` for all other keys";
                return Err(ConfigError::quoting("prefix", prefix, remedy));
            }
            let choice = rules.add(LimitRule::Prefix(prefix.as_str().into()), policy, *limit)?;
            let length = prefix.len();
            let place = by_length.iter().position(|(of, _)| *of == length);
            let place = place.unwrap_or_else(|| {
                by_length.push((length, HashMap::new()));
                by_length.len() - 1
            });
            let (_, those) = &mut by_length[place];
            if those.insert(prefix.as_str().into(), choice).is_some() {
                return Err(twice("prefix", prefix, policy.name));
            }
        }
        by_length.sort_unstable_by_key(|(length, _)| Reverse(*length));
        let other = self
            .other
            .map(|limit| rules.add(LimitRule::Other, policy, limit));
        Ok(LimitsByKey {
            keys,
            by_length,
            other: other.transpose()?,
        })
    }
}

fn twice(field: &'static str, text: &str, policy: &str) -> ConfigError {
    let remedy = format!("let one entry of policy {policy:?} speak of it: two give it a limit");
    ConfigError::quoting(field, text, remedy)
}

/// Limits by key, prepared for a policy.
#[derive(Debug)]
pub(crate) struct LimitsByKey {
    keys: HashMap<Key, Choice>,
    /// Prefixes by length, the longest first.
    by_length: Vec<(usize, HashMap<Box<str>, Choice>)>,
    other: Option<Choice>,
}

impl LimitsByKey {
    /// A key of a tree is found by its last part, as in a layer, whose levels read theirs alone.
    pub(crate) fn choice(&self, key: &Key) -> Option<Choice> {
        let key = key.leaf();
        if let Some(choice) = self.keys.get(&key) {
            return Some(*choice);
        }
        let by_prefix = || {
            key.with_text(|text| {
                self.by_length.iter().find_map(|(length, those)| {
                    let prefix = text.get(..*length)?;
                    those.get(prefix).copied()
                })
            })
        };
        let found = if self.by_length.is_empty() {
            None
        } else {
            by_prefix()
        };
        found.or(self.other)
    }
}

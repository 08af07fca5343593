//! Limits by operation.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::choice::{Choice, Rules, Subject};
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::error::ConfigError;
use crate::key::{IntoKey, Key};

/// Limits by operation, such as `read` and `write`, under one policy.
///
/// Each key has one state for each operation in the table, and one state for all other operations together:
/// names that a client invents have no quota of their own. [`other`](Self::other) sets the limit of those;
/// without it they have the limit that the key would have without operations.
///
/// Set it with [`Policy::operations`](crate::Policy::operations).
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::plan::Operations;
/// use tower_ratelimit::{FixedWindow, Limiter, Policy};
///
/// let operations = Operations::new()
///     .limit("read", FixedWindow::per_minute(100))
///     .limit("write", FixedWindow::per_minute(10))
///     .other(FixedWindow::per_minute(50));
/// let policy = Policy::new("api", FixedWindow::per_minute(50)).operations(operations);
/// let limiter = Limiter::builder().policy(policy).build_local()?;
///
/// assert!(limiter.operation("write").check("ann", 10).now().is_allowed());
/// assert!(!limiter.operation("write").check("ann", 1).now().is_allowed());
/// assert!(limiter.operation("read").check("ann", 100).now().is_allowed());
/// assert!(limiter.operation("purge").check("ann", 50).now().is_allowed());
/// assert!(!limiter.operation("merge").check("ann", 1).now().is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "limits by operation limit nothing until a policy has them"]
pub struct Operations {
    limits: Vec<(String, Algorithm)>,
    other: Option<Algorithm>,
}

impl Operations {
    /// Creates a table without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limit of an operation.
    ///
    /// The limit must have the kind and the period of the policy, which is checked when the layer or the
    /// limiter is built. [`Algorithm::Unlimited`] does not count the requests.
    pub fn limit(mut self, operation: impl Into<String>, limit: impl Into<Algorithm>) -> Self {
        self.limits.push((operation.into(), limit.into()));
        self
    }

    /// Sets the limit of all other operations of a key, which share it.
    pub fn other(self, limit: impl Into<Algorithm>) -> Self {
        Self {
            other: Some(limit.into()),
            ..self
        }
    }

    /// Returns whether it sets a limit for every operation.
    pub(crate) fn leave_none_out(&self) -> bool {
        self.other.is_some()
    }

    /// Prepares the table for a policy, which is a level of a tree or stands alone.
    ///
    /// # Errors
    ///
    /// When there is no operation, when two have the same name, and when a limit has another kind or period
    /// than the policy.
    pub(crate) fn prepare(
        &self,
        policy: Subject<'_>,
        is_level: bool,
        rules: &mut Rules,
    ) -> Result<LimitsByOperation, ConfigError> {
        if self.limits.is_empty() {
            let remedy = "name an operation, `Operations::new().limit(\"read\", algorithm)`";
            return Err(ConfigError::new("operations", "empty", remedy));
        }
        let mut named = HashMap::new();
        for (name, limit) in &self.limits {
            let rule = LimitRule::Operation(name.as_str().into());
            let choice = rules.add(rule, policy, *limit)?;
            if named.insert(name.as_str().into_key(), choice).is_some() {
                let remedy = format!(
                    "let one entry of policy {:?} speak of it: two give it a limit",
                    policy.name
                );
                return Err(ConfigError::quoting("operation", name, remedy));
            }
        }
        let other = self
            .other
            .map(|limit| rules.add(LimitRule::OtherOperation, policy, limit));
        let limit = |limit: &Algorithm| limit.limit().unwrap_or(u32::MAX);
        let mut longest_first: Vec<Name> = Vec::new();
        longest_first.extend(self.limits.iter().map(|(name, own)| Name {
            text: name.as_str().into(),
            limit: limit(own),
        }));
        longest_first.sort_unstable_by_key(|name| Reverse(name.text.len()));
        Ok(LimitsByOperation {
            names: longest_first,
            is_level,
            limit_of_others: limit(self.other.as_ref().unwrap_or(policy.own)),
            named,
            other: other.transpose()?,
        })
    }
}

/// Limits by operation, prepared for a policy.
#[derive(Debug)]
pub struct LimitsByOperation {
    /// The longest first.
    names: Vec<Name>,
    /// Whether the policy is a level of a tree, whose keys stay with their root.
    is_level: bool,
    limit_of_others: u32,
    named: HashMap<Key, Choice>,
    other: Option<Choice>,
}

/// An operation, with its limit.
#[derive(Debug)]
struct Name {
    text: Box<str>,
    limit: u32,
}

impl LimitsByOperation {
    /// Returns the key of the state of this operation, made from the key of the client, and the limit, if the
    /// table has one.
    pub(super) fn choice(&self, operation: Option<Key>, key: Key) -> (Key, Option<Choice>) {
        let named = operation.and_then(|name| Some((name, self.named.get(&name)?)));
        match named {
            Some((name, choice)) => (self.key_of(key, name), Some(*choice)),
            // No name of an operation is this key.
            None => (self.key_of(key, Key::GLOBAL), self.other),
        }
    }

    fn key_of(&self, key: Key, operation: Key) -> Key {
        if self.is_level {
            operation.below(&key)
        } else {
            (key, operation).into_key()
        }
    }

    /// Returns the operation of a request's path: the longest name that is a prefix of it, by whole segments, `/bulk`
    /// for `/bulk/7` and not for `/bulky`. Of the operations of several readings, it is that with the lowest limit.
    ///
    /// `any_reading` tells its closure each other reading until that returns true, and returns true if there are too many.
    pub fn of_path(
        &self,
        path: &str,
        any_reading: impl FnOnce(&mut dyn FnMut(&str) -> bool) -> bool,
    ) -> Option<Key> {
        let of = |path: &str| self.names.iter().find(|name| name.is_prefix_of(path));
        let limit = |name: Option<&Name>| name.map_or(self.limit_of_others, |name| name.limit);
        let mut found = of(path);
        let has_too_many = any_reading(&mut |path| {
            let other = of(path);
            if limit(other) < limit(found) {
                found = other;
            }
            false
        });
        if has_too_many {
            let lowest = self.names.iter().min_by_key(|name| name.limit);
            found = lowest.filter(|lowest| lowest.limit < self.limit_of_others);
        }
        Some((&*found?.text).into_key())
    }
}

impl Name {
    fn is_prefix_of(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.text);
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('/') || self.text.ends_with('/')
        })
    }
}

//! The names of states in Redis.

use tower_ratelimit_core::key::Key;

use super::LAYOUT;

/// The name of a key and what parts it from the name of a policy. In braces is what a cluster places it by: the client, so that all its
/// states are on one node; of a key of a tree the root, so that all its levels are.
///
/// A policy may have any sign but no key has a semicolon: what is below the root ends with one.
pub(super) struct InBraces(String);

impl InBraces {
    pub(super) fn of(key: &Key) -> Self {
        let (name, root) = (key.name(), key.root());
        if root == *key {
            return Self(format!("{{{name}}}:"));
        }
        let root = root.name();
        // `u:`, the root, a comma and what is below it.
        let below = name.as_str().get("u:,".len() + root.as_str().len()..);
        Self(format!("{{{root}}};{};", below.unwrap_or_default()))
    }

    /// Returns the name of the state of a policy, whose suffix is this.
    pub(super) fn state_key(&self, prefix: &str, suffix: &str) -> String {
        let Self(key) = self;
        format!("{prefix}:{LAYOUT}:{key}{suffix}")
    }
}

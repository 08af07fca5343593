//! The names of states in Redis.

use tower_ratelimit_core::key::Key;

use super::LAYOUT;

/// The name of a key and what parts it from the name of a policy. In braces is what a cluster places it by: the client, so that all its
/// states are on one node; of a key of a tree the root, so that all its levels are.
///
/// A policy may have any sign but no key has a semicolon: what is below the root ends with one.
pub(super) struct InBraces(String);

/// Returns what a name has below its root, which is nothing for a root.
pub(super) fn below_root(key: &Key) -> String {
    let (name, root) = (key.name(), key.root());
    if root == *key {
        return String::new();
    }
    // `u:`, the root, a comma and what is below it.
    let below = name
        .as_str()
        .get("u:,".len() + root.name().as_str().len()..);
    below.unwrap_or_default().to_owned()
}

impl InBraces {
    pub(super) fn of(key: &Key) -> Self {
        let root = key.root();
        if root == *key {
            return Self(format!("{{{}}}:", root.name()));
        }
        Self::of_tenant(key)
    }

    /// That of a tenant under the key that all tenants share, which is never that key itself.
    pub(super) fn of_tenant(key: &Key) -> Self {
        Self(format!("{{{}}};{};", key.root().name(), below_root(key)))
    }

    /// Returns the name of the state of a policy, whose suffix is this.
    pub(super) fn state_key(&self, prefix: &str, suffix: &str) -> String {
        let Self(key) = self;
        format!("{prefix}:{LAYOUT}:{key}{suffix}")
    }
}

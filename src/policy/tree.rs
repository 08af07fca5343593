//! Trees of policies: organisation, team, user.

use std::sync::Arc;

use tower_ratelimit_core::__internal::diagnose;

#[cfg(doc)]
use super::OnMissingKey;
use super::logged::OrLogged;
use super::{Http, Policy};
use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::key::extract::any::root_of;
use crate::key::{Extract, Head, Key, Missing, Parts};

/// The most levels of a tree.
const DEEPEST: usize = 8;

/// Limits above each other, such as those of an organisation, its teams and their users: what [`Policy::tree`] begins.
///
/// Each level is a policy `TREE.LEVEL` of its own. A request is charged at every level or at none. The key of a level is its own under
/// that of the level above: team `a` of one organisation is not team `a` of another. [The page on trees](crate::guide::trees) has
/// what goes with them.
///
/// ```
/// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
///
/// let spend = Policy::tree("spend")
///     .level("org", key::header("x-org"), FixedWindow::per_minute(1_000))
///     .level("team", key::header("x-team"), FixedWindow::per_minute(400))
///     .level("user", key::header("x-user"), FixedWindow::per_minute(50))
///     .each(|level| level.cost(|head| if head.path() == "/export" { 10 } else { 1 }))
///     .build()?;
/// let layer = RateLimitLayer::builder().policies(spend).build()?;
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a tree limits nothing until a layer has its policies"]
pub struct Tree {
    name: String,
    levels: Vec<Policy<Http>>,
    /// What is wrong with a level, reported when the tree is built.
    mistake: Option<ConfigError>,
}

impl Policy {
    /// Begins a tree of this name, whose levels follow from the root down: see [`Tree`].
    pub fn tree(name: impl Into<String>) -> Tree {
        Tree {
            name: name.into(),
            levels: Vec::new(),
            mistake: None,
        }
    }
}

impl Tree {
    /// Adds a level below the last one.
    ///
    /// A request without the key of a level, or of one above, is refused with `400 Bad Request`, and with `500` if the server
    /// should have provided it, unless the level has another [`on_missing_key`](Policy::on_missing_key). Under [`OnMissingKey::Shared`], all requests without the key count as one client of the level.
    pub fn level(mut self, name: &str, key: impl Extract, algorithm: impl Into<Algorithm>) -> Self {
        let name = format!("{}.{name}", self.name);
        self.levels.push(Policy::new(name, algorithm).key(key));
        self
    }

    /// Adds a level below the last one, whose limit is a share of the limit of that one, from 0.000001 to 1:
    /// [`Policy::share`] says what the share follows.
    ///
    /// Each key has the share: with 0.4, three teams of one organisation may use 0.4 of its limit each, as long as the organisation
    /// has room.
    ///
    /// ```
    /// use tower_ratelimit::{Policy, TokenBucket, key};
    ///
    /// let levels = Policy::tree("api")
    ///     .level("org", key::header("x-org"), TokenBucket::per_second(100).burst(500))
    ///     .share("team", key::header("x-team"), 0.4)
    ///     .build()?;
    /// assert_eq!(levels[1].algorithm().to_string(), "token-bucket 40/second burst 200");
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn share(mut self, name: &str, key: impl Extract, share: f64) -> Self {
        let name = format!("{}.{name}", self.name);
        let made = if let Some(above) = self.levels.last() {
            above.share(name, share)
        } else {
            let remedy =
                "begin with `level`: nothing is above the root, of which it could have a share";
            Err(ConfigError::quoting("share", &name, remedy))
        };
        match made {
            Ok(policy) => self.levels.push(policy.key(key)),
            Err(error) => self.mistake = self.mistake.or(Some(error)),
        }
        self
    }

    /// Adds a level below the last one, whose policy is made elsewhere. It stays as it is, with its name, such as `spend.team`.
    pub fn level_of(mut self, policy: Policy<Http>) -> Self {
        self.levels.push(policy);
        self
    }

    /// Sets options of the level that was added last, such as what each of its keys is [guaranteed](Policy::guaranteed) of the
    /// level above.
    ///
    /// ```
    /// use tower_ratelimit::plan::KeyLimits;
    /// use tower_ratelimit::{Policy, TokenBucket, key};
    ///
    /// let tree = Policy::tree("api")
    ///     .level("tenant", key::header("x-tenant"), TokenBucket::per_second(100))
    ///     .with(|tenant| tenant.key_limits(KeyLimits::new().key("acme", TokenBucket::per_second(500))))
    ///     .level("user", key::api_key(), TokenBucket::per_second(10));
    /// ```
    pub fn with(mut self, set: impl FnOnce(Policy<Http>) -> Policy<Http>) -> Self {
        if let Some(last) = self.levels.pop() {
            self.levels.push(set(last));
        }
        self
    }

    /// Sets options of all levels that were added so far, such as a cost, a condition or a mode.
    pub fn each(mut self, set: impl FnMut(Policy<Http>) -> Policy<Http>) -> Self {
        self.levels = self.levels.into_iter().map(set).collect();
        self
    }

    /// Returns the policies of the tree, from the root down.
    ///
    /// # Errors
    ///
    /// When there is no level, there are more than eight, a [share](Self::share) is wrong, or the limit of a level is
    /// [divided](Policy::fair) among tenants.
    pub fn build(self) -> Result<Vec<Policy<Http>>, ConfigError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        if self.levels.is_empty() || self.levels.len() > DEEPEST {
            let remedy = "give one to eight levels, `.level(\"org\", key::header(\"x-org\"), FixedWindow::per_minute(1_000))`";
            return Err(ConfigError::new("levels", self.levels.len(), remedy));
        }
        if let Some(divided) = self.levels.iter().find(|level| level.is_divided()) {
            let remedy = "leave `fair` out of the tree, and divide a limit by a policy beside it";
            return Err(ConfigError::quoting("fair", divided.name(), remedy));
        }
        Ok(below_each_other(self.levels))
    }
}

/// Lets the key of each policy be one under those of the policies before it.
fn below_each_other(levels: Vec<Policy<Http>>) -> Vec<Policy<Http>> {
    let parts = levels.iter().map(|level| {
        let (key, is_shared) = level.part();
        Part { key, is_shared }
    });
    let parts: Arc<[Part]> = parts.collect();
    let mut above: Option<String> = None;
    let below = |(depth, mut level): (usize, Policy<Http>)| {
        if let Some(above) = above.replace(level.name().to_owned()) {
            level = level.below(above);
        }
        level.put_below(LevelKey {
            tree: Arc::clone(&parts),
            depth,
        });
        level
    };
    (1..).zip(levels).map(below).collect()
}

/// The part of a key that stands for a level.
#[derive(Clone)]
struct Part {
    key: Arc<dyn Extract>,
    /// Whether requests without it have one in common.
    is_shared: bool,
}

impl Part {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match self.key.extract(head) {
            Err(missing) if self.is_shared => {
                if let Missing::ByServer(diagnostic) = missing {
                    diagnose(&diagnostic);
                }
                Ok(Key::MISSING)
            }
            extracted => extracted,
        }
    }
}

/// The key of a level: the parts of all levels from the root down to it.
#[derive(Clone)]
pub(super) struct LevelKey {
    tree: Arc<[Part]>,
    depth: usize,
}

impl LevelKey {
    /// Returns the key of a request of a log, whose lines name the client: a key of the last level of the tree.
    pub(super) fn or_logged(&self) -> Self {
        let mut tree = self.tree.to_vec();
        if let Some(last) = tree.last_mut() {
            last.key = OrLogged::of(&last.key);
        }
        Self {
            tree: tree.into(),
            depth: self.depth,
        }
    }

    fn parts(&self) -> &[Part] {
        &self.tree[..self.depth]
    }

    /// Reads the parts that no level above has read.
    fn key_of(&self, head: &Head<'_>, parts: &mut Parts) -> Result<Key, Missing> {
        for part in self.parts().iter().skip(parts.read()) {
            match part.extract(head) {
                Ok(key) => parts.push(Some(key)),
                Err(Missing::ByClient) => parts.push(None),
                // Told first, even if the client has left out another part.
                Err(by_server) => return Err(by_server),
            }
        }
        let (root, below) = parts
            .down_to(self.depth)
            .and_then(<[Key]>::split_first)
            .ok_or(Missing::ByClient)?;
        Ok(Key::branch(*root, below))
    }
}

impl Extract for LevelKey {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match head.parts() {
            Some(shared) => {
                let tree = Arc::as_ptr(&self.tree).addr();
                self.key_of(head, &mut shared.of(tree))
            }
            None => self.key_of(head, &mut Parts::default()),
        }
    }

    fn identity(&self) -> Option<String> {
        if self.parts().iter().any(|part| part.is_shared) {
            return None;
        }
        let parts = self.parts().iter().map(|part| part.key.identity());
        Some(parts.collect::<Option<Vec<_>>>()?.join(" / "))
    }

    fn root(&self) -> Option<String> {
        let root = root_of(&self.parts().first()?.key);
        // A long key is shortened as a root, so it is another key than the same one alone.
        Some(format!("{root} as a root"))
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        let mut parts = self.parts().iter();
        parts.find_map(|part| part.key.credential_in_the_clear())
    }

    fn is_of_this_process(&self) -> bool {
        self.parts()
            .iter()
            .any(|part| part.key.is_of_this_process())
    }

    /// Tables of a level have its own keys.
    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        let own = self.parts().last().ok_or(Missing::ByClient)?;
        own.key.plain(head)
    }
}

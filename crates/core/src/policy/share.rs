//! Policies whose limit is a share of another policy's.

use std::collections::HashMap;
use std::sync::Arc;

use super::Policy;
use crate::algorithm::Share;
use crate::error::ConfigError;

/// The policy of whose limit another one has a share.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) of: Arc<str>,
    pub(crate) share: Share,
}

impl Policy {
    /// Makes a policy whose limit is a share of the limit of this one, such as that of each team of an organisation.
    ///
    /// - **The share** is from 0.000001 to 1, to the nearest millionth. The shares of keys need not add up to 1: this policy bounds
    ///   them together.
    /// - **The limit** has the algorithm and the period of this one. Its quota, its burst, its capacity or its places are the
    ///   share of those, each rounded up.
    /// - **Plans and resolvers** that set a limit for this policy set the share of it for the other, unless they speak of the other
    ///   themselves. Where they exempt this policy, they exempt the other.
    /// - **Hours** that this policy has now hold for the other, too: in an interval with a limit it has the share of that limit.
    /// - **A factor**, an override of a key and [`adjust_limit`](crate::Limiter::adjust_limit) concern the policy that they name
    ///   alone. So does everything else that a policy has, such as a mode.
    ///
    /// # Errors
    ///
    /// When the share is out of range, or this policy has no limit. Building a limiter or a layer fails if this policy is not before
    /// the other, or if it has limits by key, by operation or by a closure, which a share does not follow.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::key::{IntoKey, Key};
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let org = Policy::new("org", FixedWindow::per_minute(1_000));
    /// let team = org.share("team", 0.4)?;
    /// let limiter = Limiter::builder().policies([org, team]).build_local()?;
    ///
    /// let blue = Key::branch("acme", &["blue".into_key()]);
    /// let decision = limiter.named([("org", blue.root(), 1), ("team", blue, 1)])?.check().now();
    /// let limits: Vec<u32> = decision.policies().map(|(_, outcome)| outcome.limit()).collect();
    /// assert_eq!(limits, [1_000, 400]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn share(&self, name: impl Into<String>, share: f64) -> Result<Self, ConfigError> {
        if !self.is_limited() {
            let remedy = "give this policy a limit, of which another one can have a share";
            return Err(ConfigError::quoting("share", &self.name, remedy));
        }
        let Some(part) = Share::of(share) else {
            let remedy = "give a number from 0.000001 to 1, such as 0.4";
            return Err(ConfigError::new("share", share, remedy));
        };
        Ok(Self {
            above: Some(self.name.as_str().into()),
            part: Some(Part {
                of: self.name.as_str().into(),
                share: part,
            }),
            ..Self::new(name, self.algorithm.part(part))
        })
    }
}

/// Rejects a share of a limit that is not known here.
pub(crate) fn check_shares(policies: &[Policy]) -> Result<(), ConfigError> {
    if policies.iter().all(|policy| policy.part.is_none()) {
        return Ok(());
    }
    let mut before: HashMap<&str, &Policy> = HashMap::new();
    for policy in policies {
        if let Some(part) = &policy.part {
            policy.check_share(part, before.get(&*part.of).copied())?;
        }
        before.insert(&policy.name, policy);
    }
    Ok(())
}

impl Policy {
    fn check_share(&self, part: &Part, whole: Option<&Self>) -> Result<(), ConfigError> {
        let of = &*part.of;
        let error = |remedy: String| Err(ConfigError::quoting("share", &self.name, remedy));
        let Some(whole) = whole else {
            return error(format!(
                "add policy {of:?} before it, of whose limit it is a share"
            ));
        };
        if whole.has_limits_of_requests() {
            return error(format!(
                "leave limits by key, by operation and by a closure out of policy {of:?}: a share follows the limits of \
                 plans and of a resolver"
            ));
        }
        let of_whole = whole.algorithm.without_hours().part(part.share);
        if of_whole != self.algorithm.without_hours() {
            return error(format!(
                "take it of the policy {of:?} that is beside it, {}",
                whole.algorithm
            ));
        }
        Ok(())
    }
}

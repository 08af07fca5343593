//! Policies as levels of a tree.

use super::Policy;

impl Policy {
    /// Says that this policy is a level of a tree, below the policy of this name: that of a team below that of its organisation.
    ///
    /// It is shown so: an [`Inspection`](crate::limiter::Inspection) has it below that one, and so does the operator's page. It
    /// decides nothing by itself, since keys and costs are those that the caller passes; [`guaranteed`](Self::guaranteed) gives the policy a
    /// part of the one above. A policy with a [share](Self::share) of another one
    /// is below that one. A name that no policy has means nothing.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("org", FixedWindow::per_minute(1_000)))
    ///     .policy(Policy::new("team", FixedWindow::per_minute(400)).below("org"))
    ///     .build_local()?;
    /// assert_eq!(limiter.levels().collect::<Vec<_>>(), [("team", "org")]);
    /// assert_eq!(
    ///     limiter.inspect("acme").now().to_string(),
    ///     "org: nothing of 1000 used.\n  team: nothing of 400 used.\n",
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn below(mut self, policy: impl Into<String>) -> Self {
        let above: String = policy.into();
        self.above = Some(above.into());
        self
    }

    /// Returns the name of the policy above it in its tree: see [`below`](Self::below).
    pub fn above(&self) -> Option<&str> {
        self.above.as_deref()
    }
}

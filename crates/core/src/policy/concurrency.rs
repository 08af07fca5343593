use super::Policy;
use crate::error::ConfigError;

impl Policy {
    /// Rejects options that a policy on concurrency does not support.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn check_concurrency(&self) -> Result<(), ConfigError> {
        if !self.algorithm.limits_concurrency() {
            return Ok(());
        }
        let refuse =
            |field, remedy: &'static str| Err(ConfigError::quoting(field, &self.name, remedy));
        if self.factor.is_some() {
            return refuse(
                "factor",
                "leave it out: a limit on requests at once has no price",
            );
        }
        if self.penalty.is_some() {
            return refuse(
                "penalty",
                "give it to a policy on a rate: a concurrency limit has no wait that a client could obey",
            );
        }
        Ok(())
    }
}

//! Checks the options of a layer, and builds its enforcer.

use tower_ratelimit_core::__internal::Pointless;
#[cfg(feature = "tonic")]
use tower_ratelimit_core::__internal::ResolverOf;

use super::RateLimitLayerBuilder;
use crate::advice::{warn_of_invented_tenants, warn_of_sharing};
#[cfg(feature = "tonic")]
use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::middleware::RateLimitLayer;
use crate::middleware::enforcer::Enforcer;
use crate::policy::{Http, Policy};
use crate::response::Answers;
use crate::store::{Payers, Store};

/// An option that an interceptor does not support: its name, whether a policy has it, and the remedy.
#[cfg(feature = "tonic")]
type UnfitPolicy = (&'static str, fn(&Policy<Http>) -> bool, &'static str);

#[cfg(feature = "tonic")]
impl<S> RateLimitLayerBuilder<S> {
    /// Rejects options that an interceptor does not support.
    pub(in crate::middleware) fn check_for_interceptor(&self) -> Result<(), ConfigError> {
        if let Some(path) = self.lists.exempt_paths().first() {
            let remedy =
                "leave it out, since an interceptor is not told the path, or build a layer";
            return Err(ConfigError::quoting("exempt_paths", path, remedy));
        }
        let sees_no_end =
            "leave it out, since an interceptor does not see the end of a call, or build a layer";
        let unfit: [UnfitPolicy; 4] = [
            (
                "wait_up_to",
                |policy| policy.as_ref().may_hold(),
                "leave it out, since an interceptor cannot hold a call, or build a layer",
            ),
            (
                "concurrency",
                |policy| matches!(policy.algorithm(), Algorithm::Concurrency(_)),
                sees_no_end,
            ),
            ("settle", Policy::<Http>::settles, sees_no_end),
            (
                "leaky queue",
                |policy| policy.as_ref().shapes(),
                "build a layer, since an interceptor cannot hold a call, or give the policy an algorithm that only counts",
            ),
        ];
        let found = unfit.into_iter().find_map(|(field, is_unfit, remedy)| {
            let policy = self.policies.iter().find(|policy| is_unfit(policy))?;
            Some(ConfigError::quoting(field, policy.name(), remedy))
        });
        found.map_or(Ok(()), Err)
    }

    /// Treats every request as a gRPC call.
    pub(in crate::middleware) fn all_calls(mut self) -> Self {
        self.answers.grpc.take_all();
        self.sources.resolver = self.sources.resolver.map(ResolverOf::without_waiting);
        self
    }
}

impl<S> RateLimitLayerBuilder<S> {
    /// Each policy of one limit, and each limit of a plan, that can never bind because of another.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn pointless(&self) -> Vec<Pointless> {
        let scopes: Vec<_> = self.policies.iter().map(Policy::<Http>::scope).collect();
        let is_resolved = self.sources.resolver.is_some();
        self.limiter.pointless(&scopes, is_resolved)
    }
}

impl<S: Store> RateLimitLayerBuilder<S> {
    /// Returns two policies between which the store cannot choose who pays, since they are not known to have one key.
    fn policies_apart(&self) -> Option<[String; 2]> {
        let are_roots = match self.limiter.its_store().chooses_payers() {
            Payers::OfOneRoot => true,
            Payers::OfOneKey => false,
            _ => return None,
        };
        let key_of = |policy: &Policy<Http>| {
            let is_above = |other: &Policy<Http>| other.as_ref().above() == Some(policy.name());
            let is_level = policy.as_ref().above().is_some() || self.policies.iter().any(is_above);
            (
                policy.name().to_owned(),
                policy.identity(are_roots, is_level),
            )
        };
        let always_count = self.policies.iter().filter(|policy| policy.always_counts());
        let mut keys = always_count.map(key_of);
        let (first, its) = keys.next()?;
        let (other, _) = keys.find(|(_, key)| key.is_none() || *key != its)?;
        Some([first, other])
    }

    /// Builds the layer. A router takes the layer, not a `Result`: `.layer(builder.build()?)`.
    ///
    /// # Errors
    ///
    /// When
    ///
    /// - there is no policy,
    /// - a name cannot be part of a header, or appears twice,
    /// - the store cannot hold a policy exactly,
    /// - two dialects have a common header,
    /// - the status of refusals is not an error status,
    /// - a soft policy waits,
    /// - the jitter is not in whole seconds,
    /// - a gRPC message is too long,
    /// - a plan, a limit by key or a limit by operation is invalid,
    /// - limits are split over no node, or over nodes that share a store, or
    /// - an exempt path is not a path.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        self.build_enforcer().map(RateLimitLayer::of)
    }

    pub(in crate::middleware) fn build_enforcer(mut self) -> Result<Enforcer, ConfigError> {
        self.lists.check()?;
        self.policies.iter().try_for_each(Policy::check)?;
        self.answers.check()?;
        if self.limiter.its_store().is_shared() {
            self.policies.iter_mut().for_each(warn_of_sharing);
        }
        self.policies.iter().for_each(warn_of_invented_tenants);
        let pointless = self.pointless();
        let apart = self.policies_apart();
        let (policies, readers): (Vec<_>, Vec<_>) =
            self.policies.into_iter().map(Policy::split).unzip();
        let is_resolved = self.sources.resolver.is_some();
        let is_no_plan_named = self.sources.plan_of.is_none() && !is_resolved;
        let said = (is_resolved, is_no_plan_named);
        let (limiter, policies) = self.limiter.open_for(policies, said)?;
        match (limiter.groups().next(), apart) {
            (Some(group), Some([first, other])) => {
                let remedy = format!(
                    "let {first:?} and {other:?} have the same key, or make them levels of one tree: this store decides in one step \
                     on keys that it has in one place, and `first_of` needs one step; or take a store on one server. A closure that \
                     captures nothing has the same key as its clones; another extractor says what it reads by `Extract::root`"
                );
                return Err(ConfigError::quoting("first_of", group, remedy));
            }
            (Some(_), None) => {}
            // Of policies of which one pays, the laxest may be the last resort.
            (None, _) => {
                let of_policies = pointless.iter().filter(|it| it.plan().is_none());
                of_policies.for_each(Pointless::warn);
            }
        }
        let answers = Answers::new(self.answers, &policies);
        let mut enforcer = Enforcer::new(&policies, readers, limiter.erased(), answers);
        enforcer.set_sources(self.sources);
        enforcer.set_lists(self.lists);
        if self.exposes_decision {
            enforcer.expose_decision();
        }
        enforcer.set_hooks(self.hooks);
        Ok(enforcer)
    }
}

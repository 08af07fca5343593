//! The limits of a domain, in force.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{Algorithm, ConfigError, FixedWindow, Limiter, Policy};
use tower_ratelimit_config::__internal::state_name;

use super::file::{self, UNITS};
use super::question::{Demand, Limited};
use super::rules::{Found, Level, Rule, key};
use super::standby::Standby;
use super::statistics::{Counts, Statistics};
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use crate::envoy::messages::envoy::r#type::v3::RateLimitUnit;

/// Opens a limiter over the store of the server.
pub(super) type Open = dyn Fn(LimiterBuilder) -> Result<Limiter, ConfigError> + Send + Sync;

/// A domain and the limiter of all of its limits.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) top: Level,
    pub(super) limiter: Limiter,
    /// What stands in for the store; `None` if it always answers.
    pub(super) standby: Option<Standby>,
    overrides: Vec<Override>,
    /// Whether the answer has metadata: a limit has some, or is a quota among which a caller chooses.
    pub(super) tells_metadata: bool,
    replaces_some: bool,
}

/// The limits that callers give, of one unit.
#[derive(Debug)]
struct Override {
    unit: RateLimitUnit,
    policy: String,
    period: Duration,
    path: String,
    /// They take a place in the statistics with the first request.
    counts: OnceLock<Arc<Counts>>,
}

/// Why a limit that a caller gives cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    NoUnit,
    /// Its period has this many units.
    SeveralUnits(u32),
}

impl Domain {
    pub(super) fn open(
        file: file::Domain,
        open: &Open,
        charges_refused: bool,
    ) -> Result<Self, ConfigError> {
        let mut rules: Vec<&Arc<Rule>> = Vec::new();
        file.top.each(&mut |rule| rules.push(rule));
        // The headers of a response have the limits in this order, which is to be the same on all nodes.
        rules.sort_by_key(|rule| (rule.line, rule.policy.name()));
        let mut builder = Limiter::builder();
        for rule in &rules {
            if rule.algorithm().is_none() {
                continue;
            }
            let policy = rule.policy.clone().mode(Mode::Enforce);
            // One that charges refused requests, and one that chooses among quotas, has the numbers of a limit that is reached, and
            // decides by itself.
            builder = builder.policy(match rule.is_shadow {
                _ if charges_refused || rule.is_quota => policy.soft(),
                true => policy.mode(Mode::Shadow),
                false => policy,
            });
        }
        let mut overrides = Vec::new();
        for (name, unit, secs) in UNITS {
            let path = format!("(limit of the request) per {name}");
            let (policy, period) = (
                state_name(&file.name, &[(&*path, None)]),
                Duration::from_secs(secs),
            );
            // Its requests bring the limit.
            let its =
                Policy::new(&policy, FixedWindow::new(1, period)?).limit_by(|_| None::<Algorithm>);
            builder = builder.policy(if charges_refused { its.soft() } else { its });
            let unit = unit_of_override(unit);
            overrides.push(Override {
                unit,
                policy,
                period,
                path,
                counts: OnceLock::new(),
            });
        }
        let limiter = open(builder.clone())?;
        Ok(Self {
            standby: Standby::of(&limiter, builder)?,
            limiter,
            tells_metadata: rules
                .iter()
                .any(|rule| rule.is_quota || rule.metadata.is_some()),
            replaces_some: rules.iter().any(|rule| !rule.replaces.is_empty()),
            overrides,
            name: file.name,
            top: file.top,
        })
    }

    /// Returns whether the store answers a question about a key that no descriptor has. Nothing is charged.
    pub(super) async fn reaches_the_store(&self) -> bool {
        // Each domain has these limits.
        let Some(its) = self.overrides.first() else {
            return true;
        };
        let Ok(limit) = FixedWindow::new(1, its.period) else {
            return true;
        };
        let demand = (&*its.policy, "ratelimitd: ready?", 1);
        let limit = (&*its.policy, limit.into());
        let named = self.limiter.named([demand]);
        match named.and_then(|named| named.under([limit])) {
            Ok(named) => {
                let decision = named.peek().await;
                decision.is_ok_and(|decision| !decision.is_degraded())
            }
            Err(_) => true,
        }
    }

    /// Returns the demand of each descriptor at this many units, if it says no other number.
    pub(super) fn demands<'a>(
        &'a self,
        descriptors: &[RateLimitDescriptor],
        hits: u32,
        statistics: &Statistics,
    ) -> Result<Vec<Demand<'a>>, Unusable> {
        let demands = descriptors.iter().map(|descriptor| {
            let hits = descriptor
                .hits_addend
                .map_or(hits, |own| u32::try_from(own).unwrap_or(u32::MAX));
            match descriptor.limit {
                Some(own) => self.own_limit(descriptor, own, hits, statistics),
                None => Ok(self.limit_of_file(descriptor, hits, statistics)),
            }
        });
        let mut demands = demands.collect::<Result<Vec<_>, _>>()?;
        if self.replaces_some {
            drop_replaced(&mut demands);
        }
        Ok(demands)
    }

    fn limit_of_file<'a>(
        &'a self,
        descriptor: &RateLimitDescriptor,
        hits: u32,
        statistics: &Statistics,
    ) -> Demand<'a> {
        let Some(Found { rule, key, path }) = self.top.find(&descriptor.entries) else {
            return Demand::Nothing;
        };
        let Some(algorithm) = rule.algorithm() else {
            return Demand::Unlimited(rule);
        };
        Demand::Limited(Limited {
            policy: rule.policy.name(),
            key,
            hits,
            algorithm,
            rule: Some(rule),
            counts: match path {
                None => Arc::clone(&rule.counts),
                Some(path) => statistics.of(&self.name, &path),
            },
        })
    }

    fn own_limit<'a>(
        &'a self,
        descriptor: &RateLimitDescriptor,
        own: RateLimitOverride,
        hits: u32,
        statistics: &Statistics,
    ) -> Result<Demand<'a>, Unusable> {
        if let Some(units) = own.unit_multiplier.filter(|units| *units > 1) {
            return Err(Unusable::SeveralUnits(units));
        }
        let unit = own.unit();
        let its = self
            .overrides
            .iter()
            .find(|its| its.unit == unit)
            .ok_or(Unusable::NoUnit)?;
        let algorithm =
            FixedWindow::new(own.requests_per_unit, its.period).map_err(|_| Unusable::NoUnit)?;
        let entries = descriptor.entries.iter();
        Ok(Demand::Limited(Limited {
            policy: &its.policy,
            key: key(entries.map(|entry| (&*entry.key, &*entry.value))),
            hits,
            algorithm: algorithm.into(),
            rule: None,
            counts: Arc::clone(
                its.counts
                    .get_or_init(|| statistics.of(&self.name, &its.path)),
            ),
        }))
    }
}

/// Drops the limits that another limit of the same request replaces.
fn drop_replaced(demands: &mut [Demand<'_>]) {
    let mut replaced: HashSet<&str> = HashSet::new();
    for demand in &*demands {
        if let Some(rule) = demand.rule() {
            replaced.extend(rule.replaces.iter().map(String::as_str));
        }
    }
    for demand in demands {
        let name = demand.rule().and_then(|rule| rule.name.as_deref());
        if name.is_some_and(|name| replaced.contains(name)) {
            *demand = Demand::Nothing;
        }
    }
}

fn unit_of_override(unit: Unit) -> RateLimitUnit {
    RateLimitUnit::try_from(i32::from(unit)).unwrap_or_default()
}

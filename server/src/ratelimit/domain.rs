//! The limits of a domain, in force.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tower_ratelimit::{ConfigError, FixedWindow};

use super::file;
use super::limiters::{Limiters, Opening, Period, Unusable, rules};
use super::question::{Demand, Limited};
use super::rules::{Found, Level, key};
use super::statistics::{Counts, Statistics};
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

/// The limits of a domain, in force.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) top: Level,
    limiters: RwLock<Arc<Limiters>>,
    /// Held while a period is added to them.
    adding: Mutex<()>,
    /// Whether the answer has metadata: a limit has some, or is a quota among which a caller chooses.
    pub(super) tells_metadata: bool,
    replaces_some: bool,
}

impl Domain {
    /// Opens the limits of a file, and those that callers have given in these periods of several units.
    pub(super) fn open(
        file: file::Domain,
        opening: Opening<'_>,
        periods: &[Period],
    ) -> Result<Self, ConfigError> {
        let limiters = Limiters::open((&file.name, &file.top), opening, periods)?;
        let rules = rules(&file.top);
        Ok(Self {
            tells_metadata: rules
                .iter()
                .any(|rule| rule.is_quota || rule.metadata.is_some()),
            replaces_some: rules.iter().any(|rule| !rule.replaces.is_empty()),
            limiters: RwLock::new(Arc::new(limiters)),
            adding: Mutex::default(),
            name: file.name,
            top: file.top,
        })
    }

    pub(super) fn limiters(&self) -> Arc<Limiters> {
        let limiters = self.limiters.read();
        Arc::clone(&limiters.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the limiter that has the limits of these descriptors too.
    pub(super) fn limiters_of(
        &self,
        descriptors: &[RateLimitDescriptor],
        opening: Opening<'_>,
    ) -> Result<Arc<Limiters>, Unusable> {
        let limiters = self.limiters();
        if limiters.has(descriptors) {
            return Ok(limiters);
        }
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have added some just now.
        let before = self.limiters();
        let with = before.with((&self.name, &self.top), descriptors, opening)?;
        let Some(next) = with.map(Arc::new) else {
            return Ok(before);
        };
        let mut limiters = self
            .limiters
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *limiters = Arc::clone(&next);
        Ok(next)
    }

    /// Returns whether the store answers a question about a key that no descriptor has. Nothing is charged.
    pub(super) async fn reaches_the_store(&self) -> bool {
        let limiters = self.limiters();
        let Some(its) = limiters.any_override() else {
            return true;
        };
        let Ok(limit) = FixedWindow::new(1, its.length) else {
            return true;
        };
        let demand = (&*its.policy, "ratelimitd: ready?", 1);
        let limit = (&*its.policy, limit.into());
        let named = limiters.limiter.named([demand]);
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
        limiters: &'a Limiters,
        descriptors: &[RateLimitDescriptor],
        hits: u32,
        statistics: &Statistics,
    ) -> Result<Vec<Demand<'a>>, Unusable> {
        let demands = descriptors.iter().map(|descriptor| {
            let hits = descriptor
                .hits_addend
                .map_or(hits, |own| u32::try_from(own).unwrap_or(u32::MAX));
            match descriptor.limit {
                Some(own) => {
                    let counts = |path: &str| statistics.of(&self.name, path);
                    own_limit(limiters, descriptor, own, hits, counts)
                }
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
            unit: rule.unit,
            multiplier: rule.multiplier,
            rule: Some(rule),
            counts: match path {
                None => Arc::clone(&rule.counts),
                Some(path) => statistics.of(&self.name, &path),
            },
        })
    }
}

/// Returns the demand of a descriptor that brings this limit.
fn own_limit<'a>(
    limiters: &'a Limiters,
    descriptor: &RateLimitDescriptor,
    own: RateLimitOverride,
    hits: u32,
    counts: impl FnOnce(&str) -> Arc<Counts>,
) -> Result<Demand<'a>, Unusable> {
    let period = Period::of(&own).ok_or(Unusable::NoUnit)?;
    let its = limiters.override_of(period).ok_or(Unusable::NoUnit)?;
    let algorithm =
        FixedWindow::new(own.requests_per_unit, its.length).map_err(|_| Unusable::NoUnit)?;
    let entries = descriptor.entries.iter();
    Ok(Demand::Limited(Limited {
        policy: &its.policy,
        key: key(entries.map(|entry| (&*entry.key, &*entry.value))),
        hits,
        algorithm: algorithm.into(),
        unit: period.unit,
        multiplier: own.unit_multiplier.filter(|units| *units > 1),
        rule: None,
        counts: Arc::clone(its.counts.get_or_init(|| counts(&its.path))),
    }))
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

//! The limiter of a domain, which has the limits of its file and those that callers give.
//!
//! A policy has one period, and a caller chooses that of its limit. Those of one unit are there from the start. One of several units is
//! added with the first descriptor that has it: a limiter with that policy too takes the place of the one before, over the same states.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{Algorithm, ConfigError, FixedWindow, Limiter, Policy};
use tower_ratelimit_config::__internal::state_name;

use super::file::UNITS;
use super::rules::{Level, Rule};
use super::standby::Standby;
use super::statistics::Counts;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// Opens a limiter over the store of the server.
pub(super) type Open = dyn Fn(LimiterBuilder) -> Result<Limiter, ConfigError> + Send + Sync;

/// The most periods of several units in one domain.
const MOST_PERIODS: usize = 16;

/// The limiter of all limits of a domain.
#[derive(Debug)]
pub(super) struct Limiters {
    pub(super) limiter: Limiter,
    /// What stands in for the store; `None` if it always answers.
    pub(super) standby: Option<Standby>,
    overrides: Vec<Override>,
}

/// The limits that callers give, of one period.
#[derive(Clone, Debug)]
pub(super) struct Override {
    period: Period,
    pub(super) policy: String,
    pub(super) length: Duration,
    pub(super) path: String,
    /// They take a place in the statistics with the first request.
    pub(super) counts: OnceLock<Arc<Counts>>,
}

/// So many units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) unit: Unit,
    units: u32,
}

/// Why a limit that a caller gives cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    NoUnit,
    /// Its period has this many units, and is not counted.
    Units(u32, String),
}

/// Who opens limiters, and how they decide.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) open: &'a Open,
    /// Whether refused requests are charged.
    pub(super) charges_refused: bool,
}

impl Period {
    /// Returns the period of a limit; `None` if it has no unit.
    pub(super) fn of(limit: &RateLimitOverride) -> Option<Self> {
        let unit = Unit::try_from(limit.unit).ok();
        let unit = unit.filter(|unit| *unit != Unit::Unknown)?;
        let units = limit.unit_multiplier.unwrap_or(1).max(1);
        Some(Self { unit, units })
    }

    fn override_in(self, domain: &str) -> Result<Option<Override>, ConfigError> {
        let Self { unit, units } = self;
        let Some((name, _, secs)) = UNITS.iter().find(|(_, its, _)| *its == unit) else {
            return Ok(None);
        };
        let path = match units {
            1 => format!("(limit of the request) per {name}"),
            _ => format!("(limit of the request) per {units} {name}s"),
        };
        let length = Duration::from_secs(secs * u64::from(units));
        // Whether it can be counted.
        FixedWindow::new(1, length)?;
        Ok(Some(Override {
            period: self,
            policy: state_name(domain, &[(&*path, None)]),
            length,
            path,
            counts: OnceLock::new(),
        }))
    }
}

impl Limiters {
    /// Opens the limits of a file, and those of these periods of several units.
    pub(super) fn open(
        (domain, top): (&str, &Level),
        opening: Opening<'_>,
        periods: &[Period],
    ) -> Result<Self, ConfigError> {
        let units = UNITS.map(|(_, unit, _)| Period { unit, units: 1 });
        let periods = units.iter().chain(periods);
        let overrides = periods.map(|period| period.override_in(domain));
        let overrides: Result<Vec<_>, _> = overrides.collect();
        Self::of(
            top,
            opening,
            overrides?.into_iter().flatten().collect(),
            None,
        )
    }

    fn of(
        top: &Level,
        Opening {
            open,
            charges_refused,
        }: Opening<'_>,
        overrides: Vec<Override>,
        before: Option<&Self>,
    ) -> Result<Self, ConfigError> {
        let mut builder = Limiter::builder();
        for rule in rules(top) {
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
        for its in &overrides {
            // Its requests bring the limit.
            let policy = Policy::new(&its.policy, FixedWindow::new(1, its.length)?);
            let policy = policy.limit_by(|_| None::<Algorithm>);
            builder = builder.policy(if charges_refused {
                policy.soft()
            } else {
                policy
            });
        }
        let limiter = open(builder.clone())?;
        let before = before.and_then(|before| before.standby.as_ref());
        Ok(Self {
            standby: Standby::of(&limiter, builder, before)?,
            limiter,
            overrides,
        })
    }

    /// Returns this limiter with the limits of these descriptors too; `None` if it has them.
    pub(super) fn with(
        &self,
        (domain, top): (&str, &Level),
        descriptors: &[RateLimitDescriptor],
        opening: Opening<'_>,
    ) -> Result<Option<Self>, Unusable> {
        let mut overrides = self.overrides.clone();
        for period in periods(descriptors) {
            if overrides.iter().any(|its| its.period == period) {
                continue;
            }
            let refuse = |why: String| Unusable::Units(period.units, why);
            if overrides.len() == UNITS.len() + MOST_PERIODS {
                return Err(refuse(format!(
                    "{MOST_PERIODS} other periods are counted, and no more; send one of them, or write a limit of that period into the file"
                )));
            }
            let added = period.override_in(domain);
            overrides.extend(added.map_err(|error| refuse(error.to_string()))?);
        }
        if overrides.len() == self.overrides.len() {
            return Ok(None);
        }
        let units = overrides.last().map_or(1, |its| its.period.units);
        let opened = Self::of(top, opening, overrides, Some(self));
        let opened = opened.map_err(|error| Unusable::Units(units, error.to_string()));
        opened.map(Some)
    }

    /// Returns whether the limiter has the limits that these descriptors bring.
    pub(super) fn has(&self, descriptors: &[RateLimitDescriptor]) -> bool {
        periods(descriptors).all(|period| self.override_of(period).is_some())
    }

    pub(super) fn override_of(&self, period: Period) -> Option<&Override> {
        self.overrides.iter().find(|its| its.period == period)
    }

    /// Returns one of the limits that each domain has.
    pub(super) fn any_override(&self) -> Option<&Override> {
        self.overrides.first()
    }

    /// Returns the periods of several units.
    pub(super) fn periods(&self) -> Vec<Period> {
        let periods = self.overrides.iter().map(|its| its.period);
        periods.filter(|period| period.units > 1).collect()
    }
}

/// Returns the limits of a file in their order.
pub(super) fn rules(top: &Level) -> Vec<&Arc<Rule>> {
    let mut rules: Vec<&Arc<Rule>> = Vec::new();
    top.each(&mut |rule| rules.push(rule));
    // The headers of a response have the limits in this order, which is to be the same on all nodes.
    rules.sort_by_key(|rule| (rule.line, rule.policy.name()));
    rules
}

fn periods(descriptors: &[RateLimitDescriptor]) -> impl Iterator<Item = Period> {
    let limits = descriptors.iter().filter_map(|it| it.limit.as_ref());
    limits.filter_map(Period::of)
}

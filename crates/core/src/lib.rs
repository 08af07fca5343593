#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "quanta", feature = "serde")),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the documentation speaks of all features; without them some of its links lead nowhere"
    )
)]
#![doc = include_str!("../README.md")]

pub mod algorithm;
pub mod calendar;
pub mod clock;
pub mod decision;
pub mod diagnostics;
pub mod error;
pub mod factor;
pub mod key;
pub mod limiter;
pub mod observe;
pub mod plan;
pub mod policy;
pub mod quota;
pub mod service;
pub mod store;

mod advice;
mod line;

pub use self::algorithm::{
    Algorithm, AnchoredWindow, Concurrency, FixedWindow, Gcra, Hours, LeakyBucket, LeakyQueue,
    SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};
pub use self::clock::{ManualClock, Micros};
pub use self::decision::{Decision, Outcome};
pub use self::error::{ConfigError, RestoreError, StoreError};
pub use self::limiter::{Limiter, LocalLimiter};
pub use self::policy::{OnStoreFailure, Policy};
pub use self::quota::Quota;
pub use self::service::LimitLayer;
pub use self::store::{MemoryStore, SharedStore};

/// What the other crates of the workspace use. It is no part of the API, and may change in any version.
// For the crates of the workspace alone.
#[doc(hidden)]
pub mod __internal {
    pub use crate::advice::never_binds::Pointless;
    pub use crate::algorithm::kind::Replenishment;
    pub use crate::algorithm::lua::Lua;
    pub use crate::algorithm::step::{Fixed, Step, WithRule, read};
    pub use crate::calendar::civil::{Interval, LocalTime, read_zone_data_again};
    pub use crate::clock::timer::{Timer, Timers};
    pub use crate::decision::names::Rule;
    pub use crate::decision::outcome::DenialEffect;
    pub use crate::diagnostics::{Warning, diagnose, warn_once_in_lines, warn_once_of};
    pub use crate::error::or_panic;
    pub use crate::limiter::charging::{Purpose, Reads, Steps};
    pub use crate::limiter::client_charges::ClientCharges;
    pub use crate::limiter::policies::Policies;
    pub use crate::limiter::reservation::guard::{RealCost, ReservationGuard};
    pub use crate::limiter::verdict::{
        ChargedRequest, Denial, LimiterVerdict, Numbers, PendingDecision,
    };
    pub use crate::limiter::waiting::NO_TIMER;
    pub use crate::line::future::{Answering, Holding, LayerVerdict, PendingCall, Verdict};
    pub use crate::line::row::{Position, Row, Woken};
    pub use crate::observe::metric::{Kind, Metric, Published, Value};
    pub use crate::observe::monitor::Monitored;
    pub use crate::observe::snapshot::policy::Count;
    pub use crate::observe::snapshot::request::Request;
    pub use crate::observe::times::Times;
    pub use crate::plan::limits::{LimitContext, Limits};
    pub use crate::plan::operations::LimitsByOperation;
    pub use crate::plan::plans::ChosenPlan;
    pub use crate::plan::resolver::{Finding, PlanLookup};
    pub use crate::plan::sources::{PlanOf, ResolverOf, Sources, Subject};
    pub use crate::policy::demand::{Demand, NoDemand};
    pub use crate::policy::leasing::LEAST_LEASED;
    pub use crate::policy::names::check_names;
    pub use crate::policy::penalty::NamedPenalty;
    pub use crate::policy::scope::{Keyless, Scope};
    pub use crate::store::Charges;
    pub use crate::store::allotment::Allotment;
    pub use crate::store::charged::{answered, cannot_have};
    pub use crate::store::denials::cache::{DenialCache, Remembered, SHARDS, Sent};
    pub use crate::store::denials::epochs::{KeyEpoch, KeyEpochs};
    pub use crate::store::hashed::Hashed;
    pub use crate::store::in_use::SlotsInUse;
    pub use crate::store::outage::breaker::KeyPart;
    pub use crate::store::outage::standby::{Instead, Standby};
    pub use crate::store::outage::watch::{Probe, Remote, Watch, late};
    pub use crate::store::outlook::KeyOutlook;
    pub use crate::store::renewal::{Renews, keep, not_renewed, renew_each, renew_part};
    pub use crate::store::sealed::Sealed;
    pub use crate::store::shared::change::Meanwhile;
}

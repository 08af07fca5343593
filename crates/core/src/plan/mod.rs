//! Plans: the limit of a request under each policy.
//!
//! A policy sets how something is counted, and has a limit. Customers have limits of their own: a [`Plan`] is
//! a named set of limits, one for each policy that it mentions. [`KeyLimits`] set limits by key,
//! [`Operations`] by what a request does, and a closure by either. The limit travels with the charge and is
//! not part of a state, so a key that changes its plan keeps what it has used.
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! use tower_ratelimit::plan::{Plan, Plans};
//! use tower_ratelimit::{AnchoredWindow, Limiter, Policy};
//!
//! let plans = Plans::new([
//!     Plan::new("free")
//!         .limit("minute", AnchoredWindow::per_minute(10))
//!         .limit("day", AnchoredWindow::per_day(100)),
//!     Plan::new("pro")
//!         .limit("minute", AnchoredWindow::per_minute(100))
//!         .limit("day", AnchoredWindow::per_day(10_000)),
//!     Plan::new("enterprise")
//!         .unlimited("minute")
//!         .limit("day", AnchoredWindow::per_day(1_000_000)),
//! ]);
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("minute", AnchoredWindow::per_minute(10)))
//!     .policy(Policy::new("day", AnchoredWindow::per_day(100)))
//!     .plans(plans, |key| key.starts_with("pro-").then_some("pro"))
//!     .build_local()?;
//!
//! let decision = limiter.check("pro-ann", 1).now();
//! let (_, minute) = decision.policies().next().unwrap();
//! assert_eq!((minute.limit(), minute.remaining()), (100, 99));
//! assert_eq!(decision.rule().unwrap().to_string(), "plan pro");
//! assert!(!limiter.check("bob", 11).now().is_allowed());
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```
//!
//! # Which limit holds
//!
//! The first of these that gives a limit:
//!
//! | rule | given by |
//! | --- | --- |
//! | override | [`Limiter::override_limit`](crate::Limiter::override_limit), for one key and a time |
//! | resolver | the limits that a `Resolver` gives |
//! | operation | [`Policy::operations`](crate::Policy::operations) |
//! | closure | [`Policy::limit_by`](crate::Policy::limit_by) |
//! | key | [`Policy::key_limits`](crate::Policy::key_limits): the exact key, then the longest prefix, then `other` |
//! | plan | the plan of the request, or the default plan |
//! | policy | the limit with which the policy was declared |
//!
//! Lists and blocks come before all of them: a list that denies, a list that allows, a block of the key. A
//! policy that is unlimited for a request, or that its plan does not mention, does not count that request. A policy with a
//! [share](crate::Policy::share) of the limit of another one is mentioned where that one is.

mod adjusted;
mod choice;
mod key_limits;
mod limit_by;
pub(crate) mod limits;
pub(crate) mod operations;
pub(crate) mod plans;
pub(crate) mod resolver;
pub(crate) mod sources;

pub use self::key_limits::KeyLimits;
pub use self::operations::Operations;
pub use self::plans::{Plan, Plans};
pub use self::resolver::{Resolved, Resolver, ResolverBuilder, ResolverUsage};

pub(crate) use self::choice::{Choice, RuleLimit};
pub(crate) use self::limit_by::LimitBy;
pub(crate) use self::limits::{LimitContext, Limited, Limits};
pub(crate) use self::plans::ChosenPlan;
pub(crate) use self::resolver::{Finding, PendingLookup, PlanLookup};
pub(crate) use self::sources::{PlanOf, ResolverOf, Sources, Subject};

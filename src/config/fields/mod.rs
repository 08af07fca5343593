//! The fields of the tables that are read by hand.

mod adapt;
mod limits;
mod policy;
mod root;
mod store;

pub(super) use self::adapt::CLASS;
#[cfg(feature = "adapt")]
pub(super) use self::adapt::{ADAPT, CONCURRENCY, PARTITION, STEP};
pub(super) use self::limits::{KEY_LIMITS, LIMIT, QUOTA};
#[cfg(feature = "calendar")]
pub(super) use self::policy::HOURS;
pub(super) use self::policy::POLICY;
#[cfg(feature = "resolver")]
pub(super) use self::root::RESOLVER;
pub(super) use self::root::{LISTS, PLAN_OF, PROXIES, ROOT};
#[cfg(feature = "redis-sentinel")]
pub(super) use self::store::SENTINEL;
pub(super) use self::store::{ENV, STORE};

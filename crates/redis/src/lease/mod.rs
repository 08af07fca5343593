//! Leases: units of a key that a node takes at once, to spend them by itself.
//!
//! A leased unit is no part of the state of its key until it is spent. The state is the one that every node reads, and
//! beside it stand the units that nodes hold, in classes: all units of a class have the same end. The rule is the same
//! for all algorithms:
//!
//! - **Grant.** Units are granted if the state would admit them together with all units that are held
//!   already.
//! - **Spend.** A node spends a unit before the end of its class, and never later.
//! - **Charge late.** A held unit is charged when the node reports that it is spent, or else one microsecond
//!   before the end of its class, whether it was spent or not. Until then it is held, and does not drain or
//!   expire anywhere.
//! - **Give back.** A unit that is given back before its end was never there.
//!
//! # Why no more is admitted than without leases
//!
//! Let `g ≤ s ≤ c` be the moments at which a unit is granted, spent and charged. At each grant, the state
//! with all held units fits under the limit. This is the invariant, and it needs to be tested at grants only:
//! reporting and ending move units from the held ones to the state, at a moment that is not before `s`, and
//! giving back lowers the sum.
//!
//! - *Buckets.* Let `V(t) = max over u ≤ t of (units spent in [u, t] − what drains in t − u)` be the level of the plain
//!   bucket. A unit spent in `[u, t]` is held at `t`, or was charged in `[u, t]`, since `c ≥ s`. So `V ≤ debt + held`, and
//!   that is at most the capacity at each grant, falls between grants, and stays the same when a unit is charged.
//! - *Log.* Of the units spent in `(t − W, t]`, take the one with the latest grant. At that grant each of the others was
//!   granted. It was held, or it counted: it was charged at `c ≥ s > t − W`. So they are at most the limit.
//! - *Windows and slots.* Of the units spent in a window, take the one with the latest grant. If that grant
//!   is in the same window, each of the others was held at that grant, or charged in the window, since `c ≥
//!   s`. If it is before the window, all of them were held at once. A unit that was spent in an earlier
//!   window and is charged in this one counts more than it has to. So the rule holds at every spend, and not
//!   only at every grant. A bucket by interval is a bucket that drains in steps.
//!
//! Classes of windows, slots and intervals end with these nevertheless, because a unit that is reported late
//! would count in the next one. And only a request opens a window or starts an interval. If a grant did, the
//! window would begin before its first request.
//!
//! Refunds and resets change the state alone. Held units stay held, so a refund frees no unit that a node may
//! still spend. If windows counted leased units at once, a reset would forgive them, and so would a refund of
//! more than was spent.
//!
//! # Limits that are divided among tenants
//!
//! A pair is a tenant's, and what nodes hold stands beside the state of the shared key, whoever holds it: so all of the above holds
//! for the shared limit. What differs is who may have a unit:
//!
//! - **Grant.** Only units that the tenant claims are granted, and its tag moves on at the grant, by as much as for so many requests of one
//!   unit. So a grant is never more than these requests would have taken, and no claim of another tenant is taken.
//! - **Give back.** The tag moves back, up to the tenant's share of the burst. A unit that has ended unreported stays charged.
//! - **Active.** A question for units makes its tenant active, as a request does, and so does a report of a node that has had requests.
//!   Units live for half as long as a tenant counts that does not ask, at most. So a tenant whose node spends units, or refuses requests
//!   until it asks again, is active.
//!
//! `pair.rs` is the node's part, without a clock and without I/O. `../leases.rs` keeps the pairs of a node,
//! and `../lending.rs` sends their questions. `tests/unit/leases/simulation` plays both parts in virtual time.
//!
//! # Time
//!
//! No two clocks need to agree. The server tells how long a class lasts from the moment of the grant, and the
//! node counts that from the moment at which it *sent* the question. So the end at the node is never later
//! than the end at the server, as long as the clock of the node runs no slower than by one in a thousand.
//!
//! A class never ends later than the longest life after now. If the server's clock has stepped back, so that
//! a class would, its end is moved to that: not before the end that its node knows. Nodes go on to name the
//! class by the end that it had, so no later class may have that end: the mark counts how often ends were
//! moved, and later classes end sooner by as many microseconds.
//!
//! If the clock has stepped forward, classes end too early at the server, and as much as was held is admitted
//! in excess, once. A sliding window weighs the window before it by the time: when the clock steps back, that
//! weighs more again, and held units are spent by the weight of their grant.

#[cfg(test)]
#[path = "../../tests/unit/leases/agreement.rs"]
mod agreement;
mod ask;
mod leased;
mod node_clock;
mod pair;
#[cfg(test)]
#[path = "../../tests/unit/leases/simulation/mod.rs"]
mod simulation;
mod terms;

pub(super) use self::ask::{Grant, UnitsReport, UnitsRequest};
pub(super) use self::leased::{Leased, LeasedRequest};
pub(super) use self::node_clock::NodeClock;
pub(super) use self::pair::{LeaseReply, Pair, Way};
pub(super) use self::terms::Terms;

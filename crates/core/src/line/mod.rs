//! Lines in which requests wait for their turn, under every layer.
//!
//! - In a [`LeakyQueue`](crate::LeakyQueue), the store tells each request when its turns begin. [`Lines`] hold the
//!   requests of one key in this process in that order, since timers alone would bunch what is due within a
//!   millisecond or so. When a request goes away before its turn, those behind it move up along the turns that the line
//!   holds, and the turns at the end of the line are given back to the store. What the store cannot take back is spare: the
//!   line keeps it for the next requests until it begins. If tenants share the key, a `Round` says whose request goes on next.
//! - Under [`wait_up_to`](crate::Policy::wait_up_to), requests stand in a [`WaitQueue`], and the first of each line asks
//!   its store again when its wait is over. [`Estimate`] computes how long a request waits beside others.
//! - Outgoing calls stand in a [`Row`] for each key, an ordered list of requests that the wait queue uses
//!   too.
//!
//! [`PendingCall`] is the future of a request that is held and then goes on.

mod estimate;
pub(crate) mod future;
mod given_up;
mod leaving;
mod lines;
mod order;
mod round;
pub(crate) mod row;
mod stretch;
mod turn;
mod vacancy;
mod wait_queue;

pub(crate) use self::estimate::Estimate;
pub(crate) use self::future::{Answering, Holding, LayerVerdict, PendingCall, Verdict};
pub(crate) use self::leaving::Leaving;
pub(crate) use self::lines::{LineOf, Lines, NoTimer};
pub(crate) use self::order::Free;
pub(crate) use self::round::Tenant;
pub(crate) use self::row::Position;
pub(crate) use self::stretch::Place;
pub(crate) use self::turn::Turn;
pub(crate) use self::vacancy::{Vacancy, slots_are_freed};
pub(crate) use self::wait_queue::{
    LineId, Number, QueuedCharges, WaitPlace, WaitQueue, queued_charges,
};

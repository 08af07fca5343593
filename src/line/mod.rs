//! Lines in which requests wait for their turn in a [`LeakyQueue`](crate::LeakyQueue).
//!
//! The store tells each request when its turns begin. A line holds the requests of one key in this
//! process in that order, since timers alone would bunch what is due within a millisecond or so. When a
//! request goes away before its turn, those behind it move up along the turns that the line holds, and
//! the turns at the end of the line are given back to the store.

mod leaving;
mod lines;
mod order;
mod stretch;
mod turn;
#[cfg(feature = "http")]
mod vacancy;

#[cfg(feature = "http")]
pub(crate) use self::leaving::Leaving;
pub(crate) use self::lines::{Lines, NoTimer};
pub(crate) use self::order::Free;
pub(crate) use self::stretch::Place;
pub(crate) use self::turn::Turn;
#[cfg(feature = "http")]
pub(crate) use self::vacancy::{Vacancy, slots_are_freed};

//! The list of the charges that a request holds.

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::decision::{FreeLists, Reused, ReusedList};
use crate::store::{Charge, Taken};

/// A charge that is settled at the end of its request, or released if it holds slots.
#[derive(Clone, Copy)]
pub(super) struct ReservedCharge {
    pub(super) charge: Charge,
    /// `None` if it holds slots.
    pub(super) taken: Option<Taken>,
}

thread_local! {
    static FREE: FreeLists<ReservedCharge> = const { RefCell::new(Vec::new()) };
}

impl Reused for ReservedCharge {
    const ROOM: usize = 4;
    const LONGEST: usize = 32;

    fn free_lists() -> &'static LocalKey<FreeLists<Self>> {
        &FREE
    }
}

/// One charge is stored in place: more would be most of a reservation.
pub(super) type ReservedCharges = ReusedList<ReservedCharge, 1>;

//! The list of the outcomes of a request.

use std::cell::RefCell;
use std::thread::LocalKey;

use super::outcome::Outcome;
use super::reused_list::{FreeLists, Reused, ReusedList};

/// The policy of an outcome, and the rule that gave the limit, by their indices in the limiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyRule {
    pub(super) policy: u32,
    pub(super) rule: u32,
}

impl PolicyRule {
    #[inline]
    pub(super) fn of(policy: usize) -> Self {
        let policy = u32::try_from(policy).unwrap_or(u32::MAX);
        Self { policy, rule: 0 }
    }

    #[inline]
    pub(super) fn policy(self) -> usize {
        self.policy as usize
    }
}

type One = (PolicyRule, Outcome);

thread_local! {
    static FREE: FreeLists<One> = const { RefCell::new(Vec::new()) };
}

impl Reused for One {
    const ROOM: usize = 8;
    const LONGEST: usize = 64;

    fn free_lists() -> &'static LocalKey<FreeLists<Self>> {
        &FREE
    }
}

/// Up to four outcomes are stored in place: with eight, a decision on one policy takes 16 % more instructions.
pub(super) type Each = ReusedList<One, 4>;

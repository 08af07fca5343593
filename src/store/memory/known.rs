//! The fast path of a decision on several policies: each key is known, and its page is at rest.
//!
//! It makes one pass over the charges that reads each key, one that locks each page in the order of the
//! tables, and one that writes. In all other cases it changes nothing, and the general path decides.

use smallvec::SmallVec;

use super::counter::{OutcomeSink, Wanted};
use super::opened::Opened;
use super::page_snapshot::{Ask, Known};
use super::prepared::LimitSource;
use super::seqlock::Lock;
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::decision::Outcomes;

/// The number of policies up to which a request takes the fast path.
const MOST: usize = 8;

struct Part<'a, L> {
    opened: &'a Opened,
    policy: usize,
    ask: Ask,
    limit: L,
    known: Known<'a>,
    lock: Option<Lock<'a>>,
}

/// A charge of one policy.
pub(super) struct KnownCharge<L> {
    pub(super) policy: usize,
    pub(super) ask: Ask,
    pub(super) is_soft: bool,
    pub(super) limit: L,
}

/// How charges bring limits of their own. `()` brings none, and costs nothing.
pub(super) trait ChargeLimits: Copy {
    fn look_up(self, opened: &Opened, ask: Ask, now: Micros) -> Option<Known<'_>>;

    fn charge(
        self,
        opened: &Opened,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    );
}

impl ChargeLimits for () {
    #[inline]
    fn look_up(self, opened: &Opened, ask: Ask, now: Micros) -> Option<Known<'_>> {
        if opened.limit.is_some() {
            return None;
        }
        opened.counter.look_up(ask, now)
    }

    #[inline]
    fn charge(
        self,
        opened: &Opened,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        opened.counter.charge_known(known, ask, lock, now, sink);
    }
}

impl ChargeLimits for Option<Limit> {
    #[inline]
    fn look_up(self, opened: &Opened, ask: Ask, now: Micros) -> Option<Known<'_>> {
        let counter = &*opened.counter;
        if let Some(place) = self.and_then(|limit| opened.place_of(limit)) {
            return counter.look_up_under(LimitSource::Prepared(place), ask, now);
        }
        match opened.under(self) {
            Some(limit) => counter.look_up_under(LimitSource::Limit(&limit), ask, now),
            None => counter.look_up(ask, now),
        }
    }

    #[inline]
    fn charge(
        self,
        opened: &Opened,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        let counter = &*opened.counter;
        if let Some(place) = self.and_then(|limit| opened.place_of(limit)) {
            let limit = LimitSource::Prepared(place);
            return counter.charge_known_under(limit, known, ask, lock, now, sink);
        }
        match opened.under(self) {
            Some(limit) => {
                let limit = LimitSource::Limit(&limit);
                counter.charge_known_under(limit, known, ask, lock, now, sink);
            }
            None => counter.charge_known(known, ask, lock, now, sink),
        }
    }
}

/// Decides at `now`, which the clock has just shown. Returns `None` in all but the common case. A denial
/// names the first policy that denies.
#[inline]
pub(super) fn decide<L: ChargeLimits>(
    policies: &[Opened],
    charges: impl ExactSizeIterator<Item = KnownCharge<L>>,
    now: Micros,
    wanted: Wanted,
    outcomes: &mut Outcomes,
) -> Option<Result<(), usize>> {
    if charges.len() > MOST {
        return None;
    }
    let mut parts: SmallVec<[Part<'_, L>; MOST]> = SmallVec::new();
    let (mut next, mut is_in_order) = (0, true);
    for asked in charges {
        let (policy, ask) = (asked.policy, asked.ask);
        let opened = policies.get(policy)?;
        if opened.blocks.are_any() && opened.blocks.may_hold(ask.fingerprint, now) {
            return None;
        }
        let known = asked.limit.look_up(opened, ask, now)?;
        if !known.is_allowed {
            return (wanted == Wanted::Verdict && !asked.is_soft).then_some(Err(policy));
        }
        is_in_order &= opened.number >= next;
        next = opened.number + 1;
        parts.push(Part {
            opened,
            policy,
            ask,
            limit: asked.limit,
            known,
            lock: None,
        });
    }
    // The order of the policies is nearly always that of their tables.
    if !is_in_order {
        put_in_order(&mut parts)?;
    }
    for part in &mut parts {
        part.lock = Some(part.known.lock()?);
    }
    for part in &mut parts {
        let sink = &mut OutcomeSink {
            wanted,
            policy: part.policy,
            outcomes,
        };
        let sink = wanted.includes(true).then_some(sink);
        let (opened, limit) = (part.opened, part.limit);
        if let Some(lock) = &mut part.lock {
            limit.charge(opened, &part.known, part.ask, lock, now, sink);
        }
    }
    Some(Ok(()))
}

/// Sorts parts in the order of locking. Returns `None` if a policy has two parts. There are at most [`MOST`],
/// for which this is less code than a sort of the standard library.
#[cold]
fn put_in_order<L>(parts: &mut [Part<'_, L>]) -> Option<()> {
    for end in 1..parts.len() {
        let mut place = end;
        while place > 0 && parts[place - 1].opened.number > parts[place].opened.number {
            parts.swap(place - 1, place);
            place -= 1;
        }
    }
    let mut pairs = parts.windows(2);
    let are_apart = pairs.all(|pair| pair[0].opened.number < pair[1].opened.number);
    are_apart.then_some(())
}

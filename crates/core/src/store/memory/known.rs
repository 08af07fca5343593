//! The fast path of a decision on several policies: each key is known, and its page is at rest.
//!
//! It makes one pass over the charges that reads each key, one that locks each page in the order of the
//! tables, and one that writes. In all other cases it changes nothing, and the general path decides.

use smallvec::SmallVec;

use super::opened::Opened;
use super::page_snapshot::{Ask, Known};
use super::seqlock::Lock;
use super::sink::OutcomeSink;
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::Wanted;

/// The number of policies up to which a request takes the fast path.
const MOST: usize = 8;

struct Part<'a> {
    opened: &'a Opened,
    policy: usize,
    ask: Ask,
    limit: Option<Limit>,
    known: Known<'a>,
    lock: Option<Lock<'a>>,
}

/// A charge of one policy.
pub(super) struct KnownCharge {
    pub(super) policy: usize,
    pub(super) ask: Ask,
    pub(super) is_soft: bool,
    pub(super) limit: Option<Limit>,
    pub(super) is_one_of_several: bool,
}

/// Decides at `now`, which the clock has just shown. Returns `None` in all but the common case. A denial
/// names the first policy that denies.
#[inline]
pub(super) fn decide(
    policies: &[Opened],
    charges: impl ExactSizeIterator<Item = KnownCharge>,
    now: Micros,
    wanted: Wanted,
    outcomes: &mut Outcomes,
) -> Option<Result<(), usize>> {
    if charges.len() > MOST {
        return None;
    }
    let mut parts: SmallVec<[Part<'_>; MOST]> = SmallVec::new();
    let (mut next, mut is_in_order) = (0, true);
    for charge in charges {
        if charge.is_one_of_several {
            return None;
        }
        let (policy, ask) = (charge.policy, charge.ask);
        let opened = policies.get(policy)?;
        if opened.blocks.are_any() && opened.blocks.may_hold(ask.fingerprint, now) {
            return None;
        }
        let mut made = None;
        let limit = opened.limit_under(charge.limit, &mut made);
        let known = opened.counter.look_up(limit, ask, now)?;
        if !known.is_allowed {
            return (wanted == Wanted::Verdict && !charge.is_soft).then_some(Err(policy));
        }
        is_in_order &= opened.number >= next;
        next = opened.number + 1;
        parts.push(Part {
            opened,
            policy,
            ask,
            limit: charge.limit,
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
        let (counter, mut made) = (&part.opened.counter, None);
        let limit = if part.known.is_wide {
            part.opened.limit_under(part.limit, &mut made)
        } else {
            None
        };
        if let Some(lock) = &mut part.lock {
            counter.charge_known(limit, &part.known, part.ask, lock, now, sink);
        }
    }
    Some(Ok(()))
}

/// Sorts parts in the order of locking. Returns `None` if a policy has two parts. There are at most [`MOST`],
/// for which this is less code than a sort of the standard library.
#[cold]
fn put_in_order(parts: &mut [Part<'_>]) -> Option<()> {
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

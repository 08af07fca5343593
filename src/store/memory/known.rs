//! The fast path of a decision on several policies: each key is known and at rest, and nothing is out of the ordinary.
//!
//! It makes one pass over the charges that reads each key, one that locks each page in the order of the tables, and
//! one that writes. If anything differs from the common case, it changes nothing, and the general path decides.

use smallvec::SmallVec;

use super::counter::{OutcomeSink, Wanted};
use super::opened::Opened;
use super::page_snapshot::{Ask, Known};
use super::seqlock::Lock;
use crate::clock::Micros;
use crate::decision::Outcomes;

/// How many policies take the fast path.
const MOST: usize = 8;

struct Part<'a> {
    opened: &'a Opened,
    policy: usize,
    ask: Ask,
    known: Known<'a>,
    lock: Option<Lock<'a>>,
}

/// What one policy is asked: its index, the question, and whether the charge is soft.
pub(super) type Asked = (usize, Ask, bool);

/// Decides at `now`, which the clock has just told; `None` if there is more to it than usual. A denial names the first
/// policy that denies.
#[inline]
pub(super) fn decide(
    policies: &[Opened],
    charges: impl ExactSizeIterator<Item = Asked>,
    now: Micros,
    wanted: Wanted,
    outcomes: &mut Outcomes,
) -> Option<Result<(), usize>> {
    if charges.len() > MOST {
        return None;
    }
    let mut parts: SmallVec<[Part<'_>; MOST]> = SmallVec::new();
    let (mut next, mut is_in_order) = (0, true);
    for (policy, ask, is_soft) in charges {
        let opened = policies
            .get(policy)
            .filter(|opened| opened.limit.is_none())?;
        if opened.blocks.are_any() && opened.blocks.may_hold(ask.fingerprint, now) {
            return None;
        }
        let known = opened.counter.look_up(ask, now)?;
        if !known.is_allowed {
            return (wanted == Wanted::Verdict && !is_soft).then_some(Err(policy));
        }
        is_in_order &= opened.number >= next;
        next = opened.number + 1;
        parts.push(Part {
            opened,
            policy,
            ask,
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
        let told = &mut OutcomeSink {
            wanted,
            policy: part.policy,
            outcomes,
        };
        let told = wanted.includes(true).then_some(told);
        let counter = &*part.opened.counter;
        if let Some(lock) = &mut part.lock {
            counter.charge_known(&part.known, part.ask, lock, now, told);
        }
    }
    Some(Ok(()))
}

/// Puts parts in the order of locking; `None` if a policy has two parts.
#[cold]
fn put_in_order(parts: &mut [Part<'_>]) -> Option<()> {
    parts.sort_unstable_by_key(|part| part.opened.number);
    let mut pairs = parts.windows(2);
    let are_apart = pairs.all(|pair| pair[0].opened.number < pair[1].opened.number);
    are_apart.then_some(())
}

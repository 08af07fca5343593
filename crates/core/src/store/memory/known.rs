//! The fast path of a decision on several policies: each key is known, and its page is at rest.
//!
//! It makes one pass over the charges that reads each key, one that locks each page in the order of the
//! tables, and one that writes. In all other cases it changes nothing, and the general path decides.

use smallvec::SmallVec;

use super::opened::Opened;
use super::page_snapshot::{Known, Probe};
use super::seqlock::Lock;
use super::sink::OutcomeSink;
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::{Charge, Wanted};

/// The number of policies up to which a request takes the fast path.
const MOST: usize = 8;

struct Part<'a> {
    opened: &'a Opened,
    policy: usize,
    probe: Probe,
    limit: Option<Limit>,
    known: Known<'a>,
    lock: Option<Lock<'a>>,
}

/// A charge of one policy.
pub(super) struct KnownCharge {
    pub(super) policy: usize,
    pub(super) probe: Probe,
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
        let (policy, probe) = (charge.policy, charge.probe);
        let opened = policies.get(policy)?;
        if opened.blocks.are_any() && opened.blocks.may_hold(probe.fingerprint, now) {
            return None;
        }
        let mut made = None;
        let limit = opened.limit_under(charge.limit, &mut made);
        let known = opened.counter.look_up(limit, probe, now)?;
        if !known.is_allowed {
            return (wanted == Wanted::Verdict && !charge.is_soft).then_some(Err(policy));
        }
        is_in_order &= opened.number >= next;
        next = opened.number + 1;
        parts.push(Part {
            opened,
            policy,
            probe,
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
    charge(&mut parts, now, wanted, outcomes);
    Some(Ok(()))
}

/// Decides charges of which some are one of several, in the common case: each group has a member with room, and all that are always
/// charged have. Returns `None` in all others.
///
/// The members before the one that pays had no room when they were read. They are looked at again while the pages of those that are
/// charged are locked, so all of it holds at one moment.
pub(super) fn decide_either<'p>(
    policies: &'p [Opened],
    charges: &[Charge],
    probe_of: impl Fn(&Charge) -> Probe,
    now: Micros,
    wanted: Wanted,
    outcomes: &mut Outcomes,
) -> Option<()> {
    if charges.len() > MOST {
        return None;
    }
    let look_up = |charge: &Charge| {
        let opened = policies.get(charge.policy)?;
        let probe = probe_of(charge);
        if opened.blocks.are_any() && opened.blocks.may_hold(probe.fingerprint, now) {
            return None;
        }
        let mut made = None;
        let limit = opened.limit_under(charge.limit, &mut made);
        Some(Part {
            opened,
            policy: charge.policy,
            probe,
            limit: charge.limit,
            known: opened.counter.look_up(limit, probe, now)?,
            lock: None,
        })
    };
    let mut parts: SmallVec<[Part<'p>; MOST]> = SmallVec::new();
    let mut passed: SmallVec<[Known<'p>; MOST]> = SmallVec::new();
    let mut chosen: SmallVec<[u8; MOST]> = SmallVec::new();
    for charge in charges {
        let Some(mine) = charge.alternative else {
            parts.push(look_up(charge).filter(|part| part.known.is_allowed)?);
            continue;
        };
        if chosen.contains(&mine.group) {
            continue;
        }
        chosen.push(mine.group);
        let mut first = 0;
        // The members in the order of their ranks, which need not be that of the charges.
        loop {
            let members = charges.iter().filter_map(|it| Some((it.alternative?, it)));
            let members =
                members.filter(|(its, _)| its.group == mine.group && u16::from(its.rank) >= first);
            let (its, next) = members.min_by_key(|(its, _)| its.rank)?;
            first = u16::from(its.rank) + 1;
            let part = look_up(next)?;
            if part.known.is_allowed {
                parts.push(part);
                break;
            }
            passed.push(part.known);
        }
    }
    put_in_order(&mut parts)?;
    for part in &mut parts {
        part.lock = Some(part.known.lock()?);
    }
    if !passed
        .iter()
        .all(|known| known.seqlock.still_is(known.seen))
    {
        return None;
    }
    charge(&mut parts, now, wanted, outcomes);
    Some(())
}

/// Charges parts whose pages are locked.
#[inline]
fn charge(parts: &mut [Part<'_>], now: Micros, wanted: Wanted, outcomes: &mut Outcomes) {
    for part in parts {
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
            counter.charge_known(limit, &part.known, part.probe, lock, now, sink);
        }
    }
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

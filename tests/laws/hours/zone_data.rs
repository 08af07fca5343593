//! New zone data keeps the usage.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::{Algorithm, MemoryStore, Policy, SharedStore};

use super::cases::{Case, cases};
use super::model::HORIZON;
use super::several::{AtOnce, Several, is_small};
use crate::laws::{remaining_is_tight, retry_is_tight};
use crate::property;

use crate::support::driver::{Driver, Seen, Step};
use crate::support::items::Map;

/// A request by the old or the new zone data, the time since the request before it, which may be negative, and its
/// cost.
#[derive(Clone, Copy, Debug)]
struct Reloaded {
    is_new: bool,
    gap: i64,
    cost: u32,
}

fn reloaded() -> impl Strategy<Value = Reloaded> {
    const HOUR: i64 = 3_600_000_000;
    let gap = prop_oneof![
        1 => Just(0),
        3 => 0..HOUR,
        2 => 0..30 * HOUR,
        1 => -HOUR..0,
        1 => -30 * HOUR..0,
    ];
    (any::<bool>(), gap, 0..6_u32).prop_map(|(is_new, gap, cost)| Reloaded { is_new, gap, cost })
}

/// Laws 8 and 9 when zone data changes from one request to the next and back: new data moves the hours, as another
/// zone does. Each store returns the outcomes of the step, the clock may step back, and laws 2 to 4 hold under the
/// hours of the request.
fn new_zone_data_keeps_what_was_used<S: Several>() {
    let zones = select(vec![
        "UTC",
        "Pacific/Kiritimati",
        "Pacific/Niue",
        "Europe/Lisbon",
    ]);
    let cases = (cases(), zones, vec(reloaded(), 1..20));
    property::check_at(property::seeds!(hours), S::PRICE, cases, &|(
        case,
        zone,
        steps,
    )| {
        let moved = Case {
            zone,
            ..case.clone()
        };
        let [old, new] = [case, &moved].map(Case::algorithm);
        if !is_small(&old) {
            return Ok(());
        }
        let policies = |algorithm: Algorithm| vec![Policy::new("hours", algorithm)];
        let by_old = S::new(policies(old));
        let by_new = by_old.reopened(policies(new));
        let mut step = Step::new(old);
        // Far enough from the epoch for every step back.
        let mut at = case.start;
        for &Reloaded { is_new, gap, cost } in steps {
            at = at.saturating_add_signed(gap / S::GRAIN * S::GRAIN);
            let (several, algorithm) = if is_new {
                (&by_new, new)
            } else {
                (&by_old, old)
            };
            step.algorithm = algorithm;
            let decision = several.decide(at, cost);
            let (_, outcome) = decision.binding().expect("one policy was asked");
            let seen = Seen::from(outcome);
            prop_assert_eq!(
                seen,
                step.decide(at, cost),
                "at {} under {:?}",
                at,
                algorithm
            );
            let waits = [seen.reset_after, seen.retry_after.unwrap_or(0)];
            if cost == 0 || seen.limit == 0 || waits.iter().any(|wait| i128::from(*wait) >= HORIZON)
            {
                continue;
            }
            let asked = crate::case::CaseRequest { at, cost };
            retry_is_tight(&step, asked, seen)?;
            remaining_is_tight(&step, asked, seen)?;
        }
        Ok(())
    });
}

#[test]
fn new_zone_data_keeps_what_was_used_in_memory() {
    new_zone_data_keeps_what_was_used::<AtOnce<MemoryStore>>();
}

#[test]
fn new_zone_data_keeps_what_was_used_in_a_shared_store() {
    new_zone_data_keeps_what_was_used::<AtOnce<SharedStore<Map>>>();
}

#[cfg(feature = "redis")]
#[test]
fn new_zone_data_keeps_what_was_used_in_redis() {
    new_zone_data_keeps_what_was_used::<crate::redis::SeveralInRedis>();
}

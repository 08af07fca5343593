//! Estimates when the turn of a request would come that stands behind others.

use smallvec::SmallVec;

use crate::algorithm::{Algorithm, Limit, Replenishment};
use crate::clock::Micros;
use crate::decision::Outcomes;

/// The limits that keys have of their own in place of their policies', by policy.
pub(crate) type OwnLimits = SmallVec<[(usize, OwnLimit); 1]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLimit {
    limit: u32,
    /// For which it is meant, rounded up to seconds; `None` if nothing is ever to be had.
    window: Option<Micros>,
}

/// Those by which a store has answered.
pub(crate) fn own_limits(outcomes: &Outcomes) -> OwnLimits {
    let own = outcomes.iter().filter_map(|(policy, outcome)| {
        let (limit, seconds) = outcome.own_limit()?;
        let window = seconds.map(|seconds| Micros::from_secs(seconds.into()));
        Some((policy, OwnLimit { limit, window }))
    });
    own.collect()
}

/// Returns a cost and a time: to wait for the costs of `before` and then for `cost`, one after the other, takes as long as
/// to wait once for the cost that is returned, plus that time. A store can tell the wait of one request, of no more than
/// the limit.
///
/// The result is exact for costs of 1, except under a sliding window, where it may be a part of the window too long. Greater costs may take longer than that under a log, slots, a sliding window, and a
/// bucket whose refill is smaller than itself, since what one leaves can be too little for the next.
/// Of a bucket with a limit of the key's own it is too long by what that window was rounded up.
pub(crate) fn one_after_the_other(
    algorithm: &Algorithm,
    own: Option<OwnLimit>,
    before: &[u32],
    cost: u32,
) -> (u32, Micros) {
    // What holds at this hour is told as a limit of the key's own.
    let algorithm = &algorithm.without_hours();
    let limit = algorithm.limit().unwrap_or(u32::MAX);
    let limit = own.map_or(limit, |own| own.limit);
    if cost > limit {
        return (cost, Micros::ZERO);
    }
    let costs = before.iter().copied().chain([cost]);
    let all: u128 = costs.clone().map(u128::from).sum();
    if let Ok(all) = u32::try_from(all)
        && all <= limit
    {
        return (all, Micros::ZERO);
    }
    let own = own.and_then(|own| Some(u128::from(own.window?.get())));
    let its = algorithm.period().map(|period| period.as_micros());
    // Windows are those of the policy, which has none if its limit is 0.
    let period = its.or(own).unwrap_or_default();
    let whole = algorithm.longest_wait().map(|wait| wait.as_micros());
    let whole = whole.unwrap_or(2 * period);
    let quota = algorithm.limits().map_or(limit, Limit::quota);
    let (at_once, each) = match algorithm.replenishment() {
        Some(Replenishment::Interval) => {
            let interval = algorithm.frame().1.unwrap_or_default().as_micros();
            let arrive = match own {
                // At least this: the window is no longer.
                Some(window) => u128::from(limit) * interval / window.max(1),
                None => quota.into(),
            };
            if arrive < u128::from(limit) {
                let refills = (all - u128::from(limit)).div_ceil(arrive.max(1));
                return (limit, Micros::wait(refills * interval));
            }
            (limit, interval)
        }
        // Drains at its rate, once it is full.
        Some(Replenishment::Steady) => {
            let longer = (all - u128::from(limit)) * own.unwrap_or(period);
            return (limit, Micros::wait(longer.div_ceil(limit.into())));
        }
        // A client that takes all that the window admits, as soon as it does, gets one less than the limit in
        // each period. The last unit is free at the end of the period, and counts for the next one.
        Some(Replenishment::Sliding) if limit == 1 => (limit, 2 * period),
        Some(Replenishment::Sliding) => (limit - 1, period),
        _ => (limit, whole),
    };
    let (mut periods, mut taken) = (0, 0_u32);
    for cost in costs {
        taken = taken.saturating_add(cost);
        if taken > at_once {
            periods += u128::from(taken > cost);
            taken = cost;
        }
    }
    // No less than the first one waits for, since periods begin with it.
    let first = before.first().map_or(taken, |first| taken.max(*first));
    (first.min(limit), Micros::wait(periods * each))
}

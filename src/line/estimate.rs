//! Estimates when a request gets its turn behind others that wait.

use smallvec::SmallVec;

use crate::algorithm::{Algorithm, Limit, Replenishment};
use crate::clock::Micros;
use crate::decision::Outcomes;

/// The limits that replace a policy's limit for single keys, by policy.
pub(crate) type OwnLimits = SmallVec<[(usize, OwnLimit); 1]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLimit {
    limit: u32,
    /// The window of the limit, rounded up to seconds; `None` if the limit grants nothing.
    window: Option<Micros>,
}

/// Returns the limits of single keys that these outcomes tell.
pub(crate) fn own_limits(outcomes: &Outcomes) -> OwnLimits {
    let own = outcomes.iter().filter_map(|(policy, outcome)| {
        let (limit, seconds) = outcome.own_limit()?;
        let window = seconds.map(|seconds| Micros::from_secs(seconds.into()));
        Some((policy, OwnLimit { limit, window }))
    });
    own.collect()
}

/// Returns a cost and a time. Waiting for each of `before` and then for `cost` takes as long as one wait for
/// the returned cost, plus the returned time. A store can tell the wait of one request that costs no more
/// than the limit.
///
/// The result is exact for costs of 1, except under a sliding window, where it may be too long by a part of
/// the window. Greater costs may take longer than the result under a log, slots, a sliding window, or a
/// bucket whose refill is smaller than its capacity, because the remainder after one request can be too
/// little for the next. Under a key's own limit of a bucket, the result is too long by the rounding of the
/// window.
pub(crate) fn one_after_the_other(
    algorithm: &Algorithm,
    own: Option<OwnLimit>,
    before: &[u32],
    cost: u32,
) -> (u32, Micros) {
    // The outcome tells the limit of this hour as a limit of the key.
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
    // A window has the period of the policy, which has none if its limit is 0.
    let period = its.or(own).unwrap_or_default();
    let whole = algorithm.longest_wait().map(|wait| wait.as_micros());
    let whole = whole.unwrap_or(2 * period);
    let quota = algorithm.limits().map_or(limit, Limit::quota);
    let (at_once, each) = match algorithm.replenishment() {
        Some(Replenishment::Interval) => {
            let interval = algorithm.frame().1.unwrap_or_default().as_micros();
            let arrive = match own {
                // A lower bound: `window` is rounded up.
                Some(window) => u128::from(limit) * interval / window.max(1),
                None => quota.into(),
            };
            if arrive < u128::from(limit) {
                let refills = (all - u128::from(limit)).div_ceil(arrive.max(1));
                return (limit, Micros::wait(refills * interval));
            }
            (limit, interval)
        }
        // A full bucket drains at a steady rate.
        Some(Replenishment::Steady) => {
            let longer = (all - u128::from(limit)) * own.unwrap_or(period);
            return (limit, Micros::wait(longer.div_ceil(limit.into())));
        }
        // A client that takes each unit as soon as it is free gets one less than the limit in each period.
        // The last unit is free at the end of the period, and counts for the next one.
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
    // Not less than the wait of the first request, because the periods begin with it.
    let first = before.first().map_or(taken, |first| taken.max(*first));
    (first.min(limit), Micros::wait(periods * each))
}

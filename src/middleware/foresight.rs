//! When the turn of one would come who stands behind others.

use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// Which cost has to wait as long as these and then this one, one after the other, but for the time
/// that is returned beside it: no more than the limit can be asked for.
///
/// It is exact for costs of 1 but under a sliding window, where it may be a part of the window too
/// long. Greater costs may take longer than that under a log, slots, a sliding window, and a
/// bucket whose refill is smaller than itself, since what one leaves can be too little for the next.
pub(super) fn one_after_the_other(
    algorithm: &Algorithm,
    before: &[u32],
    cost: u32,
) -> (u32, Micros) {
    let limit = algorithm.limit().unwrap_or(u32::MAX);
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
    let period = algorithm.period().unwrap_or_default().as_micros();
    let whole = algorithm.longest_wait().unwrap_or_default().as_micros();
    let (at_once, each) = match algorithm {
        Algorithm::TokenBucket(bucket) if bucket.is_by_interval() => {
            let (arrive, interval) = (bucket.quota().limit(), bucket.quota().period());
            if arrive < limit {
                let refills = (all - u128::from(limit)).div_ceil(arrive.max(1).into());
                return (limit, Micros::wait(refills * interval.as_micros()));
            }
            (limit, interval.as_micros())
        }
        // Drains at its rate, once it is full.
        Algorithm::TokenBucket(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::Gcra(_)
        | Algorithm::LeakyQueue(_) => {
            let longer = (all - u128::from(limit)) * period;
            return (limit, Micros::wait(longer.div_ceil(limit.into())));
        }
        // Whoever takes all that it admits as soon as it does gets one less than the limit in each
        // period: what is left of it comes at the period's end, and counts for the next.
        Algorithm::SlidingWindow(_) if limit == 1 => (limit, 2 * period),
        Algorithm::SlidingWindow(_) => (limit - 1, period),
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

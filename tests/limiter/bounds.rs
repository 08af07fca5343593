//! The most requests that an adversary gets who knows the algorithm, its windows and the time, compared with the
//! bounds in the documentation ("choosing").
//!
//! The adversary tries every sequence of a few attempts at the moments at which something changes: the edges of
//! windows, and a microsecond before and after them. No sequence exceeds a bound, and one reaches it, so that no
//! bound is larger than necessary.

use std::time::Duration;

use tower_ratelimit::algorithm::State;
#[cfg(feature = "calendar")]
use tower_ratelimit::calendar::Zone;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, Micros, SlidingLog, SlidingSlots,
    SlidingWindow, TokenBucket,
};

const N: u32 = 4;
const W: u64 = 1_000;
const PERIOD: Duration = Duration::from_micros(W);
const EDGE: u64 = 1_700_000_000 * W;

/// Moments relative to the edge of an aligned window, in order.
const MOMENTS: [i64; 16] = {
    let w = W.cast_signed();
    [
        -w,
        1 - w,
        -w / 2,
        -1,
        0,
        1,
        w / 4,
        w / 2,
        w - 2,
        w - 1,
        w,
        w + 1,
        2 * w - 1,
        2 * w,
        2 * w + 1,
        3 * w,
    ]
};
const ATTEMPTS: usize = 4;

/// An attempt sends one request, or all but one of the limit, or requests until one is denied.
const GREEDS: [u32; 3] = [1, N - 1, u32::MAX];

#[test]
fn fixed_window() {
    hold(
        &[FixedWindow::new(N, PERIOD).unwrap().into()],
        within_a_window(2 * N),
    );
}

#[test]
fn anchored_window() {
    hold(
        &[AnchoredWindow::new(N, PERIOD).unwrap().into()],
        within_a_window(2 * N - 1),
    );
}

#[test]
fn sliding_window() {
    hold(
        &[SlidingWindow::new(N, PERIOD).unwrap().into()],
        within_a_window(2 * N - 1),
    );
}

#[test]
fn sliding_log() {
    hold(
        &[SlidingLog::new(N, PERIOD).unwrap().into()],
        within_a_window(N),
    );
}

#[test]
fn sliding_slots() {
    let cut = [1, 2, 4, 10, 100].map(|m| {
        let slots = SlidingSlots::new(N, PERIOD).unwrap();
        slots.slots(m).unwrap().into()
    });
    hold(&cut, within_a_window(N));
}

#[test]
fn continuous_buckets() {
    for burst in [1, 3, N, 6, 9] {
        let buckets = [
            TokenBucket::new(N, PERIOD).unwrap().burst(burst).into(),
            LeakyBucket::new(N, PERIOD).unwrap().capacity(burst).into(),
            Gcra::new(N, PERIOD).unwrap().burst(burst).into(),
        ];
        hold(&buckets, |x| Some(u64::from(burst) + u64::from(N) * x / W));
    }
}

#[test]
fn token_bucket_by_interval() {
    for burst in [1, 3, N, 6, 9] {
        let bucket = TokenBucket::new(N, PERIOD)
            .unwrap()
            .burst(burst)
            .by_interval();
        let burst = u64::from(burst);
        let refilled = |x: u64| u64::from(N).min(burst) * (x / W + 1);
        hold(&[bucket.into()], |x| {
            Some(burst.max(burst - 1 + refilled(x)))
        });
    }
}

/// Twice the limit at the edge of two windows, as in a fixed window.
#[cfg(feature = "calendar")]
#[test]
fn calendar_window() {
    // 2026-10-25 has 25 hours in Berlin, and the window begins at 22:00 UTC of the day before.
    const BEGINS: u64 = 1_792_879_200_000_000;
    const HOUR: u64 = 3_600_000_000;
    let berlin = Zone::named("Europe/Berlin").unwrap();
    let day = Algorithm::from(FixedWindow::per_calendar_day(N).zone(berlin));
    let mut state = State::NEW;
    let mut admitted = Vec::new();
    for at in [
        BEGINS - 1,
        BEGINS,
        BEGINS + 24 * HOUR,
        BEGINS + 25 * HOUR - 1,
        BEGINS + 25 * HOUR,
    ] {
        let mut count = 0;
        loop {
            let (outcome, after) = day.step(state.clone(), Micros::new(at), 1);
            if !outcome.is_allowed() {
                break;
            }
            state = after;
            count += 1;
        }
        admitted.push(count);
    }
    // Twice the limit in two microseconds, and nothing more to the end of the day of 25 hours.
    assert_eq!(admitted, [N, N, 0, 0, N]);
}

fn within_a_window(most: u32) -> impl Fn(u64) -> Option<u64> {
    move |x| (x < W).then_some(most.into())
}

/// No attack gets more in a closed span of length `x` than `bound(x)`, and one attack gets that much.
fn hold(algorithms: &[Algorithm], bound: impl Fn(u64) -> Option<u64>) {
    for algorithm in algorithms {
        let mut reached = false;
        attack(
            algorithm,
            &mut Vec::new(),
            &State::NEW,
            0,
            &mut |admitted| {
                let (Some((start, _)), Some((end, _))) = (admitted.first(), admitted.last()) else {
                    return;
                };
                let span = end - start;
                let total: u64 = admitted.iter().map(|(_, count)| count).sum();
                if let Some(bound) = bound(span) {
                    assert!(
                        total <= bound,
                        "{algorithm} admits {total} in {span} µs and not {bound}: {admitted:?}"
                    );
                    reached |= total == bound;
                }
            },
        );
        assert!(
            reached,
            "{algorithm} never admits as much as its bound allows"
        );
    }
}

/// Returns every sequence of attempts that continues this one. Admissions are listed by moment, and also without each
/// prefix, because a span may start anywhere.
fn attack(
    algorithm: &Algorithm,
    admitted: &mut Vec<(u64, u64)>,
    state: &State,
    from: usize,
    told: &mut impl FnMut(&[(u64, u64)]),
) {
    for start in 0..admitted.len() {
        told(&admitted[start..]);
    }
    if admitted.len() == ATTEMPTS {
        return;
    }
    for (place, moment) in MOMENTS.iter().enumerate().skip(from) {
        let now = EDGE.saturating_add_signed(*moment);
        for greed in GREEDS {
            let mut state = state.clone();
            let mut count = 0;
            while count < u64::from(greed) {
                let (outcome, after) = algorithm.step(state.clone(), Micros::new(now), 1);
                if !outcome.is_allowed() {
                    break;
                }
                state = after;
                count += 1;
            }
            if count > 0 {
                admitted.push((now, count));
                attack(algorithm, admitted, &state, place + 1, told);
                admitted.pop();
            }
        }
    }
}

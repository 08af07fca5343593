//! Examples of the reference model that were worked out by hand.

use std::sync::Arc;

use crate::support::buckets::{Bucket, IntervalBucket};
use crate::support::driver::Seen;
use crate::support::model::{Model, Rule};
use crate::support::windows::{
    AnchoredWindow, FixedWindow, SlidingLog, SlidingSlots, SlidingWindow,
};

const ALLOWED: Option<u64> = None;

/// Asks this many microseconds after 10,000 µs, at this cost. Expects whether it is allowed, the wait if not, the
/// remaining units, and the reset. Every request of an example can pass.
fn expect(rule: impl Rule + 'static, examples: &[(i64, u32, Option<u64>, u32, u64)]) {
    let limit = u32::try_from(rule.limit()).unwrap();
    let mut model = Model::new(Arc::new(rule));
    for example @ &(after, cost, retry_after, remaining, reset_after) in examples {
        let expected = Seen {
            allowed: retry_after.is_none(),
            limit,
            remaining,
            reset_after,
            retry_after,
        };
        let at = 10_000_u64.checked_add_signed(after).unwrap();
        assert_eq!(model.decide(at, cost), expected, "{example:?}");
    }
}

#[test]
fn a_fixed_window_starts_again_at_each_multiple_of_its_period() {
    let rule = FixedWindow {
        limit: 3,
        period: 100,
    };
    expect(
        rule,
        &[
            (40, 2, ALLOWED, 1, 60),
            (40, 2, Some(60), 1, 60),
            (99, 1, ALLOWED, 0, 1),
            (99, 1, Some(1), 0, 1),
            (100, 3, ALLOWED, 0, 100),
            // Back into the previous window, with the counts.
            (30, 1, Some(70), 0, 70),
            (100, 1, ALLOWED, 2, 100),
        ],
    );
}

#[test]
fn an_anchored_window_opens_at_its_first_request() {
    let rule = AnchoredWindow {
        limit: 3,
        period: 100,
    };
    expect(
        rule,
        &[
            (40, 2, ALLOWED, 1, 100),
            (139, 1, ALLOWED, 0, 1),
            (139, 1, Some(1), 0, 1),
            (140, 2, ALLOWED, 1, 100),
            (150, 0, ALLOWED, 1, 90),
            (120, 2, Some(100), 1, 100),
            (150, 1, ALLOWED, 0, 70),
        ],
    );
}

#[test]
fn a_sliding_log_forgets_each_request_after_the_period() {
    let rule = SlidingLog {
        limit: 3,
        period: 100,
    };
    expect(
        rule,
        &[
            (0, 1, ALLOWED, 2, 100),
            (30, 2, ALLOWED, 0, 100),
            (30, 1, Some(70), 0, 100),
            (30, 2, Some(100), 0, 100),
            (99, 1, Some(1), 0, 31),
            (100, 1, ALLOWED, 0, 100),
            // The entries at 30 and at 100 move to 10.
            (10, 1, Some(100), 0, 100),
            (110, 3, ALLOWED, 0, 100),
        ],
    );
}

#[test]
fn a_sliding_window_weighs_the_window_before_exactly() {
    let rule = SlidingWindow {
        limit: 3,
        period: 100,
    };
    expect(
        rule,
        &[
            (40, 3, ALLOWED, 0, 160),
            // 3 · (100 − e) + 100 ≤ 300 from e = 34 on.
            (100, 1, Some(34), 0, 100),
            (133, 1, Some(1), 0, 67),
            (134, 1, ALLOWED, 0, 166),
            // 3 · (100 − e) + 200 ≤ 300 from e = 67 on, and in the next window 1 · (100 − e).
            (134, 1, Some(33), 0, 166),
            (134, 2, Some(66), 0, 166),
            (200, 2, ALLOWED, 0, 200),
            // Both windows move: 1 before, 2 now, and at e = 99 there is room for 3 − 2 − 0.01.
            (150, 1, Some(50), 0, 150),
            (200, 1, ALLOWED, 0, 200),
        ],
    );
}

#[test]
fn sliding_slots_count_the_slot_of_now_and_as_many_before_it() {
    let rule = SlidingSlots {
        limit: 3,
        period: 100,
        slots: 4,
    };
    expect(
        rule,
        &[
            (10, 1, ALLOWED, 2, 115),
            (30, 2, ALLOWED, 0, 120),
            (99, 1, Some(26), 0, 51),
            (124, 1, Some(1), 0, 26),
            (125, 1, ALLOWED, 0, 125),
            // Two slots back, and the count of the last slot with them.
            (80, 1, Some(70), 0, 120),
            (150, 2, ALLOWED, 0, 125),
        ],
    );
}

#[test]
fn a_bucket_drains_at_its_rate() {
    let rule = Bucket {
        limit: 3,
        period: 100,
        burst: 2,
    };
    expect(
        rule,
        &[
            (0, 1, ALLOWED, 1, 34),
            (0, 1, ALLOWED, 0, 67),
            (0, 1, Some(34), 0, 67),
            (33, 1, Some(1), 0, 34),
            // 1.02 was free: 1.98 is owed.
            (34, 1, ALLOWED, 0, 66),
            (34, 2, Some(66), 0, 66),
            (0, 1, Some(33), 0, 66),
            (33, 1, ALLOWED, 0, 67),
            (200, 2, ALLOWED, 0, 67),
        ],
    );
}

#[test]
fn a_bucket_by_interval_is_refilled_at_once() {
    let rule = IntervalBucket {
        limit: 2,
        period: 100,
        burst: 5,
    };
    expect(
        rule,
        &[
            (40, 5, ALLOWED, 0, 300),
            (139, 1, Some(1), 0, 201),
            (140, 1, ALLOWED, 1, 200),
            (160, 3, Some(80), 1, 180),
            // Before the last refill, which moves here.
            (120, 3, Some(100), 1, 200),
            (220, 3, ALLOWED, 0, 300),
            (520, 1, ALLOWED, 4, 100),
        ],
    );
}

#[test]
fn a_rate_of_nothing_denies_everything() {
    let rule = Bucket {
        limit: 0,
        period: 100,
        burst: 2,
    };
    let denied = Seen {
        allowed: false,
        limit: 0,
        remaining: 0,
        reset_after: 0,
        retry_after: None,
    };
    let mut model = Model::new(Arc::new(rule));
    assert_eq!(model.decide(10_000, 0), denied);
    assert_eq!(model.decide(10_000, 1), denied);
}

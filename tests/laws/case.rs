use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::{Micros, Quota};

use crate::support::driver::{Driver, Seen};

/// The numbers of an algorithm; each algorithm uses some of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) limit: u32,
    /// In microseconds.
    pub(crate) period: u64,
    /// A bucket's capacity.
    pub(crate) size: u32,
    /// A number of slots that divides the period.
    pub(crate) slots: u32,
}

impl Numbers {
    pub(crate) fn quota(&self) -> Quota {
        Quota::new(self.limit, Duration::from_micros(self.period)).expect("a period in range")
    }

    /// Returns the same limit and size, with the period and the slots of this case.
    fn in_the_frame_of(self, case: &Case) -> Self {
        let Self { period, slots, .. } = case.numbers;
        Self {
            period,
            slots,
            ..self
        }
    }
}

/// Numbers, and consecutive requests.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) numbers: Numbers,
    /// The moment of the first request, in microseconds since the epoch.
    start: u64,
    pub(crate) asks: Vec<Ask>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    gap: Gap,
    cost: Cost,
}

/// The time since the previous request, relative to the decision on it.
#[derive(Clone, Copy, Debug)]
enum Gap {
    None,
    Micros(u64),
    /// In 2^15ths of a period.
    Periods(u64),
    Retry,
    JustBeforeRetry,
    Reset,
    JustBeforeReset,
    ToNextEdge,
    JustBeforeNextEdge,
    BackMicros(u64),
    /// In 2^15ths of a period.
    BackPeriods(u64),
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    This(u32),
    /// In 2^16ths of the limit.
    Part(u16),
    Limit,
    OneAboveLimit,
    Remaining,
    OneAboveRemaining,
}

const FIFTY_YEARS: u64 = 50 * 366 * 86_400 * 1_000_000;

/// Cases in which time goes forward or stands still.
pub(crate) fn steadily() -> impl Strategy<Value = Case> {
    cases(16)
}

/// Cases in which time also steps back.
pub(crate) fn stepping_back() -> impl Strategy<Value = Case> {
    cases(24)
}

fn cases(gaps: u8) -> impl Strategy<Value = Case> {
    (numbers(), start(), vec(ask(gaps), 1..=12)).prop_map(|(numbers, start, asks)| {
        let (aligned, start) = start;
        let past_edge = start % numbers.period;
        Case {
            numbers,
            start: if aligned { start - past_edge } else { start },
            asks,
        }
    })
}

/// From 2024 to 2200; half of the cases are at the beginning of a window.
fn start() -> impl Strategy<Value = (bool, u64)> {
    (
        any::<bool>(),
        1_704_067_200_000_000..7_258_118_400_000_000_u64,
    )
}

pub(crate) fn numbers() -> impl Strategy<Value = Numbers> {
    (limit(), period(), size(), 1_u32..=128).prop_map(|(limit, period, size, slots)| Numbers {
        limit,
        period,
        size: match size {
            Size::AsLimit => limit,
            Size::This(size) => size,
            Size::Half => limit / 2,
            Size::Double => limit.saturating_mul(2),
        },
        slots: (1..=slots)
            .rev()
            .find(|slots| period.is_multiple_of((*slots).into()))
            .unwrap_or(1),
    })
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 1..=6_u32,
        3 => 7..=100_u32,
        2 => select(vec![997, 60_000, 65_537, 999_983, 1_000_000]),
        2 => select(vec![1 << 31, u32::MAX - 4, u32::MAX]),
        1 => Just(0),
    ]
}

fn period() -> impl Strategy<Value = u64> {
    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;
    prop_oneof![
        4 => 1_000..=10_000_u64,
        3 => select(vec![1_000, SECOND, 60 * SECOND, 3_600 * SECOND, DAY]),
        2 => select(vec![1_009, 1_000_003, 86_399_999_999, 2_147_483_647]),
        1 => select(vec![30 * DAY, 365 * DAY, 366 * DAY]),
        1 => 1_000..=366 * DAY,
    ]
}

#[derive(Clone, Copy, Debug)]
enum Size {
    AsLimit,
    This(u32),
    Half,
    Double,
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        3 => Just(Size::AsLimit),
        4 => (1..=8_u32).prop_map(Size::This),
        1 => Just(Size::Half),
        1 => Just(Size::Double),
        1 => select(vec![0, 1_000, 999_983, u32::MAX]).prop_map(Size::This),
    ]
}

/// Drawn as plain numbers: a choice among strategies would cost more than the laws do.
fn ask(gaps: u8) -> impl Strategy<Value = Ask> {
    (0..gaps, any::<u16>(), 0..14_u8, any::<u16>()).prop_map(|(gap, by, cost, part)| {
        let (micros, periods) = (u64::from(by % 64), u64::from(by));
        Ask {
            gap: match gap {
                0..=4 => Gap::None,
                5 => Gap::Micros(micros),
                6 | 7 => Gap::Periods(periods),
                8 | 9 => Gap::Retry,
                10 => Gap::JustBeforeRetry,
                11 => Gap::Reset,
                12 => Gap::JustBeforeReset,
                13 => Gap::ToNextEdge,
                14 => Gap::JustBeforeNextEdge,
                15 => Gap::Periods((2 << 15) + periods),
                16..=18 => Gap::BackMicros(micros),
                19..=22 => Gap::BackPeriods(periods),
                _ => Gap::BackPeriods((2 << 15) + periods),
            },
            cost: match cost {
                0..=3 => Cost::This(1),
                4 => Cost::This(2),
                5 => Cost::This(0),
                6 => Cost::This(u32::from(part % 8)),
                7 => Cost::Part(part),
                8 => Cost::Limit,
                9 => Cost::OneAboveLimit,
                10 | 11 => Cost::Remaining,
                12 => Cost::OneAboveRemaining,
                _ => Cost::This(u32::from(part) << 16),
            },
        }
    })
}

impl Case {
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk {
            numbers: &self.numbers,
            asks: &self.asks,
            at: self.start,
            until: self.start + FIFTY_YEARS,
            last: None,
        }
    }

    /// Returns a moment near the first request at which every window and slot begins.
    pub(crate) fn aligned_start(&self) -> u64 {
        self.start - self.start % self.numbers.period
    }

    /// Sends all requests to the driver, and calls `each` after each of them.
    pub(crate) fn play<D: Driver>(
        &self,
        driver: &mut D,
        mut each: impl FnMut(&D, CaseRequest, Seen) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        let mut walk = self.walk();
        while let Some(asked) = walk.ask() {
            let seen = driver.decide(asked.at, asked.cost);
            walk.told(seen);
            each(driver, asked, seen)?;
        }
        Ok(())
    }
}

/// A request for a driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaseRequest {
    pub(crate) at: u64,
    pub(crate) cost: u32,
}

/// The state of a run: the next request depends on the last decision.
pub(crate) struct Walk<'a> {
    numbers: &'a Numbers,
    asks: &'a [Ask],
    at: u64,
    until: u64,
    last: Option<Seen>,
}

impl Walk<'_> {
    pub(crate) fn ask(&mut self) -> Option<CaseRequest> {
        let (ask, rest) = self.asks.split_first()?;
        self.asks = rest;
        self.at = self.moved(ask.gap).min(self.until);
        Some(CaseRequest {
            at: self.at,
            cost: self.cost(ask.cost),
        })
    }

    pub(crate) fn told(&mut self, seen: Seen) {
        self.last = Some(seen);
    }

    /// Lets the announced reset pass, unless it exceeds the longest possible time.
    pub(crate) fn rests_until_reset(&mut self) -> bool {
        let reset = self.last.map_or(0, |seen| seen.reset_after);
        self.at += reset;
        self.until = self.until.max(self.at);
        reset < Micros::LONGEST.get()
    }

    fn moved(&self, gap: Gap) -> u64 {
        let period = self.numbers.period;
        let in_periods = |parts: u64| {
            let product = u128::from(parts) * u128::from(period);
            u64::try_from(product >> 15).expect("some periods fit in 64 bits")
        };
        let retry = self.last.and_then(|seen| seen.retry_after).unwrap_or(0);
        let reset = self.last.map_or(0, |seen| seen.reset_after);
        let edge = period - self.at % period;
        let at = self.at;
        match gap {
            Gap::None => at,
            Gap::Micros(micros) => at + micros,
            Gap::Periods(parts) => at + in_periods(parts),
            Gap::Retry => at + retry,
            Gap::JustBeforeRetry => at + retry.saturating_sub(1),
            Gap::Reset => at + reset,
            Gap::JustBeforeReset => at + reset.saturating_sub(1),
            Gap::ToNextEdge => at + edge,
            Gap::JustBeforeNextEdge => at + edge - 1,
            Gap::BackMicros(micros) => at.saturating_sub(micros),
            Gap::BackPeriods(parts) => at.saturating_sub(in_periods(parts)),
        }
    }

    fn cost(&self, cost: Cost) -> u32 {
        let (limit, remaining) = match self.last {
            Some(seen) => (seen.limit, seen.remaining),
            None => (self.numbers.limit, self.numbers.limit),
        };
        match cost {
            Cost::This(cost) => cost,
            Cost::Part(part) => {
                let cost = (u64::from(limit) * u64::from(part)) >> 16;
                u32::try_from(cost).expect("a part of the limit")
            }
            Cost::Limit => limit,
            Cost::OneAboveLimit => limit.saturating_add(1),
            Cost::Remaining => remaining,
            Cost::OneAboveRemaining => remaining.saturating_add(1),
        }
    }
}

/// Cases in which time goes on, with another limit and size.
pub(crate) fn steadily_with_another() -> impl Strategy<Value = (Case, Numbers)> {
    with_another(steadily())
}

/// Cases with another limit and size.
pub(crate) fn changing() -> impl Strategy<Value = (Case, Numbers)> {
    with_another(stepping_back())
}

fn with_another(cases: impl Strategy<Value = Case>) -> impl Strategy<Value = (Case, Numbers)> {
    (cases, numbers()).prop_map(|(case, numbers)| {
        let changed = numbers.in_the_frame_of(&case);
        (case, changed)
    })
}

/// Cases in which each request has one of three limits, the first of which is that of the case.
pub(crate) fn limited() -> impl Strategy<Value = (Case, [Numbers; 3])> {
    among_three(stepping_back())
}

/// Returns the same, in which time goes forward.
pub(crate) fn steadily_limited() -> impl Strategy<Value = (Case, [Numbers; 3])> {
    among_three(steadily())
}

fn among_three(cases: impl Strategy<Value = Case>) -> impl Strategy<Value = (Case, [Numbers; 3])> {
    (cases, numbers(), numbers(), any::<[bool; 2]>()).prop_map(|(case, second, third, near)| {
        let first = case.numbers;
        // A near limit meets debts that it could nearly have left itself.
        let near_the_first = |number: u32, part: u32| number / part + number % part;
        let second = if near[0] {
            Numbers {
                limit: near_the_first(first.limit, 3),
                size: near_the_first(first.size, 2),
                ..second
            }
        } else {
            second
        };
        let third = if near[1] {
            Numbers {
                limit: first.limit.saturating_mul(2),
                size: near_the_first(first.size, 3),
                ..third
            }
        } else {
            third
        };
        let all = [first, second, third].map(|numbers| numbers.in_the_frame_of(&case));
        (case, all)
    })
}

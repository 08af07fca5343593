//! Random hours, and requests at random moments.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::algorithm::HourlyLimit;
use tower_ratelimit::factor::Factor;
use tower_ratelimit::{Algorithm, Hours};

use super::SECOND;
use crate::case::Numbers;
use crate::subject::Subject;

/// A timetable, the limits in it, and requests.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) which: usize,
    pub(super) own: Numbers,
    pub(super) zone: &'static str,
    pub(super) intervals: Vec<Interval>,
    pub(super) start: u64,
    pub(super) asks: Vec<Ask>,
}

/// From a minute of the day on, for this many minutes, on these days of the week.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) from: u16,
    pub(super) length: u16,
    pub(super) weekdays: u8,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A limit and a size.
    Limit(u32, u32),
    Share(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) gap: Gap,
    pub(super) cost: Cost,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Gap {
    None,
    Micros(u64),
    /// In 2^12ths of a period.
    Periods(u64),
    Retry,
    JustBeforeRetry,
    Reset,
    JustBeforeReset,
    ToNextEdge,
    JustBeforeNextEdge,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    This(u32),
    Remaining,
    Limit,
}

pub(super) const DAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

pub(super) fn cases() -> impl Strategy<Value = Case> {
    let period = prop_oneof![
        3 => select(vec![1, 60, 600, 3_600, 86_400]).prop_map(|seconds: u64| seconds * SECOND),
        1 => 1_000..200_000 * SECOND,
    ];
    let own = (1..12_u32, 1..16_u32, period, 1..6_u32).prop_map(|(limit, size, period, slots)| {
        let slots = (1..=slots)
            .rev()
            .find(|slots| period.is_multiple_of(u64::from(*slots)));
        Numbers {
            limit,
            size,
            period,
            slots: slots.unwrap_or(1),
        }
    });
    // About the days on which clocks change in Berlin, Troll and Havana, and others.
    let start = (
        select(vec![
            1_774_569_600,
            1_792_713_600,
            1_793_404_800,
            1_767_225_600_u64,
        ]),
        0..345_600_000_000_u64,
    );
    (
        (
            0..crate::MOUNTED.len(),
            own,
            start.prop_map(|(day, micros)| day * SECOND + micros),
        ),
        select(vec![
            "UTC",
            "Europe/Berlin",
            "Antarctica/Troll",
            "America/Havana",
            "Asia/Kathmandu",
        ]),
        intervals(),
        vec(ask(), 1..14),
    )
        .prop_map(|((which, own, start), zone, intervals, asks)| Case {
            which,
            own,
            zone,
            intervals,
            start,
            asks,
        })
}

/// One to three intervals between marks of a day, the last of which may go on to the first mark.
pub(super) fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    let change = prop_oneof![
        3 => (0..20_u32, 1..24_u32).prop_map(|(limit, size)| Change::Limit(limit, size)),
        2 => select(vec![1_u32, 250, 500, 1_500, 2_000, 7_000]).prop_map(Change::Share),
    ];
    let weekdays = prop_oneof![3 => Just(0x7f_u8), 1 => 1..0x80_u8];
    (
        btree_set(0..1_440_u16, 2..=6),
        any::<bool>(),
        vec((change, weekdays), 6),
    )
        .prop_map(|(marks, touch, rest)| {
            let marks: Vec<u16> = marks.into_iter().collect();
            let step = if touch { 1 } else { 2 };
            let nth = (0..marks.len()).step_by(step);
            let made = nth.zip(rest).filter_map(|(first, (change, weekdays))| {
                let from = marks[first];
                let until = marks.get(first + 1).copied().unwrap_or(marks[0] + 1_440);
                (until - from <= 1_440).then_some(Interval {
                    from,
                    length: until - from,
                    weekdays,
                    change,
                })
            });
            made.collect()
        })
}

pub(super) fn ask() -> impl Strategy<Value = Ask> {
    let gap = prop_oneof![
        4 => Just(Gap::None),
        1 => (0..64_u64).prop_map(Gap::Micros),
        2 => (0..12_288_u64).prop_map(Gap::Periods),
        3 => Just(Gap::Retry),
        1 => Just(Gap::JustBeforeRetry),
        1 => Just(Gap::Reset),
        1 => Just(Gap::JustBeforeReset),
        2 => Just(Gap::ToNextEdge),
        2 => Just(Gap::JustBeforeNextEdge),
    ];
    let cost = prop_oneof![
        4 => Just(Cost::This(1)),
        2 => (0..24_u32).prop_map(Cost::This),
        2 => Just(Cost::Remaining),
        1 => Just(Cost::Limit),
    ];
    (gap, cost).prop_map(|(gap, cost)| Ask { gap, cost })
}

impl Case {
    pub(super) fn subject(&self, numbers: &Numbers) -> Subject {
        crate::MOUNTED[self.which](numbers)
    }

    /// Returns the numbers outside all intervals, and in each.
    pub(super) fn numbers(&self) -> Vec<Numbers> {
        // A calendar window of this period is a day.
        let period = self.own.period.next_multiple_of(12);
        let slots = if self.own.period == period {
            self.own.slots
        } else {
            1
        };
        let own = Numbers {
            period,
            slots,
            ..self.own
        };
        let changed = self.intervals.iter().map(|interval| match interval.change {
            Change::Limit(limit, size) => Numbers { limit, size, ..own },
            Change::Share(share) => Numbers {
                limit: (own.limit * share).div_ceil(1_000),
                size: (own.size * share).div_ceil(1_000),
                ..own
            },
        });
        [own].into_iter().chain(changed).collect()
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        let numbers = self.numbers();
        let mut hours = Hours::in_zone(self.zone).unwrap();
        for (interval, numbers) in self.intervals.iter().zip(&numbers[1..]) {
            let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
            let days: Vec<_> = (0..7)
                .filter(|day| interval.weekdays >> day & 1 == 1)
                .map(|day| DAYS[day])
                .collect();
            let until = match interval.from + interval.length {
                1_440 => "24:00".to_owned(),
                until => time(until),
            };
            let times = match interval.length {
                1_440 if interval.from > 0 => None,
                _ => Some(format!("{}-{until}", time(interval.from))),
            };
            let text = format!("{} {}", days.join(","), times.unwrap_or_default());
            let limit: HourlyLimit = match interval.change {
                Change::Limit(..) => self.subject(numbers).algorithm.into(),
                Change::Share(share) => Factor::thousandths(share).into(),
            };
            hours = hours.at(&text, limit).unwrap();
        }
        hours.over(self.subject(&numbers[0]).algorithm).unwrap()
    }
}

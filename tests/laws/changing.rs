//! Law 11: usage stays, whatever limits a key meets, in whatever order.

use proptest::prelude::*;
use tower_ratelimit::algorithm::{Limit, State};
use tower_ratelimit::{Algorithm, Gcra, Micros, TokenBucket};

use crate::case::{Case, CaseRequest, Numbers};
use crate::laws::{Holds, LONGEST, remaining_is_tight, reset_is_tight, retry_is_tight};
use crate::subject::Subject;
use crate::support::debt::{Debt, Pace};
use crate::support::driver::{Driver, Limited, Seen, Step, micros};
use crate::support::model::Model;

/// The limits of a case.
pub(crate) struct Limits {
    subjects: [Subject; 3],
    numbers: [Numbers; 3],
    subject: fn(&Numbers) -> Subject,
}

impl Limits {
    pub(crate) fn new(numbers: &[Numbers; 3], subject: fn(&Numbers) -> Subject) -> Self {
        Self {
            subjects: numbers.each_ref().map(subject),
            numbers: *numbers,
            subject,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Algorithm> {
        self.subjects.iter().map(|subject| &subject.algorithm)
    }

    fn driver<D: Driver>(&self) -> D {
        D::new(self.subjects[0].algorithm)
    }

    /// Returns the limit of a request: any, and often that of the request before it.
    fn of(&self, number: usize, at: u64) -> usize {
        let any = (at ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(any % 7).unwrap() % self.subjects.len()
    }

    fn put<D: Limited>(&self, driver: &mut D, which: usize) {
        let Numbers { limit, size, .. } = self.numbers[which];
        driver.under(self.subjects[which].algorithm, Limit::new(limit, size));
    }

    /// Returns a bound on every wait, with charges after the fact.
    fn longest(&self) -> u64 {
        let longest = self
            .all()
            .map(|limit| limit.longest_wait().map_or(0, micros));
        longest.fold(0, |sum, longest| {
            sum.saturating_add(longest.saturating_mul(2))
        })
    }

    /// Returns a limit that admits all that any of these admits.
    fn highest(&self) -> Subject {
        let [first, second, third] = self.numbers;
        (self.subject)(&Numbers {
            limit: first.limit.max(second.limit).max(third.limit),
            size: first.size.max(second.size).max(third.size),
            ..first
        })
    }
}

/// The past of a key, for the model of any algorithm.
enum Past {
    Counted(Model),
    Owed(Debt),
}

impl Past {
    fn new(subject: &Subject) -> Self {
        match subject.rule.pace() {
            Some(_) => Self::Owed(Debt::default()),
            None => Self::Counted(subject.model()),
        }
    }

    fn under(&mut self, subject: &Subject) -> Now<'_> {
        match self {
            Self::Counted(model) => {
                *model = model.clone().under(subject.rule.clone());
                Now::Counted(model)
            }
            Self::Owed(debt) => Now::Owed(debt, subject.rule.pace().expect("a bucket")),
        }
    }
}

/// The past under the present limit.
enum Now<'a> {
    Counted(&'a mut Model),
    Owed(&'a mut Debt, Pace),
}

impl Now<'_> {
    fn decide(self, at: u64, cost: u32) -> Seen {
        let seen = match self {
            Now::Counted(model) => model.decide(at, cost),
            Now::Owed(debt, pace) => debt.decide(pace, at, cost),
        };
        match seen.limit {
            // A limit of 0 admits nothing, and says nothing about the usage under another limit.
            0 => Seen {
                reset_after: 0,
                ..seen
            },
            _ => seen,
        }
    }

    fn settle(self, at: u64, units: u32) {
        match self {
            Now::Counted(model) => model.settle(at, units),
            Now::Owed(debt, pace) => debt.settle(pace, at, units),
        }
    }

    fn refund(self, at: u64, units: u32) {
        match self {
            Now::Counted(model) => model.refund(at, units),
            Now::Owed(debt, pace) => debt.refund(pace, at, units),
        }
    }
}

/// Every number equals the one that the model finds by trial, under the limit of each request.
pub(crate) fn law_11_every_limit_reads_what_is_kept_as_the_model_does<D: Limited>(
    limits: &Limits,
    case: &Case,
) -> Holds {
    is_as_the_model(
        &mut limits.driver::<D>(),
        limits,
        case,
        |driver, past, number, asked| {
            let CaseRequest { at, cost } = asked;
            match number % 8 {
                1 | 4 => {
                    driver.settle(at, cost);
                    past.settle(at, cost);
                }
                6 => {
                    driver.refund(at, cost);
                    past.refund(at, cost);
                }
                _ => {}
            }
        },
    )
}

/// The same for decisions alone, when the clock steps back.
pub(crate) fn law_8_every_limit_moves_back_as_the_model_does<D: Limited>(
    limits: &Limits,
    case: &Case,
) -> Holds {
    is_as_the_model(&mut limits.driver::<D>(), limits, case, |_, _, _, _| {})
}

fn is_as_the_model<D: Limited>(
    driver: &mut D,
    limits: &Limits,
    case: &Case,
    before: impl Fn(&mut D, Now<'_>, usize, CaseRequest),
) -> Holds {
    let mut past = Past::new(&limits.subjects[0]);
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        let CaseRequest { at, cost } = asked;
        let which = limits.of(number, at);
        let subject = &limits.subjects[which];
        limits.put(driver, which);
        before(driver, past.under(subject), number, asked);
        let seen = driver.decide(at, cost);
        let expected = past.under(subject).decide(at, cost);
        prop_assert_eq!(seen, expected, "{:?} under {}", asked, subject.algorithm);
        walk.told(seen);
    }
    Ok(())
}

/// After any charges after the fact, each wait is exact under the limit that then holds, and no longer than the waits
/// of all limits together.
pub(crate) fn law_11_laws_2_to_4_hold_under_the_limit_of_now<D: Limited>(
    limits: &Limits,
    case: &Case,
) -> Holds {
    let mut driver: D = limits.driver();
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        limits.put(&mut driver, limits.of(number, asked.at));
        match number % 8 {
            1 | 4 => driver.settle(asked.at, asked.cost),
            6 => driver.refund(asked.at, asked.cost),
            _ => {}
        }
        let seen = driver.decide(asked.at, asked.cost);
        walk.told(seen);
        if asked.cost == 0 || seen.limit == 0 {
            continue;
        }
        let longest = limits.longest().min(LONGEST);
        let retry = seen.retry_after.unwrap_or(0);
        prop_assert!(seen.reset_after.max(retry) <= longest, "{:?}", seen);
        retry_is_tight(&driver, asked, seen)?;
        remaining_is_tight(&driver, asked, seen)?;
        reset_is_tight(&driver, asked, seen)?;
    }
    Ok(())
}

/// The same, when the clock steps back.
pub(crate) fn law_8_laws_2_to_4_hold_under_the_limit_of_now<D: Limited>(
    limits: &Limits,
    case: &Case,
) -> Holds {
    law_11_laws_2_to_4_hold_under_the_limit_of_now::<D>(limits, case)
}

/// The algorithm admits no more than under the highest limit alone: no span exceeds its bound, and no request is
/// admitted that the highest limit would deny after all admitted requests.
pub(crate) fn law_11_no_change_of_limit_admits_more_than_the_highest_limit<D: Limited>(
    limits: &Limits,
    case: &Case,
) -> Holds {
    let highest = limits.highest();
    let mut driver: D = limits.driver();
    let mut alone = Step::new(highest.algorithm);
    let mut admitted: Vec<CaseRequest> = Vec::new();
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        limits.put(&mut driver, limits.of(number, asked.at));
        let seen = driver.decide(asked.at, asked.cost);
        walk.told(seen);
        if !seen.allowed || asked.cost == 0 {
            continue;
        }
        let alone = alone.decide(asked.at, asked.cost);
        // A bucket by interval that is full sooner begins its intervals later.
        if highest.algorithm.name() != "token-bucket-interval" {
            prop_assert!(alone.allowed, "{:?}", asked);
            let used = |seen: &Seen| seen.limit - seen.remaining;
            prop_assert!(
                seen.remaining == 0 || used(&seen) >= used(&alone),
                "{seen:?} {alone:?}"
            );
        }
        admitted.push(asked);
        let mut sum = 0;
        for first in admitted.iter().rev() {
            sum += i128::from(first.cost);
            let span = asked.at - first.at;
            let most = highest.rule.most_within(span.into());
            prop_assert!(sum <= most, "{sum} in {span} µs, where {most} may be");
        }
    }
    Ok(())
}

/// A limit that is lowered and raised again grants nothing, and takes nothing: requests that are denied under the
/// lower limit leave no trace, and admitted ones count.
pub(crate) fn law_11_down_and_up_again_grants_nothing<D: Limited>(
    limits: &Limits,
    case: &Case,
) -> Holds {
    let mut flapping: D = limits.driver();
    let mut steady: D = limits.driver();
    limits.put(&mut steady, 0);
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        let CaseRequest { at, cost } = asked;
        limits.put(&mut flapping, 0);
        let seen = flapping.decide(at, cost);
        prop_assert_eq!(seen, steady.decide(at, cost), "{:?}", asked);
        walk.told(seen);
        limits.put(&mut flapping, 1 + number % 2);
        flapping.peek(at, cost);
        let never = flapping.peek(at, 0).limit.checked_add(1);
        if let Some(never) = never {
            prop_assert!(!flapping.decide(at, never).allowed);
        }
    }
    Ok(())
}

/// The strides of the model equal its steps.
#[test]
fn the_model_drains_step_by_step() {
    for (capacity, rate) in [(0, 0), (0, 5), (2, 1), (2, 3), (2, 7), (3, 40), (1, 1_000)] {
        let pace = Pace {
            capacity,
            rate,
            parts: 10,
            step: 1,
        };
        for (owed, charged_at) in [(1, 1), (35, 1), (70, 4), (70, 11), (99, 33), (99, 2_000)] {
            let mut debt = Debt::of(owed, charged_at);
            for steps in 0..120 {
                let at_once = Debt::of(owed, charged_at).owed_at(pace, steps);
                assert_eq!(debt.owed_at(pace, 0), at_once, "{pace:?} {owed} {steps}");
                pace.step(&mut debt);
            }
        }
    }
}

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

fn waits(algorithm: impl Into<Algorithm>, state: &State, at: u64) -> Option<u64> {
    let (outcome, _) = algorithm.into().step(state.clone(), Micros::new(at), 1);
    outcome.retry_after().map(micros)
}

#[test]
fn ten_thousand_a_day_lowered_to_a_hundred_locks_out_for_about_a_day() {
    let (many, few) = (TokenBucket::per_day(10_000), TokenBucket::per_day(100));
    let at = 1_000 * DAY;
    let (_, state) = Algorithm::from(many).step(State::NEW, Micros::new(at), 10_000);
    // 9,900 at 10,000 a day, and one at 100 a day.
    assert_eq!(waits(few, &state, at), Some(DAY - DAY / 100 + DAY / 100));
    let (outcome, _) = Algorithm::from(few).step(state.clone(), Micros::new(at), 0);
    assert_eq!(micros(outcome.reset_after()), 2 * DAY - DAY / 100);
    // A raised limit acts as if it had never been lowered.
    assert_eq!(waits(many, &state, at), Some(DAY / 10_000));
}

/// The charges of several rates drain at the highest of them, as far as they exceed the capacity.
#[test]
fn the_highest_rate_at_which_it_was_charged_is_that_of_the_excess() {
    let at = |seconds: u64| Micros::new(1_000 * DAY + seconds * SECOND);
    let [slow, fast] = [1, 10].map(|rate| Algorithm::from(Gcra::per_second(rate).burst(100)));
    let (_, state) = slow.step(State::NEW, at(0), 50);
    let (_, state) = fast.step(state, at(0), 1);
    let (_, state) = slow.step(state, at(0), 49);
    let small = Gcra::per_second(1).burst(20);
    // 80 at 10 a second, and one at one a second.
    assert_eq!(waits(small, &state, at(0).get()), Some(9 * SECOND));
    // The next charge begins anew when the debt is gone.
    let (_, state) = slow.step(state, at(200), 100);
    assert_eq!(waits(small, &state, at(200).get()), Some(81 * SECOND));
}

#[test]
fn a_charge_after_the_fact_under_a_lower_limit_cuts_no_debt() {
    let at = Micros::new(1_000 * DAY);
    let (_, state) = Algorithm::from(Gcra::per_second(10).burst(100)).step(State::NEW, at, 100);
    let low = Algorithm::from(Gcra::per_second(10).burst(10));
    let settled = low.settle(state.clone(), at, 5);
    assert_eq!(settled, state);
    let (outcome, _) = low.step(settled, at, 0);
    assert_eq!(micros(outcome.reset_after()), 10 * SECOND);
}

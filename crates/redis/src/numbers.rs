//! A remembered denial: an outcome whose times run down, or the state to compute it from.

use super::opened::OpenedPolicy;
use super::reply::KeyReply;
use super::reply::depends_on_a_calendar;
use tower_ratelimit_core::__internal::Remembered;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::{Outcome, Outcomes};

/// A remembered denied charge, from which the outcome of a later moment is computed.
#[derive(Debug)]
pub(super) enum Numbers {
    /// Only the times change, which run down.
    RunDown(Outcome),
    /// Other numbers change too, so they are computed each time.
    Counted(Box<KeyReply>),
}

impl Numbers {
    /// Chooses the form for a denial that is remembered for this long.
    pub(super) fn of(reply: &KeyReply, counted: &OpenedPolicy, length: Micros) -> Self {
        let first = reply.outcome(counted, Micros::ZERO);
        let last = reply.outcome(counted, length);
        // While no request arrives, the remaining units do not decrease, and a moment to which a time runs
        // down does not come nearer. So numbers that are equal at both ends are equal in between. In a
        // calendar, the lengths of windows and the limits come and go.
        if !depends_on_a_calendar(&counted.algorithm) && first.aged_by(length) == last {
            Self::RunDown(first)
        } else {
            Self::Counted(Box::new(reply.clone()))
        }
    }
}

impl Remembered for Numbers {
    type Policy = OpenedPolicy;

    fn replay(
        &self,
        (policy, counted): (usize, &OpenedPolicy),
        later: Micros,
        outcomes: &mut Outcomes,
    ) {
        // Each arm pushes by itself: a common outcome would be built elsewhere and moved.
        match self {
            Self::RunDown(first) => outcomes.push(policy, first.aged_by(later)),
            Self::Counted(reply) => outcomes.push(policy, reply.outcome(counted, later)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use redis::Value;

    use super::*;
    use crate::functions::{algorithms, past};
    use crate::opened::Charges;
    use crate::reply::ScriptReply;
    use tower_ratelimit_core::algorithm::{Algorithm, State};
    use tower_ratelimit_core::key::IntoKey;
    use tower_ratelimit_core::store::Charge;

    const START: i64 = 1_790_000_000_123_456;

    /// The state of a key, and the question about it.
    #[derive(Clone, Debug)]
    struct Denied {
        state: State,
        at: Micros,
        charge: Charge,
        blocked: Micros,
        has_own_limit: bool,
    }

    impl Denied {
        /// Returns the answer of the script.
        fn answer(&self, algorithm: &Algorithm) -> ScriptReply {
            let (alone, _) = algorithm.step(self.state.clone(), self.at, self.charge.cost);
            let own = if self.has_own_limit {
                let lua = algorithm.lua().expect("it has a limit");
                let [a, b, c, d] = lua.numbers;
                format!("=1000000 {a} {b} {c} {d}|")
            } else {
                String::new()
            };
            let words: Vec<_> = self.state.words().iter().map(u64::to_string).collect();
            let text = format!(
                "{};{};{};{own}{}",
                self.at.get(),
                u8::from(alone.is_allowed()),
                self.blocked.get(),
                words.join(" ")
            );
            let charges = Charges::from_slice(&[self.charge]);
            ScriptReply::read(Value::BulkString(text.into_bytes()), &charges)
                .expect("it is an answer")
        }
    }

    fn outcome(numbers: &Numbers, counted: &OpenedPolicy, later: Micros) -> Outcome {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        numbers.replay((0, counted), later, &mut outcomes);
        let (_, outcome) = outcomes.iter().next().expect("there is one");
        *outcome
    }

    /// Returns this many ten-thousandths of this time.
    fn part_of(time: u64, part: u32) -> u64 {
        time / 10_000 * u64::from(part)
    }

    /// The bound on remembered denials assumes numbers of this size.
    #[test]
    fn counted_numbers_take_no_more_room_than_an_outcome() {
        assert_eq!(size_of::<Numbers>(), size_of::<Outcome>());
    }

    #[test]
    fn a_later_reading_tells_the_state_at_that_time() {
        let part = || prop_oneof![Just(0), 0..30_u32, 0..20_000_u32];
        let length = (part(), 0..3_u64);
        let cases = (
            (algorithms(), past()),
            (part(), 0..6_u32, any::<u32>()),
            (part(), any::<bool>(), any::<bool>()),
            (length, proptest::collection::vec(0..=10_000_u32, 8)),
        );
        let mut config = Config::default();
        config.cases = config.cases.max(20_000);
        config.failure_persistence = None;
        let result = TestRunner::new(config).run(
            &cases,
            |((algorithm, past), (gap, near, far), (blocked, soft, own), (length, moments))| {
                let limit = algorithm.limit().unwrap_or(1);
                let longest = algorithm.longest_wait().map_or(1_000_000, |wait| {
                    u64::try_from(wait.as_micros()).map_or(1 << 47, |wait| wait.min(1 << 47))
                });
                let (mut at, mut state) = (START, State::NEW);
                for (part, cost) in past {
                    at += i64::try_from(longest / 10_000).unwrap() * i64::from(part);
                    let (now, cost) = (Micros::new(at.unsigned_abs()), 1 + (cost - 1) % limit);
                    state = match cost % 5 {
                        0 => algorithm.settle(state, now, cost),
                        _ => algorithm.step(state, now, cost).1,
                    };
                }
                let cost = if near < 4 { near } else { far % limit.max(1) };
                let charge = Charge::new(0, "ann".into_key(), cost);
                let denied = Denied {
                    state,
                    at: Micros::new(at.unsigned_abs() + part_of(longest, gap)),
                    charge: if soft { charge.soft() } else { charge },
                    blocked: Micros::new(part_of(longest, blocked)),
                    has_own_limit: own,
                };
                let counted = OpenedPolicy::of(algorithm);
                let answer = denied.answer(&algorithm);
                let answered = answer.of(0).expect("it has an answer");
                let length = part_of(longest, length.0) + length.1;
                let numbers = Numbers::of(answered, &counted, Micros::new(length));
                let within = moments.iter().map(|part| part_of(length, *part));
                for later in within.chain([0, 1.min(length), length.saturating_sub(1), length]) {
                    let later = Micros::new(later);
                    prop_assert_eq!(
                        outcome(&numbers, &counted, later),
                        answered.outcome(&counted, later),
                        "{} {:?} after {:?} of {}: {:?}",
                        algorithm,
                        denied,
                        later,
                        length,
                        numbers
                    );
                }
                Ok(())
            },
        );
        if let Err(failure) = result {
            panic!("{failure}");
        }
    }

    /// The flood for which denials are remembered.
    #[test]
    fn until_one_more_request_passes_nothing_is_counted_out() {
        for algorithm in [
            "fixed-window 3/minute",
            "anchored-window 3/minute",
            "sliding-window 3/minute",
            "sliding-log 3/minute",
            "sliding-slots 3/minute",
            "token-bucket 3/minute",
            "token-bucket-interval 3/minute",
            "leaky-bucket 3/minute capacity 3",
            "leaky-queue 3/minute places 2",
            "gcra 3/minute burst 3",
        ] {
            let algorithm: Algorithm = algorithm.parse().unwrap();
            let at = Micros::new(START.unsigned_abs());
            let mut state = State::NEW;
            for _ in 0..3 {
                state = algorithm.step(state, at, 1).1;
            }
            let denied = Denied {
                state,
                at,
                charge: Charge::new(0, "ann".into_key(), 1),
                blocked: Micros::ZERO,
                has_own_limit: false,
            };
            let (answer, counted) = (denied.answer(&algorithm), OpenedPolicy::of(algorithm));
            let answered = answer.of(0).unwrap();
            let wait = answered.outcome(&counted, Micros::ZERO).retry_micros();
            let until = wait.unwrap().saturating_sub(Micros::new(1));
            let numbers = Numbers::of(answered, &counted, until);
            assert!(matches!(numbers, Numbers::RunDown(_)), "{algorithm}");
        }
    }
}

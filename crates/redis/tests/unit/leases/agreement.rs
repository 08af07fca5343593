//! Law 9 with leases: the script does the same to a state, and to the units that nodes hold of it, as the
//! rule in Rust.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use redis::Connection;

use super::ask::{Grant, UnitsReport, UnitsRequest};
use super::leased::Leased;
use super::terms::Terms;
use crate::glue::glue;
use tower_ratelimit_core::__internal::read;
use tower_ratelimit_core::__internal::{Fixed, Lua, Step, WithRule};
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_testing::servers::redis::Server;

/// The operation on the key.
#[derive(Clone, Copy, Debug)]
enum Verb {
    /// Asks with a cost for this many units, for some of which requests wait, with this demand.
    Ask {
        units: u32,
        awaited: u32,
        seen: u32,
    },
    /// A node without leases asks with a cost.
    Charge,
    Take,
    Refund,
    Settle,
    /// A request settles a cost that was higher than charged, together with other requests.
    SettleMore,
    /// A request settles a cost that was lower than charged.
    SettleLess,
    Reset,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    /// The time since the previous deed, in thousandths of the time in which everything drains. The clock may
    /// step back.
    gap: i32,
    verb: Verb,
    amount: u32,
    /// How many eighths of each class were spent, and are given back. They may be more than all.
    spent: u32,
    unspent: u32,
}

/// The state of one key in Rust.
#[derive(Clone, Debug, Default)]
struct KeyState {
    state: State,
    leased: Leased,
}

/// A deed in Rust: its result, and the state after it.
struct Act<'a> {
    kept: KeyState,
    now: Micros,
    amount: u32,
    verb: Verb,
    tells: &'a [UnitsReport],
    terms: Terms,
}

struct Acted {
    /// Whether it was allowed, or how many units were taken.
    units: u32,
    grant: Option<Grant>,
    kept: KeyState,
    /// Whether no state is left.
    is_new: bool,
}

impl Act<'_> {
    fn under<S: Step>(self, rule: &S) -> Acted {
        let before = self.kept.clone();
        let KeyState { state, mut leased } = self.kept;
        let (now, amount) = (self.now, self.amount);
        let mut kept = read(rule, state, now);
        leased.end(rule, &mut kept, now);
        let (mut units, mut grant) = (0, None);
        match self.verb {
            Verb::Ask {
                units: wanted,
                awaited,
                seen,
            } => {
                leased.hear(rule, &mut kept, now, self.tells);
                if leased.allows(rule, &kept, now, amount) {
                    units = 1;
                    if amount > 0 {
                        rule.charge(&mut kept, now, amount);
                    }
                    let ask = UnitsRequest {
                        cost: amount,
                        units: wanted,
                        awaited,
                        seen,
                        tells: self.tells.into(),
                        ..UnitsRequest::default()
                    };
                    grant = leased.grant(rule, &kept, now, &ask, self.terms);
                }
            }
            Verb::Charge => {
                if leased.allows(rule, &kept, now, amount) {
                    units = 1;
                    if amount > 0 {
                        rule.charge(&mut kept, now, amount);
                    }
                }
            }
            Verb::Take => {
                units = (0..=amount.min(rule.limit()))
                    .rev()
                    .find(|units| leased.allows(rule, &kept, now, *units))
                    .unwrap_or(0);
                if units > 0 {
                    rule.charge(&mut kept, now, units);
                }
            }
            Verb::Refund | Verb::SettleLess => rule.refund(&mut kept, now, amount),
            Verb::Settle | Verb::SettleMore if amount > 0 && rule.limit() > 0 => {
                rule.settle(&mut kept, now, amount);
            }
            Verb::Settle | Verb::SettleMore => {}
            Verb::Reset => kept = S::Form::default(),
        }
        let is_written =
            amount > 0 || !matches!(self.verb, Verb::Charge | Verb::Take | Verb::Settle);
        let is_new = leased.units() == 0 && rule.reset_after(&kept, now) == Micros::ZERO;
        Acted {
            units,
            grant,
            kept: if is_written {
                KeyState {
                    state: rule.write(kept),
                    leased,
                }
            } else {
                before
            },
            is_new,
        }
    }
}

impl WithRule for Act<'_> {
    type Result = Acted;

    fn fixed(self, rule: impl Fixed) -> Acted {
        self.under(&rule)
    }

    fn long(self, rule: impl Step<Form = State>) -> Acted {
        self.under(&rule)
    }
}

/// The scripts of one algorithm.
struct Scripts {
    lua: Lua,
    lease: redis::Script,
    charge: redis::Script,
    take: redis::Script,
    amend: redis::Script,
    settle: redis::Script,
}

impl Scripts {
    fn of(algorithm: &Algorithm) -> Self {
        let lua = algorithm.lua().expect("it has a limit");
        let script = |driver| redis::Script::new(&glue(&[lua], driver));
        Self {
            lua,
            lease: script(include_str!("../../../src/lease/lease.lua")),
            charge: script(include_str!("../../../src/charge.lua")),
            take: script(include_str!("../../../src/take.lua")),
            amend: script(include_str!("../../../src/amend.lua")),
            settle: script(include_str!("../../../src/settle.lua")),
        }
    }

    /// Runs the script. Returns whether it was allowed, or how many units were taken, and what was granted.
    fn run(&self, connection: &mut Connection, act: &Act<'_>) -> (u32, Option<Grant>) {
        let numbers = self.lua.numbers_at(|| act.now);
        let now = act.now.get();
        let fields = |text: String| -> Vec<u64> {
            let mut words = text.split(';').map(|word| word.parse().unwrap_or(0));
            words.by_ref().take(6).collect()
        };
        match act.verb {
            Verb::Ask {
                units,
                awaited,
                seen,
            } => {
                let mut call = self.lease.key("key");
                call.arg(now).arg(1).arg(self.lua.name).arg(&numbers);
                call.arg(&act.terms.numbers());
                call.arg(1)
                    .arg(1)
                    .arg(act.amount)
                    .arg(0)
                    .arg(units)
                    .arg(awaited)
                    .arg(seen);
                call.arg(act.tells.len());
                for tell in act.tells {
                    call.arg(tell.end.get()).arg(tell.spent).arg(tell.unspent);
                }
                let text: String = call.invoke(connection).expect("it runs");
                assert!(!text.starts_with('-'), "{text}");
                let fields = fields(text);
                let grant = Grant {
                    units: u32::try_from(fields[3]).expect("units"),
                    end: Micros::new(fields[4]),
                    lasts: Micros::new(fields[5]),
                };
                let fits = u32::try_from(fields[1]).expect("a flag");
                (fits, (grant.lasts > Micros::ZERO).then_some(grant))
            }
            Verb::Charge => {
                let mut call = self.charge.key("key");
                call.arg(now)
                    .arg("charge")
                    .arg(1)
                    .arg(self.lua.name)
                    .arg(&numbers);
                call.arg(1).arg(1).arg(1).arg(act.amount).arg(0);
                let text: String = call.invoke(connection).expect("it runs");
                (u32::try_from(fields(text)[1]).expect("a flag"), None)
            }
            Verb::Take => {
                let mut call = self.take.key("key");
                call.arg(now)
                    .arg("take")
                    .arg(self.lua.name)
                    .arg(act.amount)
                    .arg(0);
                call.arg(&numbers).arg("");
                let text: String = call.invoke(connection).expect("it runs");
                (u32::try_from(fields(text)[0]).expect("units"), None)
            }
            Verb::SettleMore | Verb::SettleLess => {
                let amount = i64::from(act.amount);
                let mut call = self.settle.key("key");
                call.arg(now).arg(1).arg(self.lua.name);
                call.arg(&numbers).arg("");
                call.arg(1).arg(match act.verb {
                    Verb::SettleMore => amount,
                    _ => -amount,
                });
                call.arg(now + 1);
                let answer: String = call.invoke(connection).expect("it runs");
                assert_eq!(answer, "1");
                (0, None)
            }
            Verb::Refund | Verb::Settle | Verb::Reset => {
                let verb = match act.verb {
                    Verb::Refund => "refund",
                    Verb::Settle => "settle",
                    _ => "reset",
                };
                let mut call = self.amend.key("key");
                call.arg(now)
                    .arg(verb)
                    .arg(self.lua.name)
                    .arg(act.amount)
                    .arg(0);
                call.arg(&numbers).arg("");
                let _: u32 = call.invoke(connection).expect("it runs");
                (0, None)
            }
        }
    }
}

/// Returns what the server stores: the words of the mark, and those of the state.
fn stored(connection: &mut Connection, algorithm: &Algorithm) -> Option<(Vec<u64>, Vec<u64>)> {
    let words = |text: &str| -> Vec<u64> {
        let words = text.split(' ').filter(|word| !word.is_empty());
        words.map(|word| word.parse().expect("a number")).collect()
    };
    let (mark, state) = if let Algorithm::SlidingLog(_) = algorithm {
        let list: Vec<String> = redis::cmd("LRANGE")
            .arg("key")
            .arg(0)
            .arg(-1)
            .query(connection)
            .expect("a list");
        let mark = list.first()?.clone();
        let mut state = words(&list[1..].join(" "));
        let before = state[0];
        for total in state.iter_mut().skip(2).step_by(2) {
            *total -= before;
        }
        state[0] = 0;
        (mark, state)
    } else {
        let text: Option<String> = redis::cmd("GET")
            .arg("key")
            .query(connection)
            .expect("a text");
        let text = text?;
        let (mark, state) = text.split_once(';').unwrap_or(("", &text));
        (mark.to_owned(), words(state))
    };
    Some((words(mark.trim_start_matches('~')), state))
}

/// Returns the words of a state without the zeros at their end; for a log, without forgotten entries.
fn trimmed(algorithm: &Algorithm, words: &[u64]) -> Vec<u64> {
    let mut words = words.to_vec();
    if let (Algorithm::SlidingLog(_), Some(&forgotten)) = (algorithm, words.first()) {
        let gone = 2 * usize::try_from(forgotten).expect("a number of entries");
        let before = if gone > 0 { words[gone] } else { 0 };
        words.drain(1..=gone);
        words[0] = 0;
        for total in words.iter_mut().skip(2).step_by(2) {
            *total -= before;
        }
    }
    while words.last() == Some(&0) {
        words.pop();
    }
    words
}

fn holds(
    connection: &mut Connection,
    algorithm: &Algorithm,
    life: u32,
    deeds: &[Operation],
) -> TestCaseResult {
    let (): () = redis::cmd("DEL")
        .arg("key")
        .query(connection)
        .expect("it is deleted");
    let terms = Terms::of(algorithm, Micros::new(life.into())).expect("it can be leased");
    let scripts = Scripts::of(algorithm);
    let longest = algorithm
        .longest_wait()
        .map_or(1_000, |wait| Micros::from(wait).get());
    let limit = algorithm.limit().expect("it has one");
    let mut now = Micros::new(1_790_000_000_123_456);
    let mut kept = KeyState::default();
    let mut classes: Vec<(Micros, u32)> = Vec::new();
    for deed in deeds {
        let gap = Micros::new(longest * u64::from(deed.gap.unsigned_abs()) / 1_000);
        now = if deed.gap < 0 {
            now.saturating_sub(gap)
        } else {
            now.saturating_add(gap)
        };
        let part = |units: u32, eighths: u32| {
            u32::try_from(u64::from(units) * u64::from(eighths) / 8).expect("units")
        };
        let tells: Vec<UnitsReport> = classes
            .iter()
            .map(|(end, units)| UnitsReport {
                end: *end,
                spent: part(*units, deed.spent),
                unspent: part(*units, deed.unspent),
            })
            .collect();
        let amount = deed.amount % (limit / 4 + 2);
        let act = Act {
            kept: kept.clone(),
            now,
            amount: match deed.verb {
                // Where there is nothing to settle, nothing is told.
                Verb::SettleMore | Verb::SettleLess => amount.max(1),
                _ => amount,
            },
            verb: deed.verb,
            tells: &tells,
            terms,
        };
        let in_lua = scripts.run(connection, &act);
        let Acted {
            units,
            grant,
            kept: then,
            is_new,
        } = algorithm.with_rule(act);
        prop_assert_eq!(in_lua, (units, grant), "{:?}", deed);
        kept = then;
        let Some((mark, state)) = stored(connection, algorithm) else {
            prop_assert!(is_new, "the server has nothing of {:?}", kept);
            kept = KeyState::default();
            continue;
        };
        let is_unmarked = mark.is_empty() && kept.leased == Leased::default();
        prop_assert!(
            is_unmarked || mark == kept.leased.words(),
            "{:?} of {:?}: {:?}",
            mark,
            kept,
            deed
        );
        let in_lua = trimmed(algorithm, &state);
        let in_rust = trimmed(algorithm, kept.state.words());
        prop_assert_eq!(in_lua, in_rust, "{:?}", deed);
        let dies: i64 = redis::cmd("PTTL")
            .arg("key")
            .query(connection)
            .expect("a time");
        prop_assert!(dies > 0, "it dies in {}", dies);
        if let Verb::Ask { .. } = deed.verb {
            for (_, units) in &mut classes {
                *units -= part(*units, deed.spent).min(*units);
            }
        }
        if let Some(grant) = grant {
            classes.push((grant.end, grant.units));
            if classes.len() > 3 {
                classes.remove(0);
            }
        }
    }
    Ok(())
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(vec![
        "fixed-window 100/second",
        "fixed-window 999983/day",
        "anchored-window 100/second",
        "sliding-window 100/second",
        "sliding-window 999983/day",
        "sliding-log 60/second",
        "sliding-log 1000/minute",
        "sliding-slots 100/second",
        "sliding-slots 1000/day slots 96",
        "token-bucket 100/second burst 50",
        "leaky-bucket 7/second capacity 100",
        "gcra 999983/day burst 4000000000",
        "token-bucket-interval 10/100ms burst 100",
    ])
    .prop_map(|text| text.parse().expect("it is one"))
}

fn deeds() -> impl Strategy<Value = Vec<Operation>> {
    let awaited = prop_oneof![2 => Just(0), 1 => 0..200_u32];
    let units = prop_oneof![4 => 0..200_u32, 1 => any::<u32>()];
    let seen = prop_oneof![4 => 0..300_u32, 1 => any::<u32>()];
    let ask = (units, awaited, seen).prop_map(|(units, awaited, seen)| Verb::Ask {
        units,
        awaited: awaited.min(units),
        seen,
    });
    let verb = prop_oneof![
        6 => ask,
        2 => Just(Verb::Charge),
        1 => Just(Verb::Take),
        1 => Just(Verb::Refund),
        1 => Just(Verb::Settle),
        1 => Just(Verb::SettleMore),
        1 => Just(Verb::SettleLess),
        1 => Just(Verb::Reset),
    ];
    let gap = prop_oneof![2 => Just(0), 2 => 0..20, 2 => 0..400, 2 => 0..3_000, 1 => -400..0];
    let parts = prop_oneof![Just(0), 0..10_u32];
    let amount = prop_oneof![4 => 0..40_u32, 1 => any::<u32>()];
    let deed = (gap, verb, amount, parts.clone(), parts);
    let deed = deed.prop_map(|(gap, verb, amount, spent, unspent)| Operation {
        gap,
        verb,
        amount,
        spent,
        unspent,
    });
    proptest::collection::vec(deed, 1..14)
}

#[test]
fn law_9_asks_tells_and_grants_are_the_same_in_both_languages() {
    let server = Server::start(&[]);
    let connection = RefCell::new(server.connection());
    let lives = prop_oneof![10_000..100_000_u32, 1_000_000..60_000_000_u32];
    let mut config = Config::default();
    config.cases = config.cases.max(1_000);
    config.failure_persistence = None;
    let cases = (algorithms(), lives, deeds());
    let result = TestRunner::new(config).run(&cases, |(algorithm, life, deeds)| {
        holds(&mut connection.borrow_mut(), &algorithm, life, &deeds)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

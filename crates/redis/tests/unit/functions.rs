//! Checks that each function of a rule in Lua returns what the function of the same name in Rust returns.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use redis::Connection;

#[cfg(feature = "calendar")]
use super::failure::failure;
use super::glue::glue;
use tower_ratelimit_core::__internal::{Fixed, Lua, Step, WithRule};
use tower_ratelimit_core::algorithm::{Algorithm, State};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_testing::servers::redis::Server;

/// Calls one function of a rule, and returns its result and the new state as text.
const DRIVER: &str = "
local rule, name, now, amount = rules[ARGV[1]], ARGV[2], ARGV[4] + 0, ARGV[5] + 0
local limit, a, b, c = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9] + 0
if rule.present then
  a, b, c = rule.present(now, a, b, c)
end
local words, kept = {}, {}
for word in string.gmatch(ARGV[3], '%d+') do
  words[#words + 1] = word + 0
end
redis.call('DEL', KEYS[1])
if rule.load then
  redis.call('RPUSH', KEYS[1], '', 0)
  for index = 2, #words do
    redis.call('RPUSH', KEYS[1], words[index])
  end
  kept = rule.load(KEYS[1])
else
  for index = 1, math.max(#words, 3) do
    kept[index] = words[index] or 0
  end
end
local returned = ''
if name == 'moved_back' then
  returned = rule.moved_back(kept, now, limit, a, b, c)
  kept = returned or kept
  returned = returned and 'moved' or ''
elseif name == 'admits' then
  returned = rule.admits(kept, now, amount, limit, a, b, c) and 'yes' or 'no'
elseif name == 'remaining' then
  returned = string.format('%d', rule.remaining(kept, now, limit, a, b, c))
elseif name == 'bin_end' then
  returned = rule.bin_end and string.format('%d', rule.bin_end(kept, now, limit, a, b, c)) or 'never'
elseif name == 'reset_after' then
  local lasts = rule.reset_after(kept, now, limit, a, b, c)
  returned = string.format('%.0f', math.min(lasts, 9007199254740991))
else
  local change = {charge = rule.charge, settle = rule.settle, refund = rule.refund}
  change[name](kept, now, amount, limit, a, b, c)
end
if not rule.load then
  return {returned, words_of(kept)}
end
rule.save(kept, KEYS[1], '', 1000000)
local list = redis.call('LRANGE', KEYS[1], 1, -1)
for index = 3, #list, 2 do
  list[index] = string.format('%.0f', list[index] - list[1])
end
list[1] = 0
return {returned, table.concat(list, ' ')}
";

const FUNCTIONS: [&str; 8] = [
    "moved_back",
    "admits",
    "charge",
    "settle",
    "refund",
    "reset_after",
    "remaining",
    "bin_end",
];

/// A call of one of the functions, as Rust makes it.
struct Call<'a> {
    name: &'a str,
    state: State,
    now: Micros,
    amount: u32,
}

impl Call<'_> {
    fn under<S: Step>(self, rule: &S) -> (String, State) {
        let Self {
            state, now, amount, ..
        } = self;
        let mut kept = rule.read(state);
        let mut returned = String::new();
        match self.name {
            "moved_back" => {
                if let Some(moved) = rule.moved_back(&kept, now) {
                    kept = moved;
                    returned = "moved".to_owned();
                }
            }
            "admits" => {
                let admits = rule.admits(&kept, now, amount);
                returned = if admits { "yes" } else { "no" }.to_owned();
            }
            "reset_after" => returned = rule.reset_after(&kept, now).get().to_string(),
            "remaining" => returned = rule.remaining(&kept, now).to_string(),
            "bin_end" => {
                let end = rule.bin_end(&kept, now).get();
                returned = if end == u64::MAX {
                    "never".to_owned()
                } else {
                    end.to_string()
                };
            }
            "charge" => rule.charge(&mut kept, now, amount),
            "settle" => rule.settle(&mut kept, now, amount),
            _ => rule.refund(&mut kept, now, amount),
        }
        (returned, rule.write(kept))
    }
}

impl WithRule for Call<'_> {
    type Result = (String, State);

    fn fixed(self, rule: impl Fixed) -> Self::Result {
        self.under(&rule)
    }

    fn long(self, rule: impl Step<Form = State>) -> Self::Result {
        self.under(&rule)
    }
}

/// Returns the words of a state; for a log, without forgotten entries.
fn words(algorithm: &Algorithm, words: &[u64]) -> Vec<u64> {
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
    words
}

/// Removes the zeros at the end.
fn trimmed(mut words: Vec<u64>) -> Vec<u64> {
    while words.last() == Some(&0) {
        words.pop();
    }
    words
}

pub(super) fn algorithms() -> impl Strategy<Value = Algorithm> {
    let quotas = proptest::sample::select(vec![
        "5/second",
        "1/ms",
        "999983/day",
        "1000000/day",
        "1000000000/30d",
        "4294967295/366d",
        "7/366d",
        "3/1009us",
    ]);
    let shapes = proptest::sample::select(vec![
        "fixed-window Q",
        "anchored-window Q",
        "sliding-window Q",
        "sliding-log 7/minute",
        "sliding-log 60000/hour",
        "sliding-slots 5/minute slots 60",
        "sliding-slots 9/2s slots 1",
        "sliding-slots 1000/day slots 128",
        "token-bucket Q",
        "gcra Q burst 12",
        "gcra Q burst 4294967295",
        "leaky-bucket Q capacity 3",
        "leaky-queue Q places 4",
        "token-bucket-interval Q",
        "token-bucket-interval Q burst 3",
        #[cfg(feature = "calendar")]
        "calendar-day 5 zone America/Sao_Paulo start 06:00",
        #[cfg(feature = "calendar")]
        "calendar-month 7 zone UTC",
    ]);
    (shapes, quotas)
        .prop_map(|(shape, quota)| shape.replace('Q', quota).parse().expect("it is one"))
}

/// Returns a request: the time since the previous one in parts of the longest wait, sometimes negative, and a cost.
pub(super) fn past() -> impl Strategy<Value = Vec<(i32, u32)>> {
    let part = prop_oneof![Just(0), -5..30, -2_000..20_000_i32];
    let cost = prop_oneof![1..4_u32, 1..=u32::MAX];
    proptest::collection::vec((part, cost), 1..8)
}

fn holds(
    connection: &mut Connection,
    algorithm: &Algorithm,
    past: &[(i32, u32)],
    name: &str,
) -> TestCaseResult {
    let longest = algorithm
        .longest_wait()
        .map_or(1_000_000, |wait| wait.as_micros());
    let longest = i64::try_from(longest.min(1 << 47)).expect("it is less than 2^47");
    let mut at = 1_790_000_000_123_456_i64;
    let mut state = State::NEW;
    let limit = algorithm.limit().unwrap_or(1);
    let lua = algorithm.lua().expect("it has a limit");
    let Lua { name: rule, .. } = lua;
    for &(part, cost) in past {
        at += longest / 10_000 * i64::from(part);
        let now = Micros::new(at.unsigned_abs());
        let amount = 1 + (cost - 1) % limit;
        let call = |name, state: &State| Call {
            name,
            state: state.clone(),
            now,
            amount,
        };
        // The others see only states that need not be moved back.
        let (_, possible) = algorithm.with_rule(call("moved_back", &state));
        let given = match name {
            "moved_back" => &state,
            _ => &possible,
        };
        let (returned, kept) = algorithm.with_rule(call(name, given));

        let text = glue(&algorithm.lua().into_iter().collect::<Vec<_>>(), DRIVER);
        let given = words(algorithm, given.words());
        let mut eval = redis::cmd("EVAL");
        eval.arg(text).arg(1).arg("log").arg(rule).arg(name);
        eval.arg(
            given
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        );
        eval.arg(now.get()).arg(amount);
        // The clock of the node may differ by nearly half a day.
        let half_a_day = Micros::new(11 * 3_600_000_000);
        let by_the_node = match cost % 3 {
            0 => now,
            1 => now.saturating_add(half_a_day),
            _ => now.saturating_sub(half_a_day),
        };
        for number in lua.numbers_at(|| by_the_node) {
            eval.arg(number);
        }
        let (in_lua, kept_in_lua): (String, String) = eval.query(connection).expect("it runs");
        prop_assert_eq!(&in_lua, &returned, "{} {} of {:?}", name, algorithm, given);
        let kept_in_lua: Vec<u64> = kept_in_lua
            .split(' ')
            .map(|word| word.parse().expect("a number"))
            .collect();
        prop_assert_eq!(
            trimmed(kept_in_lua),
            trimmed(words(algorithm, kept.words())),
            "{} {} of {:?} at {:?}, {}",
            name,
            algorithm,
            given,
            now,
            amount
        );

        let (admits, _) = algorithm.with_rule(call("admits", &possible));
        let next = match (admits.as_str(), cost % 5) {
            (_, 0) => "settle",
            ("yes", _) => "charge",
            _ => "refund",
        };
        (_, state) = algorithm.with_rule(call(next, &possible));
    }
    Ok(())
}

#[test]
fn law_9_every_function_of_every_rule_is_the_same_in_both_languages() {
    let server = Server::start(&[]);
    let connection = RefCell::new(server.connection());
    let cases = (
        algorithms(),
        past(),
        proptest::sample::select(FUNCTIONS.to_vec()),
    );
    let mut config = Config::default();
    config.cases = config.cases.max(2_000);
    config.failure_persistence = None;
    let result = TestRunner::new(config).run(&cases, |(algorithm, past, name)| {
        holds(&mut connection.borrow_mut(), &algorithm, &past, name)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Cases rarely count so much.
#[test]
fn law_9_a_count_is_settled_at_the_most_that_it_can_hold_in_both_languages() {
    let server = Server::start(&[]);
    for window in [
        "fixed-window 4294967295/366d",
        "anchored-window 4294967295/366d",
        "sliding-window 4294967295/366d",
        "sliding-slots 4294967295/366d",
        #[cfg(feature = "calendar")]
        "calendar-day 4294967295 zone UTC",
    ] {
        let algorithm = window.parse().unwrap();
        let past = [(0, u32::MAX); 3];
        let same = holds(&mut server.connection(), &algorithm, &past, "settle");
        same.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_server_that_is_in_neither_window_of_a_calendar_fails_and_says_why() {
    let server = Server::start(&[]);
    let mut connection = server.connection();
    let algorithm: Algorithm = "calendar-day 5 zone UTC".parse().unwrap();
    let lua = algorithm.lua().unwrap();
    let text = glue(&[lua], include_str!("../../src/charge.lua"));
    let noon: i64 = 20_000 * 86_400 + 43_200;
    for (server_is_ahead_by, works) in [
        (0, true),
        (43_199, true),
        (-43_200, true),
        (86_400 + 43_199, true),
        (86_400 + 43_200, false),
        (-43_201, false),
    ] {
        let now = Micros::from_secs((noon + server_is_ahead_by).unsigned_abs());
        let by_the_node = Micros::from_secs(noon.unsigned_abs());
        let mut eval = redis::cmd("EVAL");
        eval.arg(&text).arg(1).arg("key");
        eval.arg(now.get()).arg("charge").arg(1).arg(lua.name);
        for number in lua.numbers_at(|| by_the_node) {
            eval.arg(number);
        }
        eval.arg(1).arg(1).arg(1).arg(1).arg(0);
        let answer = eval.query::<String>(&mut connection);
        let reason = answer.map_err(|error| failure(error).reason());
        let expected = if works {
            None
        } else {
            Some(Some("clocks differ"))
        };
        assert_eq!(reason.err(), expected, "{server_is_ahead_by} s ahead");
    }
}

//! The limits of peers in other languages and frameworks beside ours, as the pages on migrating translate them. Each peer is a
//! model of the algorithm that it documents; both decide alike about each of the same requests. The peers on which the benchmarks
//! depend are there themselves: `benches/tests/migrating.rs`.

use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, LeakyQueue, Limiter, LocalLimiter, ManualClock,
    MemoryStore, Policy, Quota, TokenBucket,
};

/// A limiter of one client, as its documentation says, in microseconds since its first request.
trait Peer {
    /// Returns whether a request of this cost passes.
    fn passes(&mut self, now: u64, cost: u64) -> bool;
}

fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap()
}

/// A counter that begins at the first request and is forgotten after a period: `actix-limitation`, which has it in Redis, and the
/// memory store of express-rate-limit. A refused request is counted too.
struct Counter {
    limit: u64,
    period: u64,
    count: u64,
    ends: u64,
}

impl Counter {
    fn new(limit: u32, period: Duration) -> Self {
        Self {
            limit: limit.into(),
            period: micros(period),
            count: 0,
            ends: 0,
        }
    }
}

impl Peer for Counter {
    fn passes(&mut self, now: u64, cost: u64) -> bool {
        if now >= self.ends {
            (self.count, self.ends) = (0, now + self.period);
        }
        self.count += cost;
        self.count <= self.limit
    }
}

/// When tokens arrive in a bucket of Bucket4j.
#[derive(Clone, Copy, PartialEq)]
enum Refill {
    /// `refillGreedy`: each as soon as its part of the period is over.
    Greedy,
    /// `refillIntervally`: all at the end of each period since the bucket was made, or, for `refillIntervallyAligned`, since a
    /// moment on the clock.
    Intervally,
}

/// One bandwidth of a bucket. Tokens are counted in parts of which a period has one for each microsecond.
struct Bandwidth {
    full: u64,
    tokens: u64,
    period: u64,
    refill: Refill,
    /// What is missing, more than `full` after a charge that ignores the limit.
    spent: u64,
    refilled: u64,
}

impl Bandwidth {
    fn new(capacity: u64, tokens: u64, period: Duration, refill: Refill) -> Self {
        let period = micros(period);
        Self {
            full: capacity * period,
            tokens,
            period,
            refill,
            spent: 0,
            refilled: 0,
        }
    }

    /// With adaptive initial tokens: those of the part of the period that is left, in whole tokens.
    fn adaptive(mut self, made: u64) -> Self {
        let initial = (self.period - made) * self.tokens / self.period;
        self.spent = (self.tokens - initial) * self.period;
        self
    }

    fn is_full(&self) -> bool {
        self.spent == 0
    }

    fn refill(&mut self, now: u64) {
        let mut elapsed = now - self.refilled;
        if self.refill == Refill::Intervally {
            elapsed -= elapsed % self.period;
        }
        self.refilled += elapsed;
        self.spent = self.spent.saturating_sub(elapsed * self.tokens);
    }

    /// `getAvailableTokens`, 0 instead of a debt.
    fn available(&self) -> u64 {
        self.full.saturating_sub(self.spent) / self.period
    }
}

/// A bucket, which takes a token of each bandwidth or none.
struct Bucket(Vec<Bandwidth>);

impl Bucket {
    fn refill(&mut self, now: u64) {
        for limit in &mut self.0 {
            limit.refill(now);
        }
    }

    /// `addTokens`
    fn add(&mut self, tokens: u64) {
        for limit in &mut self.0 {
            limit.spent = limit.spent.saturating_sub(tokens * limit.period);
        }
    }

    /// `consumeIgnoringRateLimits`
    fn force(&mut self, tokens: u64) {
        for limit in &mut self.0 {
            limit.spent += tokens * limit.period;
        }
    }

    /// `getAvailableTokens`
    fn available(&self) -> u64 {
        self.0.iter().map(Bandwidth::available).min().unwrap()
    }

    /// `tryConsumeAsMuchAsPossible`
    fn take_up_to(&mut self, most: u64) -> u64 {
        let taken = most.min(self.available());
        self.force(taken);
        taken
    }

    /// `reset`
    fn reset(&mut self) {
        for limit in &mut self.0 {
            limit.spent = 0;
        }
    }
}

impl Peer for Bucket {
    fn passes(&mut self, now: u64, cost: u64) -> bool {
        self.refill(now);
        let passes = cost <= self.available();
        if passes {
            self.force(cost);
        }
        passes
    }
}

/// `limit_req` of nginx for one key: what is over the rate, in thousandths of a request, by a clock of milliseconds. A refused request
/// changes nothing.
#[derive(Clone, Debug)]
struct Excess {
    /// Thousandths of a request in a second, and in a `burst`.
    rate: u64,
    burst: u64,
    /// The excess, and when it was counted: none before the first request.
    last: Option<(u64, u64)>,
}

impl Excess {
    /// `rate=5r/s` and `burst=20` are 5 and 20.
    fn per_second(rate: u64, burst: u64) -> Self {
        let (rate, burst) = (1_000 * rate, 1_000 * burst);
        let last = None;
        Self { rate, burst, last }
    }

    /// `rate=10r/m`: nginx drops what is no whole thousandth in a second.
    fn per_minute(rate: u64, burst: u64) -> Self {
        Self {
            rate: 1_000 * rate / 60,
            ..Self::per_second(0, burst)
        }
    }

    /// Returns what is over the rate if the request passes.
    fn count(&mut self, now: u64) -> Option<u64> {
        let now = now / 1_000;
        let excess = self.last.map_or(0, |(excess, last)| {
            (excess + 1_000).saturating_sub(self.rate * (now - last) / 1_000)
        });
        if excess > self.burst {
            return None;
        }
        self.last = Some((excess, now));
        Some(excess)
    }

    /// Without `nodelay`: how long nginx holds a request that passes.
    fn delay(&mut self, now: u64) -> Option<Duration> {
        let excess = self.count(now)?;
        Some(Duration::from_millis(1_000 * excess / self.rate))
    }
}

/// With `nodelay`.
impl Peer for Excess {
    fn passes(&mut self, now: u64, _: u64) -> bool {
        self.count(now).is_some()
    }
}

/// Requests of a client: the time since the one before, in parts of the period, and the cost.
fn requests(costs: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = Vec<(u64, u32)>> {
    let wait = prop_oneof![
        120 => Just(0),
        8 => 0..PARTS / 4,
        1 => Just(PARTS),
        1 => Just(PARTS - 1),
        1 => 0..3 * PARTS,
    ];
    prop::collection::vec((wait, costs), 1..400)
}

/// The parts of a period between which requests may come.
const PARTS: u64 = 60;

struct Ours {
    clock: ManualClock,
    limiter: LocalLimiter,
}

impl Ours {
    fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        Self::at(ManualClock::new(), algorithms)
    }

    fn at(clock: ManualClock, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        let policies = algorithms.into_iter().enumerate();
        let limiter = Limiter::builder()
            .policies(
                policies.map(|(index, algorithm)| Policy::new(format!("p{index}"), algorithm)),
            )
            .store(MemoryStore::new().clock(clock.clone()))
            .build_local()
            .unwrap();
        Self { clock, limiter }
    }

    fn passes(&self, cost: u32) -> bool {
        self.limiter.admit("ann", cost).now()
    }
}

/// Sends the requests to both, and returns how many passed and how many did not.
fn assert_alike(
    peer: &mut impl Peer,
    ours: &Ours,
    period: Duration,
    requests: &[(u64, u32)],
) -> Result<(), TestCaseError> {
    let (part, mut now) = (micros(period) / PARTS, 0);
    for (index, &(wait, cost)) in requests.iter().enumerate() {
        now += wait * part;
        ours.clock.advance(Duration::from_micros(wait * part));
        let (theirs, ours) = (peer.passes(now, cost.into()), ours.passes(cost));
        prop_assert_eq!(ours, theirs, "request {} at {} µs", index, now);
    }
    Ok(())
}

const MINUTE: Duration = Duration::from_secs(60);

/// A part of it is 67 ms, so requests come at whole milliseconds, as nginx sees them.
const FOUR_SECONDS: Duration = Duration::from_millis(4_020);

const QUARTER: Duration = Duration::from_secs(15 * 60);

const HOUR: Duration = Duration::from_secs(3_600);

proptest! {
    /// `Limiter::builder(url).limit(20).period(Duration::from_secs(60))`
    #[test]
    fn limits_of_actix_limitation_decide_alike(requests in requests(1..=1)) {
        let ours = Ours::new([AnchoredWindow::per_minute(20).into()]);
        assert_alike(&mut Counter::new(20, MINUTE), &ours, MINUTE, &requests)?;
    }

    /// `rateLimit({ windowMs: 15 * 60 * 1000, limit: 30 })`, the default limit of five a minute, and `limit: 0`.
    #[test]
    fn limits_of_express_rate_limit_decide_alike(
        requests in requests(1..=1),
        (limit, time) in prop_oneof![
            Just((30, QUARTER)),
            Just((5, MINUTE)),
            Just((0, MINUTE)),
        ],
    ) {
        let ours = Ours::new([AnchoredWindow::of(Quota::new(limit, time).unwrap()).into()]);
        assert_alike(&mut Counter::new(limit, time), &ours, time, &requests)?;
    }

    /// `limit.capacity(20).refillGreedy(10, Duration.ofMinutes(1))`, and `Bandwidth.simple(100, Duration.ofSeconds(1))`, which is
    /// greedy too.
    #[test]
    fn a_greedy_bandwidth_of_bucket4j_decides_alike(requests in requests(1..=4), is_simple: bool) {
        let (limit, capacity, tokens, period) = if is_simple {
            (TokenBucket::per_second(100), 100, 100, Duration::from_secs(1))
        } else {
            (TokenBucket::per_minute(10).burst(20), 20, 10, MINUTE)
        };
        let mut bucket = Bucket(vec![Bandwidth::new(capacity, tokens, period, Refill::Greedy)]);
        assert_alike(&mut bucket, &Ours::new([limit.into()]), period, &requests)?;
    }

    /// The methods of a bucket, while what ignores the limit leaves at most a capacity of debt, as the page says.
    #[test]
    fn the_methods_of_a_bucket_of_bucket4j_decide_alike(
        requests in requests(1..=9),
        methods in prop::collection::vec(0..8_u8, 400),
    ) {
        let ours = Ours::new([TokenBucket::per_minute(10).burst(20).into()]);
        let (limiter, mut now) = (&ours.limiter, 0);
        let mut bucket = Bucket(vec![Bandwidth::new(20, 10, MINUTE, Refill::Greedy)]);
        for (index, (&(wait, units), method)) in requests.iter().zip(methods).enumerate() {
            let wait = wait * micros(MINUTE) / PARTS;
            now += wait;
            ours.clock.advance(Duration::from_micros(wait));
            bucket.refill(now);
            let tokens = u64::from(units);
            match method {
                0 => {
                    bucket.add(tokens);
                    limiter.refund("ann", units).now();
                }
                1 if bucket.0[0].spent + tokens * bucket.0[0].period <= 2 * bucket.0[0].full => {
                    bucket.force(tokens);
                    limiter.settle("ann", units).now();
                }
                2 | 3 => {
                    let (taken, _) = limiter.acquire_up_to("ann", units).now();
                    prop_assert_eq!(u64::from(taken), bucket.take_up_to(tokens), "{}", index);
                }
                4 if index % 16 == 0 => {
                    bucket.reset();
                    limiter.reset("ann").now();
                }
                _ => prop_assert_eq!(ours.passes(units), bucket.passes(now, tokens), "{}", index),
            }
            let told = limiter.peek("ann", 0).now();
            let remaining = told.binding().unwrap().1.remaining();
            prop_assert_eq!(u64::from(remaining), bucket.available(), "{}", index);
        }
    }

    /// `.addLimit(l -> l.capacity(50).refillGreedy(50, ofMinutes(1))).addLimit(l -> l.capacity(5).refillGreedy(5, ofSeconds(10)))`
    #[test]
    fn two_bandwidths_of_bucket4j_decide_alike(requests in requests(1..=3)) {
        let seconds = Duration::from_secs(10);
        let short = TokenBucket::new(5, seconds).unwrap();
        let ours = Ours::new([TokenBucket::per_minute(50).into(), short.into()]);
        let mut bucket = Bucket(vec![
            Bandwidth::new(50, 50, MINUTE, Refill::Greedy),
            Bandwidth::new(5, 5, seconds, Refill::Greedy),
        ]);
        assert_alike(&mut bucket, &ours, MINUTE, &requests)?;
    }

    /// `limit.capacity(30).refillIntervally(10, Duration.ofMinutes(1))`, while the bucket is not full again: there, the intervals
    /// go on from the moment at which the bucket was made.
    #[test]
    fn an_interval_of_bucket4j_decides_alike_until_the_bucket_is_full(requests in requests(1..=4)) {
        let ours = Ours::new([TokenBucket::per_minute(10).burst(30).by_interval().into()]);
        let mut bucket = Bucket(vec![Bandwidth::new(30, 10, MINUTE, Refill::Intervally)]);
        let mut now = 0;
        for (index, &(wait, cost)) in requests.iter().enumerate() {
            // The first request makes the bucket.
            let wait = if index == 0 { 0 } else { wait * micros(MINUTE) / PARTS };
            now += wait;
            ours.clock.advance(Duration::from_micros(wait));
            bucket.0[0].refill(now);
            if index > 0 && bucket.0[0].is_full() {
                break;
            }
            prop_assert_eq!(ours.passes(cost), bucket.passes(now, cost.into()), "{}", index);
        }
    }

    /// `limit.capacity(25).refillIntervallyAligned(25, Duration.ofHours(1), nextHour)`, and with adaptive initial tokens, of which there
    /// are fewer before the first refill. The clock of the test starts at a full hour; the bucket is made `part` of it later.
    #[test]
    fn an_aligned_interval_of_bucket4j_decides_alike(
        requests in requests(1..=4),
        part in 0..PARTS,
        is_adaptive: bool,
    ) {
        let mut limit = Bandwidth::new(25, 25, HOUR, Refill::Intervally);
        let made = part * micros(HOUR) / PARTS;
        if is_adaptive {
            limit = limit.adaptive(made);
        }
        let ours = Ours::new([FixedWindow::per_hour(25).into()]);
        ours.clock.advance(Duration::from_micros(made));
        let (mut bucket, mut now) = (Bucket(vec![limit]), made);
        for (index, &(wait, cost)) in requests.iter().enumerate() {
            let wait = wait * micros(HOUR) / PARTS;
            now += wait;
            ours.clock.advance(Duration::from_micros(wait));
            let (ours, theirs) = (ours.passes(cost), bucket.passes(now, cost.into()));
            if !is_adaptive || now >= micros(HOUR) {
                prop_assert_eq!(ours, theirs, "request {} at {} µs", index, now);
            }
        }
    }
}

proptest! {
    /// `limit_req_zone … rate=5r/s` with `limit_req … burst=20 nodelay`, and without a `burst`; and what ingress-nginx makes of
    /// `limit-rps: "5"` and of `limit-rpm: "300"`.
    #[test]
    fn limits_of_nginx_decide_alike(
        requests in requests(1..=1),
        (limit, mut zone) in prop_oneof![
            Just((TokenBucket::per_second(5).burst(21), Excess::per_second(5, 20))),
            Just((TokenBucket::per_second(5).burst(1), Excess::per_second(5, 0))),
            Just((TokenBucket::per_second(5).burst(26), Excess::per_second(5, 25))),
            Just((TokenBucket::per_minute(300).burst(1_501), Excess::per_minute(300, 1_500))),
        ],
    ) {
        let ours = Ours::new([limit.into()]);
        assert_alike(&mut zone, &ours, FOUR_SECONDS, &requests)?;
    }

    /// `limit_req … burst=20`: requests that are over the rate wait.
    #[test]
    fn a_queue_of_nginx_holds_requests_as_long(requests in requests(1..=1)) {
        let ours = Ours::new([LeakyQueue::per_second(5).places(20).into()]);
        let mut zone = Excess::per_second(5, 20);
        let (part, mut now) = (micros(FOUR_SECONDS) / PARTS, 0);
        for (index, &(wait, _)) in requests.iter().enumerate() {
            now += wait * part;
            ours.clock.advance(Duration::from_micros(wait * part));
            let told = ours.limiter.check("ann", 1).now();
            let delay = told.is_allowed().then(|| told.delay());
            prop_assert_eq!(delay, zone.delay(now), "request {} at {} µs", index, now);
        }
    }
}

/// The page says so.
#[test]
fn a_rate_a_minute_of_nginx_loses_less_than_a_thousandth_of_a_request_a_second() {
    let mut zone = Excess::per_minute(10, 0);
    let ours = Ours::new([TokenBucket::per_minute(10).burst(1).into()]);
    let later = Duration::from_secs(6);
    assert!(zone.passes(0, 1) && ours.passes(1));
    ours.clock.advance(later);
    assert!(!zone.passes(micros(later), 1) && ours.passes(1));
    let exact = micros(later) + 25_000;
    assert!(zone.passes(exact, 1));
}

/// The draws above refuse requests as well as they let them pass.
#[test]
fn a_limit_that_is_translated_wrongly_is_found() {
    let requests: Vec<(u64, u32)> = (0..200).map(|index| (index % 7, 1)).collect();
    let right = Ours::new([AnchoredWindow::per_minute(20).into()]);
    assert_alike(&mut Counter::new(20, MINUTE), &right, MINUTE, &requests).unwrap();
    for wrong in [
        AnchoredWindow::per_minute(21).into(),
        FixedWindow::per_minute(20).into(),
        TokenBucket::per_minute(20).into(),
    ] {
        let ours = Ours::new([wrong]);
        // Fixed windows of the clock would begin with the first request if that came at a full minute.
        ours.clock.advance(Duration::from_secs(20));
        assert_alike(&mut Counter::new(20, MINUTE), &ours, MINUTE, &requests).unwrap_err();
    }
    let requests: Vec<(u64, u32)> = (0..200).map(|index| (index % 4, 1)).collect();
    for (burst, right) in [(21, true), (20, false), (22, false)] {
        let ours = Ours::new([TokenBucket::per_second(5).burst(burst).into()]);
        let mut zone = Excess::per_second(5, 20);
        let alike = assert_alike(&mut zone, &ours, FOUR_SECONDS, &requests);
        assert_eq!(alike.is_ok(), right, "{burst}");
    }
}

/// Days of a time zone.
#[cfg(feature = "calendar")]
mod days {
    use tower_ratelimit::Micros;
    use tower_ratelimit::calendar::Zone;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Twenty-five a day of this zone, from this second since the epoch on.
    fn days_from(second: u64, zone: &str) -> Ours {
        let limit = FixedWindow::per_calendar_day(25).zone(Zone::named(zone).unwrap());
        let clock = ManualClock::at(Micros::new(second * 1_000_000));
        Ours::at(clock, [limit.into()])
    }

    proptest! {
        /// `limit.capacity(25).refillIntervallyAligned(25, Duration.ofDays(1), midnight)` in a zone whose clock does not change.
        #[test]
        fn days_of_bucket4j_decide_alike(
            requests in requests(1..=4),
            (zone, midnight) in prop_oneof![
                Just(("Asia/Kolkata", 1_699_986_600)),
                Just(("America/Phoenix", 1_700_031_600)),
                Just(("UTC", 1_700_006_400)),
            ],
        ) {
            let ours = days_from(midnight, zone);
            let mut bucket = Bucket(vec![Bandwidth::new(25, 25, DAY, Refill::Intervally)]);
            assert_alike(&mut bucket, &ours, DAY, &requests)?;
        }
    }

    /// The page says so: a day there has 24 hours. That of 29 October 2023 had 25 in Berlin.
    #[test]
    fn a_day_of_bucket4j_begins_at_midnight_until_the_clock_changes() {
        let ours = days_from(1_698_530_400, "Europe/Berlin");
        let mut bucket = Bucket(vec![Bandwidth::new(25, 25, DAY, Refill::Intervally)]);
        let mut now = 0;
        let mut later = |hours: u64| {
            let time = Duration::from_secs(3_600 * hours);
            now += micros(time);
            ours.clock.advance(time);
            (bucket.passes(now, 25), ours.passes(25))
        };
        assert_eq!(later(12), (true, true));
        assert_eq!(later(12), (true, false));
        assert_eq!(later(1), (false, true));
    }
}

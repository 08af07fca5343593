//! States of a limit, and tables of the headers in them.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::Dialect::{XRateLimit, XRateLimitDashed};
use tower_ratelimit::response::Reset::{DeltaMillis, DeltaSeconds, EpochSeconds};
use tower_ratelimit::response::{Dialect, EXPOSED_HEADERS};
use tower_ratelimit::{
    AnchoredWindow, FixedWindow, ManualClock, MemoryStore, Micros, Policy, RateLimitLayer,
    TokenBucket,
};

use crate::exchange::{
    Behind, Hello, Received, ask, cost, cost_in, get, get_of_cost, get_with, global,
};
use crate::slow_store::{BrokenStore, When};

pub(crate) const X_DELTA: Dialect = XRateLimit(DeltaSeconds);
pub(crate) const X_MILLIS: Dialect = XRateLimit(DeltaMillis);
pub(crate) const X_EPOCH: Dialect = XRateLimit(EpochSeconds);
pub(crate) const TWITTER: Dialect = XRateLimitDashed(EpochSeconds);

pub(crate) type Lines = &'static [(&'static str, &'static str)];

/// The requests before the request of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    /// 100 in 60 s, one used, 49.2 s to the window's end at 1,800,000,050.
    OneUsed,
    /// The last unit was just taken.
    LastUsed,
    /// The request after that.
    Refused,
    /// 10 per 1 s, next token in 0.04 s.
    WaitBelowASecond,
    /// Two policies at 14:00, burst is the lower remaining.
    TwoAllow,
    /// Two policies at 14:00, only day violated.
    DayDenies,
    /// Cost 50 with a limit of 10.
    AboveTheLimit,
    /// The largest limit that a policy can have.
    LargestLimit,
    /// A limit of 0.
    Closed,
    /// One that can never pass beside one that can wait.
    ClosedBeside,
    /// Three policies, of which the first two have one limit, with 9, 9 and 19 left.
    SameLimit,
    /// A second later, with 9, 8 and 18 left.
    SameLimitLater,
    /// No policy is about the request.
    NoPolicy,
    /// The store has failed.
    StoreFailed,
    /// `OneUsed`, where the inner service answers with this status and these fields.
    Inner(u16, Lines),
    /// `OneUsed`, where the response of the inner service has never had a field.
    Bare,
}
pub(crate) use State::*;

pub(crate) struct Limited {
    clock: ManualClock,
    pub(crate) layer: RateLimitLayer,
}

impl Limited {
    /// Policies at so many milliseconds after 1,800,000,000 s, 08:00 in UTC.
    pub(crate) fn new(
        dialects: &[Dialect],
        millis: i64,
        policies: impl IntoIterator<Item = Policy<Http>>,
    ) -> Self {
        let start = 1_800_000_000_000_i64 + millis;
        let clock = ManualClock::at(Micros::new(u64::try_from(start).unwrap() * 1_000));
        let layer = RateLimitLayer::builder()
            .policies(policies)
            .store(MemoryStore::new().clock(clock.clone()))
            .dialects(dialects.iter().copied())
            .build()
            .unwrap();
        Self { clock, layer }
    }

    pub(crate) fn hello(&self) -> Hello {
        Hello::behind(&self.layer)
    }

    fn hundred(dialects: &[Dialect], spent: u32) -> Self {
        let window = AnchoredWindow::per_minute(100);
        let scene = Self::new(dialects, -10_000, [global("default", window).cost(cost)]);
        assert_eq!(ask(&scene.hello(), get_of_cost(spent)).status, 200);
        scene.clock.advance(Duration::from_millis(10_800));
        scene
    }
}

const TWO_O_CLOCK: i64 = 6 * 3_600_000;

impl State {
    pub(crate) fn answer(self, dialects: &[Dialect]) -> Received {
        match self {
            OneUsed => ask(&Limited::hundred(dialects, 1).hello(), get_of_cost(0)),
            LastUsed => ask(&Limited::hundred(dialects, 99).hello(), get()),
            Refused => ask(&Limited::hundred(dialects, 100).hello(), get()),
            WaitBelowASecond => {
                let bucket = global("burst", TokenBucket::per_second(10)).cost(cost);
                let scene = Limited::new(dialects, 0, [bucket]);
                ask(&scene.hello(), get_of_cost(10));
                scene.clock.advance(Duration::from_millis(60));
                ask(&scene.hello(), get())
            }
            TwoAllow => {
                let burst = global("burst", TokenBucket::per_second(10)).cost(cost_in("x-a"));
                let daily = global("daily", FixedWindow::per_day(5000)).cost(cost_in("x-b"));
                let scene = Limited::new(dialects, TWO_O_CLOCK, [burst, daily]);
                ask(&scene.hello(), get_with([("x-b", 4899)]));
                ask(&scene.hello(), get_with([("x-a", 3), ("x-b", 1)]))
            }
            DayDenies => {
                let hour = global("hour", FixedWindow::per_hour(1000)).cost(cost_in("x-a"));
                let day = global("day", FixedWindow::per_day(5000)).cost(cost_in("x-b"));
                let scene = Limited::new(dialects, TWO_O_CLOCK, [hour, day]);
                ask(&scene.hello(), get_with([("x-a", 1), ("x-b", 5000)]));
                ask(&scene.hello(), get_with([("x-b", 1)]))
            }
            AboveTheLimit => {
                let window = FixedWindow::new(10, Duration::from_secs(10)).unwrap();
                let scene = Limited::new(dialects, 0, [global("api", window).cost(cost)]);
                ask(&scene.hello(), get_of_cost(50))
            }
            LargestLimit => {
                let huge = global("huge", FixedWindow::per_minute(u32::MAX)).cost(cost);
                ask(&Limited::new(dialects, 0, [huge]).hello(), get_of_cost(0))
            }
            Closed => {
                let closed = global("closed", FixedWindow::per_day(0));
                ask(&Limited::new(dialects, 0, [closed]).hello(), get())
            }
            ClosedBeside => {
                let open = global("open", FixedWindow::per_minute(1)).cost(cost_in("x-a"));
                let closed = global("closed", FixedWindow::per_day(0))
                    .when(|head| head.header("x-b").is_some());
                let scene = Limited::new(dialects, 0, [open, closed]);
                ask(&scene.hello(), get_with([("x-a", 1)]));
                ask(&scene.hello(), get_with([("x-a", 1), ("x-b", 1)]))
            }
            SameLimit | SameLimitLater => {
                let second = global("second", FixedWindow::per_second(10));
                let minute = global("minute", FixedWindow::per_minute(10));
                let hour = global("hour", FixedWindow::per_hour(20));
                let scene = Limited::new(dialects, 0, [second, minute, hour]);
                let first = ask(&scene.hello(), get());
                scene.clock.advance(Duration::from_secs(1));
                match self {
                    SameLimit => first,
                    _ => ask(&scene.hello(), get()),
                }
            }
            NoPolicy => {
                let never = global("never", FixedWindow::per_day(1)).when(|_| false);
                ask(&Limited::new(dialects, 0, [never]).hello(), get())
            }
            StoreFailed => {
                let broken = BrokenStore {
                    when: When::Now,
                    kind: StoreErrorKind::Unavailable,
                };
                let layer = RateLimitLayer::builder()
                    .policy(global("default", FixedWindow::per_day(1)))
                    .store(broken)
                    .dialects(dialects.iter().copied())
                    .build();
                ask(&Hello::behind(&layer.unwrap()), get())
            }
            Inner(status, fields) => {
                let scene = Limited::hundred(dialects, 1);
                let service = service_fn(|_| {
                    let mut response = Response::builder().status(status);
                    for (name, value) in fields {
                        response = response.header(*name, *value);
                    }
                    let response = response.body(Full::<Bytes>::default()).unwrap();
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                ask(&scene.layer.layer(service), get_of_cost(0))
            }
            Bare => {
                let scene = Limited::hundred(dialects, 1);
                let service = service_fn(|_| {
                    let response = Response::new(Full::<Bytes>::default());
                    assert_eq!(response.headers().capacity(), 0);
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                ask(&scene.layer.layer(service), get_of_cost(0))
            }
        }
    }
}

/// Returns the status, and every line of a field that tells of limits; a name's lines in their order.
pub(crate) fn told(answer: &Received) -> Vec<String> {
    let tells = |headers: &HeaderMap| {
        let mut lines = Vec::new();
        for name in EXPOSED_HEADERS.iter().chain([&http::header::CACHE_CONTROL]) {
            for line in headers.get_all(name) {
                lines.push(format!("{name}: {}", line.to_str().unwrap()));
            }
        }
        lines
    };
    let mut told = vec![answer.status.as_u16().to_string()];
    told.extend(tells(&answer.headers));
    told
}

/// In the order of [`told`].
fn in_order(row: &str) -> Vec<String> {
    let mut lines: Vec<_> = row.lines().map(|line| line.trim().to_owned()).collect();
    let place = |line: &String| {
        let name = line.split(':').next();
        let place = EXPOSED_HEADERS
            .iter()
            .position(|other| Some(other.as_str()) == name);
        let others = if name == Some("cache-control") {
            usize::MAX
        } else {
            0
        };
        place.map_or(others, |place| place + 1)
    };
    lines.sort_by_key(place);
    lines
}

#[track_caller]
pub(crate) fn assert_rows(rows: &[(&str, State, &[Dialect], &str)]) {
    let failures: Vec<_> = rows
        .iter()
        .filter_map(|(name, state, dialects, row)| {
            let (told, expected) = (told(&state.answer(dialects)), in_order(row));
            (told != expected)
                .then(|| format!("{name}, {state:?} in {dialects:?}\n{told:#?}\nnot {expected:#?}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Rows of a name, a state, and what is told in these dialects: the status, and a line each of the
/// fields that tell of limits, in any order.
macro_rules! rows {
    {$($name:literal, $state:expr, [$($dialect:expr),*] => $row:expr;)+} => {
        crate::states::assert_rows(&[$(($name, $state, &[$($dialect),*], $row)),+])
    };
}
pub(crate) use rows;

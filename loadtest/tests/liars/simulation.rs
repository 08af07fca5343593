//! Ten seconds of traffic at 25 requests a second, in virtual time.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use ratelimit_loadtest::exchange::{Exchange, Verdict};
use ratelimit_loadtest::info::RateLimitInfo;
use ratelimit_loadtest::judge::{Judge, Judgement};
use tower_ratelimit_core::{Algorithm, Micros};

use crate::server::{Reply, Server};

/// Returns the number of seeds for each case: 40, or `LOADTEST_SEEDS`.
pub(crate) fn seeds() -> u64 {
    let seeds = std::env::var("LOADTEST_SEEDS").ok();
    seeds.map_or(40, |seeds| seeds.parse().unwrap())
}

/// The arrivals of requests, and their latency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) clients: u32,
    /// Random gaps, or one after the other.
    pub(crate) poisson: bool,
    /// The longest latency of a request, and of its answer.
    pub(crate) way: Duration,
}

pub(crate) const STEADY: Traffic = Traffic {
    clients: 1,
    poisson: false,
    way: Duration::from_millis(1),
};

pub(crate) const POISSON: Traffic = Traffic {
    poisson: true,
    ..STEADY
};

/// A network whose latency is as long as a window, so that requests overtake each other.
pub(crate) const SLOW: Traffic = Traffic {
    poisson: true,
    way: Duration::from_millis(600),
    ..STEADY
};

const RATE: f64 = 25.0;
const LENGTH: Duration = Duration::from_secs(10);

struct Travel {
    client: u32,
    sent: Duration,
    arrives: Duration,
    back: Duration,
}

impl Traffic {
    pub(crate) const fn of(self, clients: u32) -> Self {
        Self { clients, ..self }
    }

    fn arrivals(self, random: &mut fastrand::Rng) -> Vec<Travel> {
        let mut sent = Duration::from_millis(1);
        let mut all = Vec::new();
        while sent < LENGTH {
            let mut way = || self.way.mul_f64(random.f64());
            all.push(Travel {
                client: u32::try_from(all.len()).unwrap() % self.clients,
                sent,
                arrives: sent + way(),
                back: way(),
            });
            let gap = if self.poisson {
                -(1.0 - random.f64()).ln() / RATE
            } else {
                // A timer is not exact.
                1.0 / RATE + (random.f64() - 0.5) * 0.001
            };
            sent += Duration::from_secs_f64(gap);
        }
        all
    }
}

/// Returns the judgement on this server.
pub(crate) fn judged(
    mut server: Server,
    policy: Option<Algorithm>,
    traffic: Traffic,
    seed: u64,
) -> Judgement {
    let mut random = fastrand::Rng::with_seed(seed);
    // Any time of day, so that windows begin anywhere.
    let begin =
        Duration::from_secs(1_700_000_000) + Duration::from_micros(random.u64(..86_400_000_000));
    let sent = traffic.arrivals(&mut random);
    let mut decided: Vec<(usize, Reply)> = Vec::new();
    let mut order: Vec<usize> = (0..sent.len()).collect();
    order.sort_by_key(|number| sent[*number].arrives);
    for number in order {
        let request = &sent[number];
        let now = Micros::from(begin + request.arrives);
        decided.push((number, server.decide(now, request.client)));
    }

    let mut judge = Judge::new(policy, traffic.clients, 1);
    let mut answers: Vec<Exchange> = decided
        .into_iter()
        .map(|(number, reply)| answer(number, &sent[number], &reply))
        .collect();
    answers.sort_by_key(|answer| answer.received);
    let mut answers = answers.into_iter().peekable();
    for (number, request) in sent.iter().enumerate() {
        while let Some(answer) = answers.next_if(|answer| answer.received <= request.sent) {
            judge.answered(answer);
        }
        assert_eq!(judge.sent(request.client, 0, request.sent), number as u64);
    }
    for answer in answers {
        judge.answered(answer);
    }
    judge.conclude()
}

/// Judges this many requests at this gap, each answered before the next one is sent. `heard` gets each answer.
pub(crate) fn stream(
    mut server: Server,
    policy: Option<Algorithm>,
    clients: u32,
    gap: Duration,
    requests: u32,
    mut heard: impl FnMut(&Exchange),
) -> Judgement {
    let mut judge = Judge::new(policy, clients, 1);
    for number in 0..requests {
        let sent = gap * number;
        let request = Travel {
            client: number % clients,
            sent,
            arrives: sent + gap / 4,
            back: gap / 4,
        };
        judge.sent(request.client, 0, sent);
        let now = Micros::from(Duration::from_secs(1_700_000_000) + request.arrives);
        let reply = Reply {
            takes: Duration::ZERO,
            ..server.decide(now, request.client)
        };
        let number = usize::try_from(number).unwrap();
        let answer = answer(number, &request, &reply);
        heard(&answer);
        judge.answered(answer);
    }
    judge.conclude()
}

fn answer(number: usize, request: &Travel, reply: &Reply) -> Exchange {
    let mut headers = HeaderMap::new();
    for (name, value) in &reply.fields {
        let value = HeaderValue::from_str(value).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    Exchange {
        number: number as u64,
        client: request.client,
        node: 0,
        sent: request.sent,
        received: request.arrives + reply.takes + request.back,
        verdict: Verdict::of(reply.status),
        info: RateLimitInfo::by(&headers),
    }
}

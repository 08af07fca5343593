//! Judges a limiter by the answers to its clients.
//!
//! The judge is pure: it gets requests and answers with the times of sending and receipt, reads no clock and opens no
//! socket. The server decided on a request at an unknown moment between the two times. The judge reports a failure
//! only if it holds for every such moment, and for every order of requests that overlap.
//!
//! Its memory grows with the number of clients, and not with the number of requests.

mod bound;
mod client;
mod finding;
mod hypothesis;
mod order;
mod remaining;
mod slack;
mod strict;
mod terms;
mod times;
mod verdict;
mod waits;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tower_ratelimit_core::Algorithm;

pub use self::finding::{Check, Finding};
pub use self::verdict::{CheckResult, Conclusion, Judgement};
pub use self::waits::Promised;

use self::client::{Client, News};
use self::finding::Findings;
use self::order::Order;
use self::terms::Terms;
use self::words::Words;
use crate::exchange::{Exchange, Failure, Verdict};
use crate::info::RateLimitInfo;

/// Collects answers and judges them.
#[derive(Debug)]
pub struct Judge {
    terms: Option<Terms>,
    clients: u32,
    nodes: u16,
    order: Order,
    each: BTreeMap<u32, Client>,
    /// All clients as one, to find out whether they share a limit.
    all: Option<Client>,
    /// Whether the clients cannot have shared one limit.
    apart: bool,
    words: Words,
    findings: Findings,
    admissions: Histogram<u64>,
    refusals: Histogram<u64>,
    /// The number of kept and broken waits in each second of the run.
    promises: BTreeMap<u64, [u64; 2]>,
}

impl Judge {
    /// The number of times that are stored for all clients together.
    const ROOM: usize = 1 << 17;

    /// Creates a judge for this many clients and nodes, with the policy if it is known.
    pub fn new(policy: Option<Algorithm>, clients: u32, nodes: u16) -> Self {
        let terms = policy.map(Terms::of);
        let clients = clients.max(1);
        let room = Self::ROOM / usize::try_from(clients).unwrap_or(usize::MAX);
        let room = room.clamp(64, 4_096);
        Self {
            terms,
            clients,
            nodes,
            order: Order::default(),
            each: BTreeMap::new(),
            all: (clients > 1).then(|| Client::new(terms, room)),
            apart: clients == 1,
            words: Words::default(),
            findings: Findings::default(),
            admissions: microseconds(),
            refusals: microseconds(),
            promises: BTreeMap::new(),
        }
    }

    /// Records a request that is being sent. Returns its number.
    ///
    /// Call this in the order of sending: the times alone do not order two requests with the same time.
    pub fn sent(&mut self, client: u32, node: u16, sent: Duration) -> u64 {
        let number = self.order.next();
        let unknown = Exchange {
            number,
            client,
            node,
            sent,
            received: Duration::MAX,
            verdict: Verdict::Failed(Failure::Timeout),
            info: RateLimitInfo::default(),
        };
        for answer in self.order.sent(unknown) {
            self.judge(&answer);
        }
        number
    }

    /// Records an answer.
    pub fn answered(&mut self, answer: Exchange) {
        for answer in self.order.answered(answer) {
            self.judge(&answer);
        }
    }

    /// Records the headers of an answer that is not judged.
    pub fn overheard(&mut self, verdict: Verdict, info: RateLimitInfo) {
        if info == RateLimitInfo::default() && verdict != Verdict::Limited {
            return;
        }
        let answer = Exchange {
            number: 0,
            client: 0,
            node: 0,
            sent: Duration::ZERO,
            received: Duration::ZERO,
            verdict,
            info,
        };
        self.words.answered(&Arc::new(answer));
    }

    /// Adds the headers that another judge has recorded.
    pub fn add_words(&mut self, other: Self) {
        self.words.add(other.words);
    }

    /// Returns the judgement, when no more answers come.
    pub fn conclude(mut self) -> Judgement {
        for answer in self.order.rest() {
            self.judge(&answer);
        }
        let ids: Vec<u32> = self.each.keys().copied().collect();
        for id in ids {
            let news = self.each.get_mut(&id).map(Client::ended);
            self.note(news.unwrap_or_default(), Duration::MAX);
        }
        if let Some(all) = &mut self.all {
            let news = all.ended();
            self.apart |= shows_limits_apart(&news);
        }
        verdict::conclude(self)
    }

    fn judge(&mut self, answer: &Arc<Exchange>) {
        let histogram = match answer.verdict {
            Verdict::Allowed => Some(&mut self.admissions),
            Verdict::Limited => Some(&mut self.refusals),
            Verdict::Failed(_) => None,
        };
        if let Some(histogram) = histogram {
            let took = answer.received.saturating_sub(answer.sent).as_micros();
            histogram.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
        }
        if let Some(finding) = self.words.answered(answer) {
            self.findings.add(finding);
        }
        let room = Self::ROOM / usize::try_from(self.clients).unwrap_or(usize::MAX);
        let terms = self.terms;
        let client = self.each.entry(answer.client);
        let client = client.or_insert_with(|| Client::new(terms, room.clamp(64, 4_096)));
        let news = client.answered(answer);
        self.note(news, answer.sent);
        if let Some(all) = &mut self.all
            && !self.apart
        {
            let news = all.answered(answer);
            self.apart = shows_limits_apart(&news);
        }
    }

    fn note(&mut self, news: News, moment: Duration) {
        if let Some(promised) = news.promised
            && moment < Duration::MAX
        {
            let [kept, broken] = self.promises.entry(moment.as_secs()).or_default();
            match promised {
                Promised::Kept => *kept += 1,
                Promised::Broken => *broken += 1,
            }
        }
        for finding in news.findings {
            self.findings.add(finding);
        }
    }
}

/// Returns whether the clients together were admitted more than one limit allows.
fn shows_limits_apart(news: &News) -> bool {
    let shown = [Check::Bound, Check::RetryAfterLeast];
    let mut findings = news.findings.iter();
    findings.any(|finding| shown.contains(&finding.check))
}

/// From a microsecond to an hour, in three digits.
fn microseconds() -> Histogram<u64> {
    const HOUR: u64 = 3_600_000_000;
    Histogram::new_with_bounds(1, HOUR, 3).expect("the bounds are in order")
}

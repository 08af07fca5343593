//! The guard of a request until its response has ended: the charges and slots that the request holds, and their settlement.
//!
//! The end of a body can be a last frame, a drop, an error or a length, so one type observes all of them.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Buf;
use http::response::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use smallvec::SmallVec;
use tokio::time::Instant;

use tower_ratelimit_core::__internal::{RealCost, ReservationGuard, Timers};

use super::body::{Guard, GuardedBody};
use super::settlements::Settlements;
use crate::decision::Outcomes;
use crate::limiter::Limiter;
use crate::policy::{Ended, KnownCosts, ReportedCost, Settlement, Spend};
use crate::store::Charge;
use crate::usage::{UsageReader, requested_model};

/// The body of a response under a [`RateLimitLayer`](super::RateLimitLayer).
pub type ResponseBody<B> = GuardedBody<B, ResponseGuard>;

/// The guard of a request until its end: first in the future of the response, and then in the body. Dropping it settles the
/// request. It is empty for most requests.
#[derive(Default)]
pub struct ResponseGuard(Option<Box<Option<GuardedRequest>>>);

struct GuardedRequest {
    settlements: Arc<Settlements>,
    reservation: ReservationGuard,
    spend: Option<Spend>,
    is_head: bool,
    /// The length of the body of the request, as it declares it, if a guess needs that.
    prompt: u64,
    /// The model that the request asks for, if a price depends on it.
    requested: Option<Box<str>>,
    /// When the request began, if a closure needs that.
    began: Option<(Timers, Instant)>,
    /// `None` before the head of the response.
    answer: Option<SentResponse>,
    /// Another guard of the same request, which sees and ends with it.
    beside: ResponseGuard,
}

/// A response whose body is on its way.
struct SentResponse {
    /// Without headers if no closure needs them.
    ended: Ended,
    /// The costs that the head and the trailers have reported, by policy.
    reported: SmallVec<[(usize, ReportedCost); 1]>,
    /// What reads the body, by policy.
    readers: Vec<(usize, UsageReader)>,
    end: End,
}

/// When a body is complete.
#[derive(Clone, Copy)]
enum End {
    /// At once: no body is sent.
    Here,
    /// After so many bytes.
    After(u64),
    /// At the end of its frames.
    Open,
}

type Free = Vec<Box<Option<GuardedRequest>>>;

thread_local! {
    /// Empty boxes for reuse, so that requests allocate none.
    static FREE: RefCell<Free> = const { RefCell::new(Vec::new()) };
}

/// The number of boxes that a thread keeps at most.
const MOST_FREE: usize = 256;

impl ResponseGuard {
    /// Holds the charges of this request that are settled at its end.
    pub(super) fn of<B>(
        settlements: &Arc<Settlements>,
        limiter: &Limiter,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Self {
        let request = GuardedRequest::new(settlements, limiter, charges, outcomes, request);
        Self(request.map(|request| {
            let free = FREE.try_with(|free| free.borrow_mut().pop());
            let mut place = free.ok().flatten().unwrap_or_default();
            *place = Some(request);
            place
        }))
    }

    /// Continues with the body of this response.
    #[inline]
    pub(super) fn answered<R: Body>(mut self, response: Response<R>) -> Response<ResponseBody<R>> {
        let (head, body) = response.into_parts();
        if let Some(request) = self.request() {
            let length = body.size_hint().exact();
            let length = length.or_else(|| body.is_end_stream().then_some(0));
            request.answered(&head, length);
        }
        Response::from_parts(head, ResponseBody::new(body, self))
    }

    /// Holds this as well, until the same end.
    pub(super) fn join(&mut self, beside: Self) {
        match self.request() {
            Some(request) => request.beside = beside,
            None => *self = beside,
        }
    }

    #[inline]
    fn request(&mut self) -> Option<&mut GuardedRequest> {
        self.0.as_deref_mut()?.as_mut()
    }

    #[inline(never)]
    fn settle(mut request: Box<Option<GuardedRequest>>) {
        // Dropping it settles the request.
        *request = None;
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST_FREE {
                free.push(request);
            }
        });
    }
}

/// The request ends with the last frame.
impl Guard for ResponseGuard {
    fn frame<D: Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: impl FnOnce() -> bool,
    ) {
        let Some(request) = self.request() else {
            return;
        };
        let is_last = match frame {
            Some(Ok(frame)) => {
                request.frame(frame.data_ref(), frame.trailers_ref(), is_at_its_end())
            }
            Some(Err(_)) => true,
            None => {
                request.end();
                true
            }
        };
        if is_last {
            *self = Self::default();
        }
    }
}

impl Drop for ResponseGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            Self::settle(request);
        }
    }
}

impl fmt::Debug for ResponseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseGuard").finish_non_exhaustive()
    }
}

impl GuardedRequest {
    /// Returns `None` if the request holds nothing.
    fn new<B>(
        settlements: &Arc<Settlements>,
        limiter: &Limiter,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Option<Self> {
        let settles = |charge: &Charge| charge.is_reserved;
        let reservation = ReservationGuard::of(limiter, charges, settles, outcomes);
        if reservation.is_empty() {
            return None;
        }
        let prompt = settlements
            .reads_bodies()
            .then(|| declared_length(request.headers()));
        let asks = || requested_model(request.extensions(), request.uri().path());
        let requested = settlements.are_priced().then(asks).flatten();
        let is_head = request.method() == Method::HEAD;
        let extensions = request.extensions_mut();
        let spend = settlements.takes_a_spend().then(|| {
            let spend = Spend::within(extensions.remove::<Spend>());
            extensions.insert(spend.clone());
            spend
        });
        let began = settlements.asks_about_the_end().then(|| {
            let timers = limiter.policies().timers().clone();
            let now = timers.now();
            (timers, now)
        });
        Some(Self {
            settlements: Arc::clone(settlements),
            reservation,
            spend,
            is_head,
            prompt: prompt.flatten().unwrap_or(0),
            requested,
            began,
            answer: None,
            beside: ResponseGuard::default(),
        })
    }

    /// Observes the head of the response, whose body has this length as far as it is known.
    fn answered(&mut self, head: &Parts, length: Option<u64>) {
        if let Some(beside) = self.beside.request() {
            beside.answered(head, length);
        }
        let headers = &head.headers;
        let reported = self.reservation.policies().filter_map(|policy| {
            let settlement = self.settlements.settlement(policy)?;
            Some((policy, settlement.reported_cost(headers, &head.extensions)?))
        });
        let readers = self.reservation.policies().filter_map(|policy| {
            let settlement = self.settlements.settlement(policy)?;
            Some((policy, settlement.reader(headers)?))
        });
        self.answer = Some(SentResponse {
            reported: reported.collect(),
            readers: readers.collect(),
            end: End::of(self.is_head, head.status, headers, length),
            ended: Ended {
                status: head.status,
                headers: if self.settlements.asks_about_the_end() {
                    headers.clone()
                } else {
                    HeaderMap::new()
                },
                grpc_status: grpc_status(headers),
                bytes: 0,
                is_complete: false,
                elapsed: Duration::default(),
            },
        });
    }

    /// Observes a frame of the body. Returns whether it is the last.
    fn frame(
        &mut self,
        data: Option<&impl Buf>,
        trailers: Option<&HeaderMap>,
        is_at_its_end: bool,
    ) -> bool {
        if let Some(beside) = self.beside.request() {
            beside.frame(data, trailers, is_at_its_end);
        }
        let Some(answer) = &mut self.answer else {
            return true;
        };
        if let Some(data) = data {
            for (_, reader) in &mut answer.readers {
                reader.read(data);
            }
        }
        let SentResponse {
            ended, reported, ..
        } = answer;
        let bytes = data.map_or(0, |data| data.remaining() as u64);
        ended.bytes = ended.bytes.saturating_add(bytes);
        if let Some(trailers) = trailers {
            ended.grpc_status = grpc_status(trailers).or(ended.grpc_status);
            for policy in self.reservation.policies() {
                let settlement = self.settlements.settlement(policy);
                let later =
                    settlement.and_then(|it| it.reported_cost(trailers, &Extensions::new()));
                let Some(later) = later else { continue };
                match reported.iter_mut().find(|(of, _)| *of == policy) {
                    Some((_, cost)) => *cost = cost.or_later(later),
                    None => reported.push((policy, later)),
                }
            }
        }
        if is_at_its_end || trailers.is_some() {
            self.end();
        }
        trailers.is_some()
    }

    /// Observes the end of the body.
    fn end(&mut self) {
        if let Some(beside) = self.beside.request() {
            beside.end();
        }
        if let Some(answer) = &mut self.answer {
            answer.end = match answer.end {
                // The response has declared a longer body.
                End::After(bytes) if answer.ended.bytes < bytes => answer.end,
                _ => End::Here,
            };
        }
    }

    /// Returns the sum that the handler has added to its handle.
    fn spent(&self) -> Option<u32> {
        let total = self.spend.as_ref()?.total()?;
        Some(u32::try_from(total).unwrap_or(u32::MAX))
    }

    /// Settles the request at the cost in the response.
    fn settle_answered(&mut self, answer: SentResponse) {
        let spent = self.spent();
        let began = self.began.as_ref();
        let is_complete = answer.is_complete();
        let SentResponse {
            ended,
            reported,
            readers,
            ..
        } = answer;
        let ended = Ended {
            is_complete,
            elapsed: began
                .map(|(timers, began)| timers.now().saturating_duration_since(*began))
                .unwrap_or_default(),
            ..ended
        };
        let settlements = &self.settlements;
        let (prompt, requested) = (self.prompt, self.requested.as_deref());
        let is_panicking = thread::panicking();
        self.reservation.settle(|policy| {
            let Some(settlement) = settlements.settlement(policy) else {
                return RealCost::Estimate;
            };
            if is_panicking && settlement.asks_about_the_end() {
                // A closure that panics during a panic would end the process.
                return RealCost::Unsettled;
            }
            let reported = reported.iter().find(|(of, _)| *of == policy);
            let known = KnownCosts {
                reported: reported.map(|(_, reported)| *reported),
                spent,
                used: used(&readers, policy, requested),
            };
            if let Some(units) = settlement.cost(known, &ended.ending()) {
                return RealCost::Units(units);
            }
            if let Some(usage) = settlement.usage() {
                settlements.warn_of_a_guess(policy);
                return RealCost::Guess(usage.guess(requested, prompt, ended.bytes));
            }
            if ended.is_complete && ended.status.is_success() && settlement.expects_a_cost() {
                settlements.warn_of_no_report(policy);
            }
            RealCost::Estimate
        });
    }

    /// Settles a request without an answer. The sum of its handler's `Spend` counts.
    fn settle_unanswered(&mut self) {
        let spent = self.spent();
        let settlements = &self.settlements;
        self.reservation.settle(|policy| {
            let settlement = settlements.settlement(policy);
            match spent.filter(|_| settlement.is_some_and(Settlement::takes_a_spend)) {
                Some(spent) => RealCost::Units(spent),
                None => RealCost::Unsettled,
            }
        });
    }
}

impl Drop for GuardedRequest {
    fn drop(&mut self) {
        match self.answer.take() {
            Some(answer) => self.settle_answered(answer),
            None => self.settle_unanswered(),
        }
    }
}

impl SentResponse {
    fn is_complete(&self) -> bool {
        match self.end {
            End::Here => true,
            End::After(bytes) => self.ended.bytes >= bytes,
            End::Open => false,
        }
    }
}

impl End {
    fn of(is_head: bool, status: StatusCode, headers: &HeaderMap, length: Option<u64>) -> Self {
        let has_no_body = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if is_head || has_no_body {
            return Self::Here;
        }
        declared_length(headers)
            .or(length)
            .map_or(Self::Open, Self::After)
    }
}

/// Returns the length of a body as its headers declare it.
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Returns the status of a gRPC call as a number.
fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// Returns the units that the body has reported for the policy.
fn used(readers: &[(usize, UsageReader)], policy: usize, requested: Option<&str>) -> Option<u32> {
    let (_, reader) = readers.iter().find(|(of, _)| *of == policy)?;
    reader.units(requested)
}

//! What a request holds until its response has ended, and how it is settled.
//!
//! The end of a body can be a last frame, a drop, an error or a length, so one type observes all of them.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::thread;

use http::response::Parts;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::ResponseBody;
use super::settles::Settles;
use super::source::ToTheEnd;
use crate::clock::Timers;
use crate::decision::Outcomes;
use crate::limiter::{Held, Limiter, RealCost};
use crate::policy::{Ended, ReportedCost, Spend};
use crate::store::{Charge, Ledger};

/// What a request holds until its end: first in the future of the response, and then in the body. It is
/// dropped exactly once, which settles the request. For most requests it is empty.
#[derive(Default)]
pub(crate) struct Kept(Option<Box<Option<Keeping>>>);

struct Keeping {
    settles: Arc<Settles>,
    held: Held<dyn Ledger>,
    spend: Option<Spend>,
    is_head: bool,
    /// When the request began, if a closure needs that.
    began: Option<(Timers, Instant)>,
    /// `None` before the head of the response.
    answer: Option<SentResponse>,
    /// What the same request holds under the file in shadow, until the same end.
    #[cfg(feature = "config")]
    beside: Kept,
}

/// A response whose body is on its way.
struct SentResponse {
    status: StatusCode,
    /// Empty if no closure needs them.
    headers: HeaderMap,
    grpc_status: Option<u32>,
    /// The costs that the head and the trailers have reported, by policy.
    told: SmallVec<[(usize, ReportedCost); 1]>,
    bytes: u64,
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

type Free = Vec<Box<Option<Keeping>>>;

thread_local! {
    /// Empty boxes for reuse, so that requests allocate none.
    static FREE: RefCell<Free> = const { RefCell::new(Vec::new()) };
}

/// The number of boxes that a thread keeps at most.
const MOST_FREE: usize = 256;

impl Kept {
    /// Holds the charges of this request until its end, if a policy settles them.
    pub(super) fn of<B>(
        settles: &Arc<Settles>,
        limiter: &Limiter<dyn Ledger>,
        charges: &[Charge],
        outcomes: &Outcomes,
        request: &mut Request<B>,
    ) -> Self {
        let charges = charges.iter();
        let charges = charges.filter(|charge| settles.of(charge.policy).is_some());
        let held = Held::of(limiter, charges, outcomes);
        if held.is_empty() {
            return Self::default();
        }
        let spend = settles.takes_a_spend().then(|| {
            let extensions = request.extensions_mut();
            // A layer around this one reads the same sum.
            extensions.get_or_insert_default::<Spend>().clone()
        });
        let began = settles.asks_about_the_end().then(|| {
            let timers = limiter.timers().clone();
            let now = timers.now();
            (timers, now)
        });
        let keeping = Keeping {
            settles: Arc::clone(settles),
            held,
            spend,
            is_head: request.method() == Method::HEAD,
            began,
            answer: None,
            #[cfg(feature = "config")]
            beside: Self::default(),
        };
        let free = FREE.try_with(|free| free.borrow_mut().pop());
        let mut kept = free.ok().flatten().unwrap_or_default();
        *kept = Some(keeping);
        Self(Some(kept))
    }

    /// Moves the contents out, so that the request ends when the result is dropped.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Holds this as well, until the same end.
    #[cfg(feature = "config")]
    pub(super) fn join(&mut self, beside: Self) {
        match self.keeping() {
            Some(keeping) => keeping.beside = beside,
            None => *self = beside,
        }
    }

    /// Returns whether there is nothing to settle.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    fn keeping(&mut self) -> Option<&mut Keeping> {
        self.0.as_deref_mut()?.as_mut()
    }

    /// Continues with the body of this response.
    pub(super) fn answered<R: Body>(mut self, response: Response<R>) -> Response<ResponseBody<R>> {
        let (head, body) = response.into_parts();
        self.note_head(&head, &body);
        Response::from_parts(head, ResponseBody::kept(body, self))
    }

    fn note_head(&mut self, head: &Parts, body: &impl Body) {
        if let Some(keeping) = self.keeping() {
            keeping.answered(head, body);
            #[cfg(feature = "config")]
            keeping.beside.note_head(head, body);
        }
    }
}

/// The request ends with the last frame.
impl ToTheEnd for Kept {
    fn frame<D: bytes::Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: impl FnOnce() -> bool,
    ) {
        if self.is_nothing() {
            return;
        }
        if self.notes(frame, is_at_its_end()) {
            drop(self.take());
        }
    }
}

impl Kept {
    /// Observes a frame of the body, or its end. Returns whether it is the last.
    fn notes<D: bytes::Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_at_its_end: bool,
    ) -> bool {
        let Some(keeping) = self.keeping() else {
            return true;
        };
        #[cfg(feature = "config")]
        keeping.beside.frame(frame, || is_at_its_end);
        match frame {
            Some(Ok(frame)) => keeping.frame(frame, is_at_its_end),
            Some(Err(_)) => true,
            None => {
                keeping.end();
                true
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(mut kept) = self.0.take() {
            // Dropping it settles the request.
            *kept = None;
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < MOST_FREE {
                    free.push(kept);
                }
            });
        }
    }
}

impl Keeping {
    fn answered(&mut self, head: &Parts, body: &impl Body) {
        let headers = &head.headers;
        let told = self.held.policies().filter_map(|policy| {
            let settling = self.settles.of(policy)?.settling.as_ref()?;
            Some((policy, settling.told(headers, &head.extensions)?))
        });
        self.answer = Some(SentResponse {
            status: head.status,
            told: told.collect(),
            headers: if self.settles.asks_about_the_end() {
                headers.clone()
            } else {
                HeaderMap::new()
            },
            grpc_status: grpc_status(headers),
            bytes: 0,
            end: End::of(self.is_head, head.status, headers, body),
        });
    }

    /// Observes a frame of the body. Returns whether it is the last.
    fn frame<D: bytes::Buf>(&mut self, frame: &Frame<D>, is_at_its_end: bool) -> bool {
        let Some(answer) = &mut self.answer else {
            return true;
        };
        if let Some(data) = frame.data_ref() {
            answer.bytes = answer.bytes.saturating_add(data.remaining() as u64);
        }
        let trailers = frame.trailers_ref();
        if let Some(trailers) = trailers {
            answer.grpc_status = grpc_status(trailers).or(answer.grpc_status);
            for policy in self.held.policies() {
                let settled = self.settles.of(policy);
                let settling = settled.and_then(|settled| settled.settling.as_ref());
                let told = settling.and_then(|it| it.told(trailers, &Extensions::new()));
                if let Some(told) = told {
                    answer.told.retain(|(of, _)| *of != policy);
                    answer.told.push((policy, told));
                }
            }
        }
        if is_at_its_end || trailers.is_some() {
            answer.has_ended();
        }
        trailers.is_some()
    }

    /// Observes the end of the body.
    fn end(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.has_ended();
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
        let ended = Ended {
            is_complete: answer.is_complete(),
            status: answer.status,
            headers: answer.headers,
            grpc_status: answer.grpc_status,
            bytes: answer.bytes,
            elapsed: began
                .map(|(timers, began)| timers.now().saturating_duration_since(*began))
                .unwrap_or_default(),
        };
        let settles = &self.settles;
        let is_panicking = thread::panicking();
        self.held.settle(|policy| {
            let Some(settled) = settles.of(policy) else {
                return RealCost::Estimate;
            };
            let Some(settling) = &settled.settling else {
                return RealCost::Estimate;
            };
            if is_panicking && settling.asks_about_the_end() {
                // A closure that panics during a panic would end the process.
                return RealCost::Unsettled;
            }
            let told = answer.told.iter().find(|(of, _)| *of == policy);
            let told = told.map(|(_, told)| *told);
            if let Some(units) = settling.cost(told, spent, &ended.ending()) {
                return RealCost::Units(units);
            }
            if ended.is_complete && ended.status.is_success() && settling.expects_a_cost() {
                settled.is_untold();
            }
            RealCost::Estimate
        });
    }

    /// Settles a request without an answer. What its handler has spent counts.
    fn settle_unanswered(&mut self) {
        let spent = self.spent();
        let settles = &self.settles;
        self.held.settle(|policy| {
            let settling = settles.of(policy).and_then(|it| it.settling.as_ref());
            match spent.filter(|_| settling.is_some_and(|it| it.takes_a_spend())) {
                Some(spent) => RealCost::Units(spent),
                None => RealCost::Unsettled,
            }
        });
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        match self.answer.take() {
            Some(answer) => self.settle_answered(answer),
            None => self.settle_unanswered(),
        }
    }
}

impl SentResponse {
    fn has_ended(&mut self) {
        self.end = match self.end {
            // The response has declared a longer body.
            End::After(bytes) if self.bytes < bytes => self.end,
            _ => End::Here,
        };
    }

    fn is_complete(&self) -> bool {
        match self.end {
            End::Here => true,
            End::After(bytes) => self.bytes >= bytes,
            End::Open => false,
        }
    }
}

impl End {
    fn of(is_head: bool, status: StatusCode, headers: &HeaderMap, body: &impl Body) -> Self {
        let has_no_body = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if is_head || has_no_body {
            return Self::Here;
        }
        let declared = headers.get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        match declared.or_else(|| body.size_hint().exact()) {
            Some(bytes) => Self::After(bytes),
            None if body.is_end_stream() => Self::Here,
            None => Self::Open,
        }
    }
}

/// Returns the status of a gRPC call as a number.
fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

//! The charges and slots that a request holds until its response has ended, and their settlement.
//!
//! The end of a body can be a last frame, a drop, an error or a length, so one type observes all of them.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;

use http::response::Parts;
use http::{Extensions, HeaderMap, StatusCode, header};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::kept::{Keep, Kept, Part, SentBody, ToSettle};
use super::settles::Settles;
use crate::clock::Timers;
use crate::decision::Outcomes;
use crate::limiter::{Held, HoldAnswer, Limiter, RealCost};
use crate::policy::{Ended, ReportedCost, Spend};
use crate::store::Charge;

struct Keeping {
    settles: Arc<Settles>,
    held: Held,
    spend: Option<Spend>,
    is_head: bool,
    /// When the request began, if a closure needs that.
    began: Option<(Timers, Instant)>,
    /// `None` before the head of the response.
    answer: Option<SentResponse>,
    /// The charges of the same request under the file in shadow, until the same end.
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
    reported: SmallVec<[(usize, ReportedCost); 1]>,
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

impl Keep for Arc<Settles> {
    fn keep(
        &self,
        limiter: &Limiter,
        charges: &[Charge],
        outcomes: &Outcomes,
        is_head: bool,
        extensions: &mut Extensions,
    ) -> Kept {
        let charges = charges.iter();
        let charges = charges.filter(|charge| self.of(charge.policy).is_some());
        let held = Held::of(limiter, charges, outcomes);
        if held.is_empty() {
            return Kept::default();
        }
        let spend = self.takes_a_spend().then(|| {
            let spend = Spend::within(extensions.remove::<Spend>());
            extensions.insert(spend.clone());
            spend
        });
        let began = self.asks_about_the_end().then(|| {
            let timers = limiter.timers().clone();
            let now = timers.now();
            (timers, now)
        });
        let keeping = Keeping {
            settles: Self::clone(self),
            held,
            spend,
            is_head,
            began,
            answer: None,
            #[cfg(feature = "config")]
            beside: Kept::default(),
        };
        let free = FREE.try_with(|free| free.borrow_mut().pop());
        let mut kept = free.ok().flatten().unwrap_or_default();
        *kept = Some(keeping);
        Kept::to_settle(kept)
    }

    fn settles(&self, policy: usize) -> bool {
        self.of(policy).is_some()
    }

    fn hold_answer(&self) -> HoldAnswer {
        HoldAnswer::new()
    }
}

impl ToSettle for Option<Keeping> {
    fn answered(&mut self, head: &Parts, body: &dyn SentBody) {
        if let Some(keeping) = self {
            keeping.answered(head, body);
            #[cfg(feature = "config")]
            keeping.beside.note_head(head, body);
        }
    }

    fn notes(&mut self, part: Part<'_>, is_at_its_end: bool) -> bool {
        let Some(keeping) = self else {
            return true;
        };
        #[cfg(feature = "config")]
        keeping.beside.note(part, is_at_its_end);
        match part {
            Part::Frame { bytes, trailers } => keeping.frame(bytes, trailers, is_at_its_end),
            Part::Failure => true,
            Part::End => {
                keeping.end();
                true
            }
        }
    }

    #[cfg(feature = "config")]
    fn join(&mut self, beside: Kept) {
        if let Some(keeping) = self {
            keeping.beside = beside;
        }
    }

    fn settle(mut self: Box<Self>) {
        // Dropping it settles the request.
        *self = None;
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MOST_FREE {
                free.push(self);
            }
        });
    }
}

impl Keeping {
    fn answered(&mut self, head: &Parts, body: &dyn SentBody) {
        let headers = &head.headers;
        let reported = self.held.policies().filter_map(|policy| {
            let settling = self.settles.of(policy)?.settling.as_ref()?;
            Some((policy, settling.reported_cost(headers, &head.extensions)?))
        });
        self.answer = Some(SentResponse {
            status: head.status,
            reported: reported.collect(),
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
    fn frame(&mut self, bytes: u64, trailers: Option<&HeaderMap>, is_at_its_end: bool) -> bool {
        let Some(answer) = &mut self.answer else {
            return true;
        };
        answer.bytes = answer.bytes.saturating_add(bytes);
        if let Some(trailers) = trailers {
            answer.grpc_status = grpc_status(trailers).or(answer.grpc_status);
            for policy in self.held.policies() {
                let settled = self.settles.of(policy);
                let settling = settled.and_then(|settled| settled.settling.as_ref());
                let reported =
                    settling.and_then(|it| it.reported_cost(trailers, &Extensions::new()));
                let Some(reported) = reported else { continue };
                match answer.reported.iter_mut().find(|(of, _)| *of == policy) {
                    Some((_, told)) => *told = told.or_later(reported),
                    None => answer.reported.push((policy, reported)),
                }
            }
        }
        if is_at_its_end || trailers.is_some() {
            answer.mark_ended();
        }
        trailers.is_some()
    }

    /// Observes the end of the body.
    fn end(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.mark_ended();
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
            let reported = answer.reported.iter().find(|(of, _)| *of == policy);
            let reported = reported.map(|(_, reported)| *reported);
            if let Some(units) = settling.cost(reported, spent, &ended.ending()) {
                return RealCost::Units(units);
            }
            if ended.is_complete && ended.status.is_success() && settling.expects_a_cost() {
                settled.is_unreported();
            }
            RealCost::Estimate
        });
    }

    /// Settles a request without an answer. The sum of its handler's `Spend` counts.
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

impl Drop for Keeping {
    fn drop(&mut self) {
        match self.answer.take() {
            Some(answer) => self.settle_answered(answer),
            None => self.settle_unanswered(),
        }
    }
}

impl SentResponse {
    fn mark_ended(&mut self) {
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
    fn of(is_head: bool, status: StatusCode, headers: &HeaderMap, body: &dyn SentBody) -> Self {
        let has_no_body = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if is_head || has_no_body {
            return Self::Here;
        }
        let declared = headers.get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        match declared.or_else(|| body.exact_length()) {
            Some(bytes) => Self::After(bytes),
            None if body.is_over() => Self::Here,
            None => Self::Open,
        }
    }
}

/// Returns the status of a gRPC call as a number.
fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

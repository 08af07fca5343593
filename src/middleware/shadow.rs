//! An enforcer that decides beside the one in force, on state of its own, and the differences.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use http::{Extensions, Method, Request, Uri};

use tower_ratelimit_core::__internal::Verdict;

use super::enforcer::{Enforcer, EnforcerVerdict, ObserveVerdict, Trial, observed};
use super::guard::ResponseGuard;
use crate::decision::Decision;
use crate::error::StoreErrorKind;
use crate::observe::ShadowStats;
use crate::response::Refusal;

/// The enforcer in shadow. It exists before its first enforcer, so that a file may come later.
#[derive(Debug, Default)]
pub struct Shadow {
    enforcer: ArcSwapOption<Enforcer>,
    compared: AtomicU64,
    would_refuse: AtomicU64,
    would_allow: AtomicU64,
    last: Mutex<VecDeque<Difference>>,
    error: Mutex<Option<String>>,
}

/// The number of differences that are kept.
const DIFFERENCES: usize = 100;

/// The number of differences in a snapshot.
const SHOWN: usize = 10;

/// The number of characters of a path that are kept.
const LONGEST_PATH: usize = 256;

/// A request that the file in shadow decides otherwise than the file in force; see
/// [`Watched::shadow`](https://docs.rs/tower-ratelimit-config/latest/tower_ratelimit_config/struct.Watched.html#method.shadow).
///
/// It is in the extensions of a request that the file in shadow would refuse, and of the response to a
/// request that it would have allowed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Difference {
    /// When the request was decided, by the clock of this node.
    pub at: SystemTime,
    /// The method of the request.
    pub method: Method,
    /// The path of the request without its query, cut to 256 characters.
    pub path: String,
    /// Whether the file in shadow would refuse a request that was allowed. If not, it would allow a request that was refused.
    pub would_refuse: bool,
    /// The decision that refuses: that of the file in shadow if it [would refuse](Self::would_refuse), and otherwise that of the
    /// file in force. `None` if a list, a missing key or a plan that could not be looked up refuses, and not a policy.
    pub decision: Option<Decision>,
}

/// Writes one line, such as `GET /search: refused in shadow by minute`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let says = if self.would_refuse {
            "refused in shadow"
        } else {
            "allowed in shadow, and refused"
        };
        write!(f, "{} {}: {says}", self.method, self.path)?;
        match self.decision.as_ref().and_then(Decision::binding) {
            Some((policy, _)) => write!(f, " by {policy}"),
            None => f.write_str(" without a policy"),
        }
    }
}

/// The decision of the shadow on a request.
struct Tried {
    shadow: Arc<Shadow>,
    /// The decision that refuses, if the request is refused.
    verdict: Result<(), Option<Decision>>,
    guard: ResponseGuard,
}

impl Shadow {
    /// Lets this enforcer decide from now on. Returns the previous one.
    pub(super) fn put(&self, enforcer: &Arc<Enforcer>) -> Option<Arc<Enforcer>> {
        enforcer.suppress_rebuild_warning();
        self.enforcer.swap(Some(Arc::clone(enforcer)))
    }

    /// Returns the last differences, the oldest first.
    pub fn differences(&self) -> Vec<Difference> {
        self.last().iter().cloned().collect()
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<Difference>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets why the newest file does not decide, for snapshots.
    pub fn set_error(&self, error: Option<String>) {
        *self.error() = error;
    }

    /// Returns its counts.
    pub fn stats(&self) -> ShadowStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let differences = [&self.would_refuse, &self.would_allow].map(count);
        let last = self
            .last()
            .iter()
            .rev()
            .take(SHOWN)
            .map(ToString::to_string)
            .collect();
        let mut stats = ShadowStats::new(count(&self.compared), differences, last);
        stats.error.clone_from(&self.error());
        stats
    }

    fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `enforcer` rule on a request, after the enforcer in shadow has decided it, and compares the two.
    pub(super) fn ask_beside<B>(
        self: &Arc<Self>,
        enforcer: &Arc<Enforcer>,
        request: &mut Request<B>,
    ) -> EnforcerVerdict {
        let tried = self.try_out(request);
        let verdict = enforcer.ask(request);
        match tried {
            None => verdict,
            Some(tried) => observed(tried, verdict, request),
        }
    }

    /// Decides a request. Returns `None` if that takes time: a wait cannot be compared with an answer.
    fn try_out<B>(self: &Arc<Self>, request: &mut Request<B>) -> Option<Box<Tried>> {
        let enforcer = self.enforcer.load_full()?;
        let (verdict, guard) = match enforcer.try_out(request) {
            Trial::Exempt => (Ok(()), ResponseGuard::default()),
            Trial::Allowed(_, guard) => (Ok(()), guard),
            Trial::Denied(decision) => (Err(Some(decision)), ResponseGuard::default()),
            Trial::Forbidden | Trial::MissingKey | Trial::Unresolved => {
                (Err(None), ResponseGuard::default())
            }
            Trial::Waits(_) | Trial::Unknown => return None,
        };
        Some(Box::new(Tried {
            shadow: Arc::clone(self),
            verdict,
            guard,
        }))
    }

    /// Counts a difference. Under contention it is only counted, so that no request waits for another.
    fn note(&self, difference: &Difference) {
        let count = if difference.would_refuse {
            &self.would_refuse
        } else {
            &self.would_allow
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut last = match self.last.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if last.len() == DIFFERENCES {
            last.pop_front();
        }
        last.push_back(difference.clone());
    }
}

impl ObserveVerdict for Tried {
    /// Compares the decision with the verdict.
    fn observe(
        self: Box<Self>,
        verdict: &mut EnforcerVerdict,
        method: &Method,
        uri: &Uri,
    ) -> Extensions {
        let mut extensions = Extensions::new();
        let live = match verdict {
            Verdict::Pending(waiting) => {
                waiting.observe_by(self);
                return extensions;
            }
            Verdict::Pass(admitted) | Verdict::Hold(_, admitted) => {
                // It ends with the admitted request.
                admitted.guard.join(self.guard);
                Ok(())
            }
            Verdict::Refuse(response) => match response.extensions().get() {
                Some(Refusal::Denied(decision)) => Err(Some(decision)),
                Some(
                    Refusal::Forbidden
                    | Refusal::MissingKey(_)
                    | Refusal::StoreFailed(StoreErrorKind::Unresolved),
                ) => Err(None),
                // The store did not decide the request, so there is no difference.
                _ => return extensions,
            },
        };
        self.shadow.compared.fetch_add(1, Ordering::Relaxed);
        let (would_refuse, decision) = match (live, self.verdict) {
            (Ok(()), Err(decision)) => (true, decision),
            (Err(decision), Ok(())) => (false, decision.cloned()),
            (Ok(()), Ok(())) | (Err(_), Err(_)) => return extensions,
        };
        let difference = Difference {
            at: SystemTime::now(),
            method: method.clone(),
            path: uri.path().chars().take(LONGEST_PATH).collect(),
            would_refuse,
            decision,
        };
        self.shadow.note(&difference);
        let of_which = match verdict {
            Verdict::Refuse(response) => response.extensions_mut(),
            _ => &mut extensions,
        };
        of_which.insert(difference);
        extensions
    }
}

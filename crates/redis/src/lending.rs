//! Asks the server for units, and gives them back.

use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::calls::Calls;
use super::leases::Leases;
use super::pairs::{Again, LeaseRequest, LeaseRequests, Local};
use super::reply::ScriptReply;
use tower_ratelimit_core::__internal::late;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::error::StoreError;
use tower_ratelimit_core::store::Charge;

/// How often a node looks for unused units.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// Questions for units on their way. If no answer comes, the next request asks again.
struct LeaseCall {
    calls: Arc<Calls>,
    questions: LeaseRequests,
}

impl LeaseCall {
    fn new(calls: &Arc<Calls>, charges: &[Charge]) -> Self {
        let begin = |leases: &Leases| {
            leases.on_their_way.begin();
            leases.ask(charges)
        };
        let questions = calls.leases.as_ref().map(begin);
        Self {
            calls: Arc::clone(calls),
            questions: questions.unwrap_or_default(),
        }
    }

    /// Waits for the answer, with the whole deadline of a call. If there is none, the requests that wait for it get the
    /// error.
    ///
    /// This runs in a task of its own: a request that goes away, or is not polled, would otherwise lose the units that the
    /// answer brings, and keep the requests waiting that come after it.
    async fn answer(mut self) -> Result<(ScriptReply, Outcomes), StoreError> {
        let calls = Arc::clone(&self.calls);
        let answer = calls.lease(&self.questions, calls.link.deadline()).await;
        let answer = answer.inspect_err(|error| self.failed(Some(error)))?;
        let mut outcomes = answer.outcomes(&calls.policies);
        let questions = mem::take(&mut self.questions);
        if let Some(leases) = &calls.leases {
            leases.answered(questions, &answer, &calls.policies, &mut outcomes);
            // The task goes on as long as any units are held, so an answer without units needs none.
            if answer.grants_any() {
                look_after(&calls, leases);
            }
        }
        Ok((answer, outcomes))
    }

    fn failed(&mut self, error: Option<&StoreError>) {
        let questions = mem::take(&mut self.questions);
        if let Some(leases) = &self.calls.leases {
            questions
                .iter()
                .for_each(|question| leases.failed(question, error));
        }
    }
}

impl Drop for LeaseCall {
    /// If there is no answer yet, the task could not start, or has panicked: the next request asks again.
    fn drop(&mut self) {
        self.failed(None);
        if let Some(leases) = &self.calls.leases {
            leases.on_their_way.end();
        }
    }
}

/// How long a request waits for answers.
///
/// A request that finds another's question on its way waits for that answer first, and may then have to ask itself. It is not
/// degraded for having waited: when the server has answered another, the request has the whole deadline of a call anew, and
/// twice the deadline in all. If the server does not answer, it has one deadline.
struct Waits {
    until: Instant,
    latest: Instant,
    deadline: Duration,
}

impl Waits {
    fn begin(deadline: Duration) -> Self {
        let until = Instant::now() + deadline;
        Self {
            until,
            latest: until + deadline,
            deadline,
        }
    }

    /// The server has answered a question of another request.
    fn is_answered(&mut self) {
        self.until = self.latest.min(Instant::now() + self.deadline);
    }

    fn is_half_over(&self) -> bool {
        Instant::now() + self.deadline / 2 > self.until
    }
}

/// Decides a request that was not decided at once, and takes units for the requests after it. The outcomes
/// are the server's, if it was asked. It runs in the store's own runtime.
pub(super) async fn decide(
    calls: &Arc<Calls>,
    charges: &[Charge],
) -> Result<(Option<ScriptReply>, Outcomes), StoreError> {
    let mut waits = Waits::begin(calls.link.patience());
    if let Some(leases) = &calls.leases {
        loop {
            let mut outcomes = Outcomes::new(Micros::ZERO);
            match leases.again(charges, &calls.policies, &mut outcomes) {
                Again::Decided(local) => {
                    renew_if_low(calls, charges, &local);
                    return Ok((None, outcomes));
                }
                Again::Wait(hears) => match timeout_at(waits.until, hears).await {
                    Ok(Ok(Ok(()))) => waits.is_answered(),
                    // There is too little time to ask again.
                    Ok(Ok(Err(error))) if waits.is_half_over() => return Err(error),
                    // If the question was dropped, this request has no answer.
                    Ok(_) => {}
                    Err(_) => return Err(late()),
                },
                Again::Ask => break,
            }
        }
    }
    let asking = tokio::spawn(LeaseCall::new(calls, charges).answer());
    match timeout_at(waits.until, asking).await {
        Ok(Ok(decided)) => decided.map(|(answer, outcomes)| (Some(answer), outcomes)),
        // The task has panicked, or the request has waited for other answers before.
        Ok(Err(_)) | Err(_) => Err(late()),
    }
}

/// Takes more units for the pairs that have few.
pub(super) fn renew_if_low(calls: &Arc<Calls>, charges: &[Charge], local: &Local) {
    for (place, charge) in charges.iter().enumerate() {
        if local.low >> place & 1 == 1 {
            renew(calls, charge);
        }
    }
}

/// Takes more units for the pair of this charge, while requests spend the remaining ones.
fn renew(calls: &Arc<Calls>, charge: &Charge) {
    let charge = charge.at_no_cost();
    // Asked for before the task runs, so that the requests until then do not ask as well.
    let asking = LeaseCall::new(calls, &[charge]).answer();
    let _ = calls.link.background.spawn(asking);
}

/// Reports units to the server. Units of a lost report lapse.
pub(super) async fn send_reports(calls: &Arc<Calls>, reports: Vec<LeaseRequest>) {
    let mut tasks = Vec::with_capacity(reports.len());
    for question in reports {
        let (background, calls) = (&calls.link.background, Arc::clone(calls));
        // The reports share calls.
        tasks.push(background.spawn(async move {
            let questions = LeaseRequests::from_iter([question]);
            let _ = calls.lease(&questions, calls.link.deadline()).await;
        }));
    }
    for task in tasks.into_iter().flatten() {
        let _ = task.await;
    }
}

/// Waits for what requests have begun to give back, and gives all units back, with those that questions on their way bring.
pub(super) async fn give_back(calls: &Arc<Calls>) {
    // First, since a settlement may report units.
    let _ = timeout_at(calls.link.deadline(), calls.amendments.are_over()).await;
    let Some(leases) = &calls.leases else {
        return;
    };
    // Each has a deadline, but requests may go on, and ask again.
    let _ = timeout_at(calls.link.deadline(), leases.on_their_way.are_over()).await;
    send_reports(calls, leases.all()).await;
}

/// Gives all units back, in the background.
pub(super) fn give_all_back(calls: &Arc<Calls>) {
    if let Some(leases) = &calls.leases {
        let all = leases.all();
        if !all.is_empty() {
            let (background, calls) = (&calls.link.background, Arc::clone(calls));
            let _ = background.spawn(async move { send_reports(&calls, all).await });
        }
    }
}

fn look_after(calls: &Arc<Calls>, leases: &Leases) {
    if leases.is_to_be_looked_after() {
        let looking = Looking {
            calls: Arc::downgrade(calls),
            is_over: false,
        };
        let _ = calls.link.background.spawn(give_idle_back(looking));
    }
}

/// Gives unused units back, as long as any are held.
async fn give_idle_back(mut looking: Looking) {
    loop {
        sleep(LOOKS_EVERY).await;
        let Some(calls) = looking.calls.upgrade() else {
            return;
        };
        let Some(leases) = &calls.leases else {
            return;
        };
        let idle = leases.idle();
        if !idle.is_empty() {
            send_reports(&calls, idle).await;
        } else if !leases.holds_any() {
            leases.sweeper_stopped();
            // Units that have come since then have found a task that was about to end.
            looking.is_over = !leases.holds_any() || !leases.is_to_be_looked_after();
            if looking.is_over {
                return;
            }
        }
    }
}

/// Lets another task start if this one cannot, or panics.
struct Looking {
    calls: Weak<Calls>,
    is_over: bool,
}

impl Drop for Looking {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(calls) = self.calls.upgrade()
            && let Some(leases) = &calls.leases
        {
            leases.sweeper_stopped();
        }
    }
}

//! Asks the server for units and gives them back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::calls::Calls;
use super::leases::Leases;
use super::pairs::{Question, Questions};
use super::reply::ScriptReply;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::store::Charge;

/// How often a node looks for units that no request asks for.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// Questions on their way. Where no answer comes, or no one waits for it any more, the next request asks again.
struct Asking {
    calls: Arc<Calls>,
    questions: Questions,
}

impl Asking {
    fn about(calls: &Arc<Calls>, charges: &[Charge]) -> Self {
        let questions = calls.leases.as_ref().map(|leases| leases.ask(charges));
        Self {
            calls: Arc::clone(calls),
            questions: questions.unwrap_or_default(),
        }
    }

    async fn answer(&self) -> Result<ScriptReply, StoreError> {
        self.calls.lease(&self.questions).await
    }

    fn answered(mut self, answer: &ScriptReply, outcomes: &mut Outcomes) {
        let questions = std::mem::take(&mut self.questions);
        let calls = &self.calls;
        if let Some(leases) = &calls.leases {
            leases.answered(questions, answer, &calls.policies, outcomes);
            look_after(calls, leases);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(leases) = &self.calls.leases {
            self.questions
                .iter()
                .for_each(|question| leases.failed(question));
        }
    }
}

/// Decides on a request, and takes units for those after it.
pub(super) async fn decide(
    calls: &Arc<Calls>,
    charges: &[Charge],
) -> Result<(ScriptReply, Outcomes), StoreError> {
    let asking = Asking::about(calls, charges);
    let answer = asking.answer().await?;
    let mut outcomes = answer.outcomes(&calls.policies);
    asking.answered(&answer, &mut outcomes);
    Ok((answer, outcomes))
}

/// Takes more units of the pair of this charge, while requests spend those that are left.
pub(super) fn renew(calls: &Arc<Calls>, charge: &Charge) {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let (calls, charge) = (Arc::clone(calls), Charge { cost: 0, ..*charge });
    runtime.spawn(async move {
        let asking = Asking::about(&calls, &[charge]);
        if let Ok(answer) = asking.answer().await {
            asking.answered(&answer, &mut Outcomes::new(Micros::ZERO));
        }
    });
}

/// Tells the server what has become of units. What is lost on the way lapses.
pub(super) async fn tell(calls: &Arc<Calls>, told: Vec<Question>) {
    let mut tasks = Vec::with_capacity(told.len());
    for question in told {
        let calls = Arc::clone(calls);
        // They share calls.
        tasks.push(tokio::spawn(async move {
            let questions = Questions::from_iter([question]);
            let _ = calls.lease(&questions).await;
        }));
    }
    for task in tasks {
        let _ = task.await;
    }
}

/// Gives all units back, if a runtime is there to do it.
pub(super) fn give_all_back(calls: &Arc<Calls>) {
    if let Some(leases) = &calls.leases
        && let Ok(runtime) = Handle::try_current()
    {
        let all = leases.all();
        if !all.is_empty() {
            let calls = Arc::clone(calls);
            runtime.spawn(async move { tell(&calls, all).await });
        }
    }
}

fn look_after(calls: &Arc<Calls>, leases: &Leases) {
    if let Ok(runtime) = Handle::try_current()
        && leases.is_to_be_looked_after()
    {
        runtime.spawn(give_idle_back(Looking(Arc::downgrade(calls))));
    }
}

/// Gives back what no request asks for, as long as anything is held.
async fn give_idle_back(looking: Looking) {
    loop {
        sleep(LOOKS_EVERY).await;
        let Some(calls) = looking.0.upgrade() else {
            return;
        };
        let Some(leases) = &calls.leases else {
            return;
        };
        let idle = leases.idle();
        if !idle.is_empty() {
            tell(&calls, idle).await;
        } else if !leases.holds_any() {
            return;
        }
    }
}

/// Lets another task look after the units if this one ends, with its runtime or because nothing is held.
struct Looking(Weak<Calls>);

impl Drop for Looking {
    fn drop(&mut self) {
        if let Some(calls) = self.0.upgrade()
            && let Some(leases) = &calls.leases
        {
            leases.is_left_alone();
        }
    }
}

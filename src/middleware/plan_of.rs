use std::sync::atomic::{AtomicU32, Ordering};

use tower_ratelimit_core::__internal::{PlanOf, warn_once_of};

use crate::diagnostics::Diagnostic;
use crate::key::Head;
use crate::policy::Logged;

const UNVERIFIED: Diagnostic = Diagnostic::new(
    "TRL019",
    "",
    "the plan of a request is the value of a header, which its client can choose",
    "take it from what authentication has verified, such as an extension of the request; in a file of limits: \
     `plan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }` for a gateway in this network, or \
     `plan_of = { key = \"api_key\", plans = { … } }`",
);

/// The number of requests whose plan is compared with their headers. Comparing all of them would slow each
/// request down.
const LOOKS: u32 = 1_000;

/// Takes the plan of a request from this closure, and compares the first ones with the headers of their requests.
pub(super) fn compared<N: AsRef<str>>(
    plan_of: impl Fn(&Head<'_>) -> Option<N> + Send + Sync + 'static,
) -> PlanOf<Head<'static>> {
    let looks = AtomicU32::new(LOOKS);
    PlanOf::<Head<'_>>::passing(
        move |head: &Head<'_>, found: &mut dyn FnMut(Option<&str>)| {
            let name = plan_of(head);
            let name = name.as_ref().map(AsRef::as_ref);
            if let Some(name) = name
                && looks.load(Ordering::Relaxed) > 0
            {
                look(&looks, head, name);
            }
            found(name);
        },
    )
}

/// Takes the plan that a log has for a request, and else that of this source.
pub(super) fn or_logged(source: PlanOf<Head<'static>>) -> PlanOf<Head<'static>> {
    let read = move |head: &Head<'_>, found: &mut dyn FnMut(Option<&str>)| {
        let logged = head.extension::<Logged>();
        match logged.and_then(|logged| logged.plan.as_deref()) {
            Some(plan) => found(Some(plan)),
            None => source.read(head, found),
        }
    };
    PlanOf::<Head<'_>>::passing(read)
}

#[cold]
fn look(looks: &AtomicU32, head: &Head<'_>, plan: &str) {
    let one_less = |looks: u32| looks.checked_sub(1);
    let order = Ordering::Relaxed;
    // A log is no client.
    if head.extension::<Logged>().is_some() {
        return;
    }
    if plan.is_empty() || looks.fetch_update(order, order, one_less).is_err() {
        return;
    }
    let mut headers = head.headers().iter();
    if let Some((name, _)) = headers.find(|(_, value)| value.as_bytes() == plan.as_bytes()) {
        looks.store(0, order);
        warn_once_of(&UNVERIFIED, format!("header {name}"));
    }
}

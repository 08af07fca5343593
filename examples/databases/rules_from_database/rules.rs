//! Converts the rows of a customer's plan into limits of policies.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use tower_ratelimit::plan::{Plan, Resolved};
use tower_ratelimit::{AnchoredWindow, Quota};

/// The policies, each with its period as it is written in a quota.
const POLICIES: [&str; 2] = ["minute", "day"];

/// The plans of a new database: name, policy and quota.
pub(crate) const FIRST_PLANS: [(&str, &str, &str); 4] = [
    ("free", "minute", "10/minute"),
    ("free", "day", "100/day"),
    ("pro", "minute", "100/minute"),
    ("pro", "day", "10000/day"),
];

/// A row of a customer's plan: the name of the plan, and a policy with its quota. A plan without rows gives one row
/// without policy and quota.
pub(crate) type Row = (String, Option<String>, Option<String>);

/// Converts the rows of a customer. A key without rows belongs to no customer.
pub(crate) fn resolved(rows: &[Row]) -> Resolved {
    let Some((name, ..)) = rows.first() else {
        return Resolved::NotFound;
    };
    let mut plan = Plan::new(name);
    let mut is_empty = true;
    for policy in POLICIES {
        let of_policy = |(_, of, _): &&Row| of.as_deref() == Some(policy);
        let Some((.., quota)) = rows.iter().find(of_policy) else {
            plan = plan.unlimited(policy);
            continue;
        };
        is_empty = false;
        let quota = quota.as_deref().unwrap_or_default();
        plan = match limit(policy, quota) {
            Ok(Some(limit)) => plan.limit(policy, limit),
            Ok(None) => plan.unlimited(policy),
            Err(why) => {
                refuse(format!("plan {name:?}, policy {policy:?}: {why}"));
                plan
            }
        };
    }
    let unknown = |(_, of, _): &&Row| {
        let policy = of.as_deref();
        policy.is_some_and(|policy| !POLICIES.contains(&policy))
    };
    for (_, policy, _) in rows.iter().filter(unknown) {
        let policy = policy.as_deref().unwrap_or_default();
        refuse(format!("plan {name:?}: there is no policy {policy:?}"));
    }
    if is_empty {
        refuse(format!(
            "plan {name:?}, which a customer has: it has no row in `plans`"
        ));
        return Resolved::NotFound;
    }
    Resolved::Limits(plan)
}

/// Returns the limit of a policy; `None` if it is unlimited.
fn limit(policy: &str, quota: &str) -> Result<Option<AnchoredWindow>, String> {
    if quota == "unlimited" {
        return Ok(None);
    }
    let quota: Quota = quota.parse().map_err(|error| format!("{error}"))?;
    let limit = AnchoredWindow::of(quota);
    let wanted = match policy {
        "minute" => AnchoredWindow::per_minute(quota.limit()),
        _ => AnchoredWindow::per_day(quota.limit()),
    };
    if limit != wanted {
        return Err(format!("the quota {quota} is not by the {policy}"));
    }
    Ok(Some(limit))
}

/// Logs an invalid row, once for each text.
fn refuse(row: String) {
    const MOST: usize = 1_000;
    static TOLD: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST && !told.contains(&row) {
        tracing::warn!(row, "a row is refused, and the default limit applies");
        told.insert(row);
    }
}

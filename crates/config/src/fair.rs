//! Limits that are divided among tenants.

use super::store::ReadStore;
use super::tree::quoted;
use super::walk::{At, TableAt};
use tower_ratelimit::key::Extract;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::policy::{Fair, Http, Policy};

/// What may become of tenants that nothing knows.
pub(super) static UNVERIFIED: [(&str, Unverified); 2] = [
    ("together", Fair::unverified_together),
    ("apart", Fair::unverified_apart),
];

type Unverified = fn(Fair) -> Fair;

/// Divides the limit of a policy, if its table says so.
pub(super) fn divided(policy: Policy<Http>, table: &TableAt<'_>) -> Policy<Http> {
    let remedy = "say among whom the limit is shared, such as fair = \"client_ip\"";
    for field in ["weights", "active_for", "most_tenants", "unverified"] {
        table.needs(field, "fair", remedy);
    }
    let Some(at) = table.get("fair") else {
        return policy;
    };
    for field in [
        "wait_up_to",
        "reserve",
        "hours",
        "key_limits",
        "operations",
        "limit_by",
    ] {
        table.either("fair", field);
    }
    if table.is_on("adapt") {
        table.either("fair", "adapt");
    }
    let mut fair = Fair::new();
    if let Some(time) = table.get("active_for").and_then(At::duration) {
        fair = fair.active_for(time);
    }
    if let Some(tenants) = table.get("most_tenants").and_then(At::integer) {
        fair = fair.most_tenants(tenants);
    }
    if let Some(count) = table
        .get("unverified")
        .and_then(|at| at.one_of(&UNVERIFIED))
    {
        fair = count(fair);
    }
    let weights = table.get("weights").and_then(At::entries);
    for (plan, weight) in weights.into_iter().flatten() {
        if let Some(weight) = weight.integer() {
            fair = fair.weight(plan.text, weight);
        }
    }
    let Some(tenant) = at.common().key(at) else {
        return policy;
    };
    if table.lacks("unverified")
        && let Some(chosen) = tenant.key.chosen_by_client()
    {
        at.warn(format!(
            "a client chooses {chosen}, and has as many shares as it invents tenants (TRL041); take a key that authentication has \
             verified, or write unverified = \"together\", so that all tenants that no plan names are one, or unverified = \"apart\" if a \
             gateway has verified it"
        ));
    }
    policy.fair_by(tenant.key, fair)
}

/// Returns the names of the policies whose limits are divided.
pub(super) fn divided_of(tables: &[(String, TableAt<'_>)]) -> Vec<String> {
    let divided = tables
        .iter()
        .filter(|(_, table)| table.get("fair").is_some());
    divided.map(|(name, _)| name.clone()).collect()
}

/// Rejects a limit that is divided, where the policies together or the store do not go with that.
pub(super) fn check(
    tables: &[(String, TableAt<'_>)],
    (limiter, policies): (&LimiterBuilder, Vec<Policy>),
    store: Option<&ReadStore>,
) -> Option<()> {
    let Some(at) = tables.iter().find_map(|(_, table)| table.get("fair")) else {
        return Some(());
    };
    if store.is_some_and(|store| !store.divides_limits()) {
        return at.refuse(
            "the store of the program does not divide limits among tenants; take the memory of this process or Redis, or leave `fair` out",
        );
    }
    let Err(error) = limiter.clone().policies(policies).build() else {
        return Some(());
    };
    if error.field() == "factor" {
        // `adapt`, of which it was told where it stands.
        return Some(());
    }
    let named = tables
        .iter()
        .find(|(name, _)| quoted(name) == error.value());
    let its = named.and_then(|(_, table)| table.get("fair"));
    its.unwrap_or(at).refuse(error.to_string())
}

//! The questions and the changes of an operator.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_ratelimit::__internal::ClientCharges;
use tower_ratelimit::limiter::{AdjustableLimit, Inspection};
use tower_ratelimit::store::{Amendment, TenantShare};
use tower_ratelimit::{Algorithm, ConfigError, Decision, Limiter, Outcome, StoreError};

use super::handle::Handle;

/// Why a question of an operator fails.
#[derive(Debug)]
pub(super) enum Failed {
    /// The question is invalid.
    Invalid(String),
    /// The store cannot answer.
    Store(StoreError),
}

/// A change, for the log and for the operator.
#[derive(Debug)]
pub(super) struct Change {
    /// The subject of the change, without the key.
    pub(super) subject: String,
    pub(super) before: String,
    pub(super) after: String,
    /// Whether the client was blocked, if the change ends a block.
    pub(super) was_blocked: Option<bool>,
}

/// The change that lets a refused client pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Remedy {
    Unblock,
    Reset,
}

impl Remedy {
    /// Returns it for a client whose next request has this decision, or `None` if the request passes, or if
    /// neither change helps. While the store is away, neither can be made.
    fn of(decision: &Decision, client: &ClientCharges) -> Option<Self> {
        let refusing = || {
            let policies = decision.policies().map(|(_, outcome)| outcome);
            policies.filter(|outcome| outcome.denies())
        };
        if decision.is_degraded() || above(decision, client).is_some() {
            return None;
        }
        if refusing().any(Outcome::is_blocked) {
            return Some(Self::Unblock);
        }
        let is_used_up = |outcome: &Outcome| outcome.limit() > 0 && !outcome.is_of_slots();
        (!decision.is_allowed() && refusing().all(is_used_up)).then_some(Self::Reset)
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Unblock => " Ending the block lets it pass, unless its limit is used up too.",
            Self::Reset => " It is not blocked: a reset lets it pass.",
        }
    }
}

/// Returns the policy that refuses the next request of a client, if that is a level of a tree above those of the client.
fn above<'d>(decision: &'d Decision, client: &ClientCharges) -> Option<&'d str> {
    let mut refusing = decision.policies().filter(|(_, outcome)| outcome.denies());
    let above = refusing.find(|(policy, _)| !client.is_its_own(policy));
    above.map(|(policy, _)| policy)
}

/// A client, by the text that the operator types.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfClient {
    key: String,
}

/// A client, under one policy or under all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnderPolicies {
    key: String,
    #[serde(default)]
    policy: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    key: String,
    #[serde(default)]
    policy: Option<String>,
    seconds: u32,
}

/// A limit of all requests, of a plan, or of one client for a time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLimit {
    policy: String,
    #[serde(default)]
    plan: Option<String>,
    #[serde(default)]
    key: Option<String>,
    /// The new limit; for a client, `null` ends its override.
    limit: Option<u32>,
    #[serde(default)]
    seconds: Option<u32>,
}

/// A limit as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct ShownLimit {
    policy: String,
    plan: Option<String>,
    /// The quota, in units per period; `None` if unlimited.
    limit: Option<u32>,
    declared: Option<u32>,
    text: String,
    can_change: bool,
}

impl From<&AdjustableLimit> for ShownLimit {
    fn from(limit: &AdjustableLimit) -> Self {
        let quota = |algorithm: Algorithm| Some(algorithm.limits()?.quota());
        Self {
            policy: limit.policy().to_owned(),
            plan: limit.plan().map(str::to_owned),
            limit: quota(limit.in_force()),
            declared: quota(limit.declared()),
            text: limit.in_force().to_string(),
            can_change: limit.can_change(),
        }
    }
}

/// Returns the limits of all policies.
pub(super) fn limits(handle: &Handle) -> Vec<ShownLimit> {
    let limits = handle.limiter().adjustable_limits();
    limits.iter().map(ShownLimit::from).collect()
}

/// Returns the levels of trees, each with the policy above it.
pub(super) fn levels(handle: &Handle) -> BTreeMap<String, String> {
    let limiter = handle.limiter();
    let levels = limiter.levels();
    levels
        .map(|(level, above)| (level.to_owned(), above.to_owned()))
        .collect()
}

/// Describes what a client has used, and why it is refused.
pub(super) async fn inspect(handle: &Handle, question: &OfClient) -> Result<Value, Failed> {
    let asking = client(handle, &question.key, 1)?;
    let decision = asking.peek().await?;
    let inspection = client(handle, &question.key, 0)?.inspect().await?;
    let levels = levels(handle);
    let shares: BTreeMap<_, _> = inspection.shares().collect();
    let policies = inspection.policies().zip(inspection.rules()).map(
        |((name, outcome), (_, rule))| {
            json!({
                "policy": name,
                "below": levels.get(name),
                "limit": outcome.limit(),
                "used": outcome.used(),
                "remaining": outcome.remaining(),
                "next_in_seconds": next(outcome).map(|next| next.as_secs_f64()),
                "reset_in_seconds": (!outcome.is_of_slots()).then(|| outcome.reset_after().as_secs_f64()),
                "blocked": outcome.is_blocked(),
                "tenants": shares.get(name).map(TenantShare::tenants),
                "share": shares.get(name).map(TenantShare::of_limit),
                "weight": shares.get(name).map(TenantShare::weight),
                "rule": rule.to_string(),
                "sentence": sentence_of(&inspection, name),
            })
        },
    );
    Ok(json!({
        "key": question.key,
        "allowed": decision.is_allowed(),
        "blocked_seconds": inspection.blocked_for().map(|left| left.as_secs_f64()),
        "payers": decision.payers().collect::<BTreeMap<_, _>>(),
        "remedy": Remedy::of(&decision, &asking),
        "degraded": decision.is_degraded(),
        "policies": policies.collect::<Vec<_>>(),
        "sentence": sentence(&decision, &inspection, &asking),
    }))
}

/// Returns after how long a further request may pass, or `None` if that is never.
fn next(outcome: &Outcome) -> Option<Duration> {
    match outcome.retry_after() {
        Some(blocked) if outcome.is_blocked() => Some(blocked),
        _ if outcome.remaining() > 0 => Some(Duration::ZERO),
        _ => outcome.effective_window(),
    }
}

/// Says why a request of the client is refused now, or that it is not.
fn sentence(decision: &Decision, inspection: &Inspection, client: &ClientCharges) -> String {
    let Some((policy, outcome)) = decision.binding() else {
        return "No policy counts the requests of this client.".to_owned();
    };
    let rule = decision.rule().map(|rule| rule.to_string());
    let rule = rule.unwrap_or_default();
    let numbers = sentence_of(inspection, policy);
    let mut sentence = if decision.is_allowed() {
        format!("The next request passes. The least is left under {policy} ({rule}): {numbers}")
    } else {
        format!("The next request is refused by {policy} ({rule}): {numbers}")
    };
    if !decision.is_allowed() && outcome.limit() > 0 && decision.retry_after().is_none() {
        sentence.push_str(" No wait helps.");
    }
    for (group, payer) in decision.payers() {
        let _ = write!(sentence, " Of {group}, {payer} pays.");
    }
    if let Some(remedy) = Remedy::of(decision, client) {
        sentence.push_str(remedy.sentence());
    } else if let Some(level) = above(decision, client) {
        let _ = write!(
            sentence,
            " Others share the key of {level}: a change there names that policy."
        );
    }
    if decision.is_degraded() {
        sentence.push_str(" The store is away, and this process tells it alone.");
    }
    sentence
}

fn sentence_of(inspection: &Inspection, policy: &str) -> String {
    let lines = inspection.to_string();
    let prefix = format!("{policy}: ");
    let mut lines = lines.lines();
    // A level of a tree is indented.
    let line = lines.find_map(|line| line.trim_start().strip_prefix(&prefix));
    line.unwrap_or_default().to_owned()
}

/// Blocks a client under one policy, or under all.
pub(super) async fn block(handle: &Handle, question: &Block) -> Result<Change, Failed> {
    if question.seconds == 0 {
        return Err(Failed::Invalid(
            "`seconds` cannot be 0: give 1 or more".to_owned(),
        ));
    }
    let length = Duration::from_secs(question.seconds.into());
    let of = (question.key.as_str(), question.policy.as_deref());
    change(handle, of, Amendment::Block(length.into()), blocked).await
}

/// Ends the block of a client.
pub(super) async fn unblock(handle: &Handle, question: &UnderPolicies) -> Result<Change, Failed> {
    change(handle, question.of(), Amendment::Unblock, blocked).await
}

/// Gives a client all of its limits back.
pub(super) async fn reset(handle: &Handle, question: &UnderPolicies) -> Result<Change, Failed> {
    change(handle, question.of(), Amendment::Reset, used).await
}

impl UnderPolicies {
    fn of(&self) -> (&str, Option<&str>) {
        (&self.key, self.policy.as_deref())
    }
}

async fn change(
    handle: &Handle,
    (key, policy): (&str, Option<&str>),
    amendment: Amendment,
    state_text: fn(&Inspection) -> String,
) -> Result<Change, Failed> {
    let client = client(handle, key, 0)?;
    if let Some(policy) = policy.filter(|policy| client.key(policy).is_none()) {
        return Err(does_not_count(policy));
    }
    let before = state_text(&client.inspect().await?);
    let answer = client.amend(amendment, policy).await?;
    let after = state_text(&client.inspect().await?);
    let of_policy = policy.map(|policy| format!("policy {policy}, "));
    Ok(Change {
        subject: format!("{}a key", of_policy.unwrap_or_default()),
        before,
        after,
        was_blocked: (amendment == Amendment::Unblock).then_some(answer),
    })
}

fn blocked(inspection: &Inspection) -> String {
    match inspection.blocked_for() {
        Some(left) => format!("blocked for {} s", left.as_secs_f64().ceil()),
        None => "not blocked".to_owned(),
    }
}

/// Returns what each policy counts, such as `minute 10 of 10, day 12 of 500`.
fn used(inspection: &Inspection) -> String {
    let used = inspection
        .policies()
        .map(|(policy, outcome)| format!("{policy} {} of {}", outcome.used(), outcome.limit()));
    used.collect::<Vec<_>>().join(", ")
}

/// Puts another limit in force.
pub(super) async fn limit(handle: &Handle, question: &NewLimit) -> Result<Change, Failed> {
    let limiter = handle.limiter();
    let policy = question.policy.as_str();
    let Some(key) = &question.key else {
        let limit = question
            .limit
            .ok_or_else(|| Failed::Invalid("`limit` cannot be null: give a number".to_owned()))?;
        let adjustable = limiter.adjustable_limit(policy, question.plan.as_deref())?;
        let limit = match adjustable.declared() {
            Algorithm::Unlimited => with_quota(&any_limit(&limiter, policy)?, limit)?,
            declared => with_quota(&declared, limit)?,
        };
        let before = limiter.adjust_limit(policy, question.plan.as_deref(), limit)?;
        let of_plan = question.plan.as_ref().map(|plan| format!(", plan {plan}"));
        return Ok(Change {
            subject: format!("policy {policy}{}", of_plan.unwrap_or_default()),
            before: before.to_string(),
            after: limit.to_string(),
            was_blocked: None,
        });
    };
    if question.plan.is_some() {
        return Err(Failed::Invalid(
            "`plan` cannot stand beside `key`: a client has one limit".to_owned(),
        ));
    }
    let client = client(handle, key, 0)?;
    let limiter = client.limiter();
    let before = shown_limit(&client.inspect().await?, policy);
    let Some(own) = client.key(policy) else {
        return Err(does_not_count(policy));
    };
    match question.limit {
        None => limiter.end_override(policy, own)?.await?,
        Some(limit) => {
            let seconds = question.seconds.unwrap_or(3_600);
            let limit = with_quota(&any_limit(limiter, policy)?, limit)?;
            let length = Duration::from_secs(seconds.into());
            limiter.override_limit(policy, own, limit, length)?.await?;
        }
    }
    let after = shown_limit(&client.inspect().await?, policy);
    Ok(Change {
        subject: format!("policy {policy}, a key"),
        before,
        after,
        was_blocked: None,
    })
}

fn does_not_count(policy: &str) -> Failed {
    Failed::Invalid(format!(
        "`policy` cannot be {policy:?}: it does not count this client"
    ))
}

fn shown_limit(inspection: &Inspection, policy: &str) -> String {
    let mut policies = inspection.policies();
    let outcome = policies.find(|(name, _)| *name == policy);
    outcome.map_or_else(
        || "unlimited".to_owned(),
        |(_, outcome)| outcome.limit().to_string(),
    )
}

/// Returns a declared limit of a policy, from which others differ only in their numbers.
fn any_limit(limiter: &Limiter, policy: &str) -> Result<Algorithm, Failed> {
    let limits = limiter.adjustable_limits();
    let of_policy = limits.iter().filter(|limit| limit.policy() == policy);
    let mut declared = of_policy.map(AdjustableLimit::declared);
    let found = declared.find(|limit| *limit != Algorithm::Unlimited);
    found.ok_or_else(|| Failed::Invalid(format!("`policy` cannot be {policy:?}: it has no limit")))
}

/// Returns the algorithm with this quota, and with its burst or capacity in proportion.
fn with_quota(declared: &Algorithm, quota: u32) -> Result<Algorithm, Failed> {
    let limit = declared.scaled_to(quota);
    limit.ok_or_else(|| {
        Failed::Invalid(format!(
            "`limit` cannot be {quota}: {declared} cannot have it"
        ))
    })
}

fn client(handle: &Handle, text: &str, cost: u32) -> Result<ClientCharges, Failed> {
    let found = handle.client_charges(text, cost);
    found.ok_or_else(|| Failed::Invalid("`key` names no client".to_owned()))
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ConfigError> for Failed {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error.to_string())
    }
}

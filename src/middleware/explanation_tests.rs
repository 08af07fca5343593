//! What `explain` tells is what the enforcer does, for drawn policies and requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tower_ratelimit_core::__internal::Sealed;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};

use super::explanation::{Explanation, PolicyEffect};
use super::{RateLimitLayer, RateLimitLayerBuilder};
use crate::algorithm::{FixedWindow, Hours};
use crate::decision::Outcomes;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::factor::Factor;
use crate::key::{self, Head};
use crate::plan::{Plan, Plans, Resolved, Resolver};
use crate::policy::{Http, Mode, OnMissingKey, Policy, Rule};
use crate::store::{Backend, Charge, Charged, Payers, Store, Wanted};

/// A store that cannot decide, and remembers the charges.
#[derive(Clone, Debug, Default)]
struct Remembering(Arc<Mutex<Vec<Charge>>>);

impl Remembering {
    fn take(&self) -> Vec<Charge> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sealed for Remembering {}

impl Store for Remembering {
    type Backend = Self;

    fn chooses_payers(&self) -> Payers {
        Payers::OfAnyKeys
    }

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(self.clone())
    }
}

impl Backend for Remembering {
    fn charge(&self, charges: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend_from_slice(charges);
        Charged::Now(Err(StoreError::new(StoreErrorKind::Unavailable)))
    }
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    limit: u32,
    has_hours: bool,
    /// The header of the key; `None` counts all requests together.
    key: Option<&'static str>,
    on_missing_key: Option<OnMissingKey>,
    mode: Mode,
    cost: u32,
    most: Option<u32>,
    reserve: u32,
    is_soft: bool,
    is_for_posts: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let no_keys = [
        None,
        Some(OnMissingKey::Shared),
        Some(OnMissingKey::Skip),
        Some(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED)),
    ];
    let reads = (
        prop::sample::select(vec![None, Some("x-a"), Some("x-b")]),
        prop::sample::select(no_keys.to_vec()),
        prop::sample::select(vec![Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Off]),
        0_u32..12,
        any::<[bool; 3]>(),
    );
    let limits = (6_u32..20, prop::option::of(1_u32..6), 0_u32..5);
    (reads, limits).prop_map(
        |((key, on_missing_key, mode, cost, are), (limit, most, reserve))| Drawn {
            limit,
            has_hours: are[0],
            key,
            on_missing_key,
            mode,
            cost,
            most,
            reserve,
            is_soft: are[1],
            is_for_posts: are[2],
        },
    )
}

impl Drawn {
    fn policy(self, number: usize) -> Policy<Http> {
        let mut policy = Policy::new(format!("p{number}"), FixedWindow::per_hour(self.limit));
        if let Some(most) = self.most {
            policy = policy.most(most);
        }
        if self.is_soft {
            policy = policy.soft();
        }
        policy = policy.mode(self.mode).reserve(self.reserve);
        if self.has_hours {
            let hours = Hours::in_zone("UTC").unwrap();
            let hours = hours.at("00:00-12:00", Factor::thousandths(500)).unwrap();
            policy = policy.hours(&hours).unwrap();
        }
        let mut policy = match self.key {
            Some(header) => policy.key(key::header(header)),
            None => policy.key(key::global()),
        };
        if let Some(on_missing_key) = self.on_missing_key {
            policy = policy.on_missing_key(on_missing_key);
        }
        if self.is_for_posts {
            policy = policy.when(|head| head.method() == "POST");
        }
        let cost = self.cost;
        policy
            .cost(move |_| cost)
            .low_priority(|head| head.path() == "/low")
    }
}

/// What is drawn of a layer, beside its policies.
#[derive(Clone, Copy, Debug)]
struct DrawnLayer {
    /// Whether one of its policies pays.
    is_group: bool,
    refuses_unresolved: bool,
}

/// Finds the plan `pro` for the customer `pro`, and fails for others.
fn resolver(drawn: DrawnLayer) -> Resolver<String> {
    let look = |customer: String| async move {
        let is_pro = customer == "pro";
        is_pro.then(|| Resolved::plan("pro")).ok_or("it is away")
    };
    let resolver = Resolver::builder(look);
    if drawn.refuses_unresolved {
        resolver.refuse_unresolved().build().unwrap()
    } else {
        resolver.build().unwrap()
    }
}

fn builder(
    drawn: DrawnLayer,
    policies: &[Drawn],
    store: &Remembering,
) -> RateLimitLayerBuilder<Remembering> {
    let mut builder = RateLimitLayer::builder().store(store.clone());
    for (number, drawn) in policies.iter().enumerate() {
        builder = builder.policy(drawn.policy(number));
    }
    let pro = Plan::new("pro").limit("p0", FixedWindow::per_hour(40));
    let free = match policies {
        [_] => Plan::new("free"),
        _ => Plan::new("free").unlimited("p1"),
    };
    let plans = Plans::new([pro, free]).default_plan("free");
    if drawn.is_group {
        let members: Vec<String> = (0..policies.len()).map(|it| format!("p{it}")).collect();
        builder = builder.first_of("group", members);
    }
    builder
        .plans_by_name(plans)
        .resolver(resolver(drawn), |head: &Head<'_>| {
            Some(head.header("x-customer")?.to_owned())
        })
}

/// The law: each policy charges what `explain` names, and no other policy charges anything.
async fn explain_agrees(
    drawn: DrawnLayer,
    policies: &[Drawn],
    request: Request<()>,
) -> Result<(), TestCaseError> {
    let store = Remembering::default();
    let Ok(layer) = builder(drawn, policies, &store).build() else {
        return Err(TestCaseError::reject("the policies do not fit each other"));
    };
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) });
    let response = layer.layer(inner).oneshot(request.clone()).await.unwrap();
    let charged = store.take();

    // The resolver knows the customer by now, as it did when the request was charged.
    let explained = match layer.explain(&Head::of(&request), None, None) {
        Explanation::Policies(explained) => explained,
        Explanation::Unresolved => {
            prop_assert!(drawn.refuses_unresolved);
            prop_assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            prop_assert!(charged.is_empty());
            return Ok(());
        }
        Explanation::Denied | Explanation::Allowed => panic!("there are no lists"),
    };
    // A member that refuses a request without a key refuses none that another member takes.
    let takes = |(_, considered): &(String, PolicyEffect)| match considered {
        PolicyEffect::CountsNothing(_) => true,
        PolicyEffect::Counts { is_passed_over, .. } => !is_passed_over,
        _ => false,
    };
    let is_taken = drawn.is_group && explained.iter().any(takes);
    let refuses = |(_, considered): &(String, PolicyEffect)| match considered {
        PolicyEffect::HasNoKey(status) => *status,
        _ => None,
    };
    if let Some(status) = explained.iter().find_map(refuses)
        && !is_taken
    {
        prop_assert_eq!(response.status(), status);
        prop_assert!(charged.is_empty());
        return Ok(());
    }
    let limiter = layer.limiter();
    let mut counting = 0;
    for (name, considered) in &explained {
        let policy: usize = name[1..].parse().unwrap();
        let charge = charged.iter().find(|charge| charge.policy == policy);
        let PolicyEffect::Counts {
            key,
            is_shared,
            cost,
            limit,
            rule,
            is_shadow,
            is_passed_over: false,
        } = considered
        else {
            prop_assert!(charge.is_none(), "{name}: {considered:?}, {charge:?}");
            continue;
        };
        counting += 1;
        let Some(charge) = charge else {
            return Err(TestCaseError::fail(format!("{name}: {considered:?}")));
        };
        prop_assert_eq!(&charge.key, key);
        prop_assert_eq!(charge.key == key::Key::MISSING, *is_shared);
        prop_assert_eq!(charge.is_shadow, *is_shadow);
        prop_assert_eq!(&limiter.policies().rule_named(charge.rule), rule);
        let own = limiter.policies().algorithm_of(policy);
        prop_assert_eq!(
            limiter.policies().limit_of_charge(charge, own),
            Some(*limit)
        );
        let is_above_ceiling = policies[policy].most.is_some_and(|most| *cost > most);
        let expected = if is_above_ceiling { u32::MAX } else { *cost };
        prop_assert_eq!(charge.cost, expected);
    }
    prop_assert_eq!(counting, charged.len());
    Ok(())
}

proptest! {
    #[test]
    fn explain_agrees_with_what_the_enforcer_charges(
        policies in prop::collection::vec(drawn(), 1..4),
        (is_group, refuses_unresolved) in any::<(bool, bool)>(),
        headers in any::<[bool; 2]>(),
        customer in prop::sample::select(vec![None, Some("pro"), Some("other")]),
        (is_post, is_low) in any::<(bool, bool)>(),
    ) {
        let mut request = Request::get(if is_low { "/low" } else { "/" });
        if is_post {
            request = request.method("POST");
        }
        for (name, _) in ["x-a", "x-b"].iter().zip(headers).filter(|(_, is_there)| *is_there) {
            request = request.header(*name, "ann");
        }
        if let Some(customer) = customer {
            request = request.header("x-customer", customer);
        }
        let request = request.body(()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let drawn = DrawnLayer { is_group: is_group && policies.len() > 1, refuses_unresolved };
        // What does not go with a group is refused when the layer is built.
        let without = |it: Drawn| Drawn { is_soft: false, most: None, has_hours: false, ..it };
        let mut policies = policies;
        if drawn.is_group {
            policies = policies.into_iter().map(without).collect();
        }
        runtime.block_on(explain_agrees(drawn, &policies, request))?;
    }
}

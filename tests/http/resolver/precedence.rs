//! The table of the documentation, from the deny list to the policy's own limit, and the hours that change what was chosen.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::factor::Factor;
use tower_ratelimit::key::Head;
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans, Resolved};
use tower_ratelimit::{Decision, FixedWindow, Hours, Policy, RateLimitLayer};

use crate::resolver::scene::*;

/// Longer than a test takes, by the clock of the store.
const HOUR: Duration = Duration::from_secs(3_600);

/// The rules that speak of the request.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any combination of rules can be there"
)]
struct Rules {
    deny: bool,
    allow: bool,
    exempt: bool,
    block: bool,
    by_override: bool,
    resolver: bool,
    operation: bool,
    closure: bool,
    key: bool,
    plan: bool,
    hours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedResult {
    /// The request passes uncounted.
    Passes,
    Refused(StatusCode),
    Limited(u32),
}

impl Rules {
    /// Returns the answer of the first rule of the table that speaks.
    fn answer(self) -> ExpectedResult {
        if self.deny {
            return ExpectedResult::Refused(StatusCode::FORBIDDEN);
        }
        if self.allow || self.exempt {
            return ExpectedResult::Passes;
        }
        if self.block {
            return ExpectedResult::Refused(StatusCode::TOO_MANY_REQUESTS);
        }
        if self.by_override {
            return ExpectedResult::Limited(10);
        }
        let ranks = [
            (self.resolver, 20),
            (self.operation, 30),
            (self.closure, 40),
            (self.key, 50),
            (self.plan, 60),
        ];
        let first = ranks.into_iter().find(|(speaks, _)| *speaks);
        let chosen = first.map_or(70, |(_, limit)| limit);
        ExpectedResult::Limited(if self.hours { 2 * chosen } else { chosen })
    }

    fn layer(self, source: &ScriptedSource) -> RateLimitLayer {
        let of = FixedWindow::per_minute;
        let mut policy = Policy::new("minute", of(70));
        if self.operation {
            policy = policy.operations(Operations::new().limit("read", of(30)));
        }
        if self.key {
            policy = policy.key_limits(KeyLimits::new().key("ann", of(50)));
        }
        if self.hours {
            let hours = Hours::in_zone("UTC").unwrap();
            let always = hours.at("00:00-24:00", Factor::thousandths(2_000));
            policy = policy.hours(&always.unwrap()).unwrap();
        }
        let mut policy = policy.key(|head: &Head<'_>| head.header("x-customer").map(str::to_owned));
        if self.operation {
            policy = policy.operation(|_: &Head<'_>| "read");
        }
        if self.closure {
            policy = policy.limit_by(move |_| Some(of(40)));
        }
        let customer = |head: &Head<'_>| Some(head.header("x-customer")?.to_owned());
        let mut builder = RateLimitLayer::builder()
            .policy(policy)
            .resolver(source.resolver(), customer)
            .deny(move |_| self.deny)
            .allow(move |_| self.allow)
            .expose_decision();
        if self.exempt {
            builder = builder.exempt_paths(["/"]);
        }
        if self.plan {
            let plan = Plan::new("plan").limit("minute", of(60));
            builder = builder.plans(Plans::new([plan]), |_| None::<&str>);
        }
        builder.build().unwrap()
    }

    async fn ask(self) -> ExpectedResult {
        let source = ScriptedSource::new();
        if self.resolver {
            let plan = Plan::new("row").limit("minute", FixedWindow::per_minute(20));
            source.acts("ann", LookupScript::Answer(Resolved::Limits(plan)));
        }
        let layer = self.layer(&source);
        // Each operation of a key has a state of its own.
        let limiter = layer.limiter();
        let limiter = if self.operation {
            limiter.operation("read")
        } else {
            limiter.clone()
        };
        if self.block {
            limiter.block("ann", HOUR).await.unwrap();
        }
        if self.by_override {
            let limit = FixedWindow::per_minute(10);
            let given = limiter.override_limit("minute", "ann", limit, HOUR);
            given.unwrap().await.unwrap();
        }
        let request = Request::get("/").header("x-customer", "ann");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let inner = service_fn(async |request: Request<Empty<Bytes>>| {
            let decision = request.extensions().get::<Decision>();
            let limit = decision.and_then(|decision| Some(decision.binding()?.1.limit()));
            let mut response = Response::new(Empty::<Bytes>::new());
            response.extensions_mut().insert(limit);
            Ok::<_, Infallible>(response)
        });
        let response = layer.layer(inner).oneshot(request).await.unwrap();
        match (
            response.status(),
            response.extensions().get::<Option<u32>>(),
        ) {
            (StatusCode::OK, Some(Some(limit))) => ExpectedResult::Limited(*limit),
            (StatusCode::OK, _) => ExpectedResult::Passes,
            (status, _) => ExpectedResult::Refused(status),
        }
    }
}

proptest! {
    #[test]
    fn the_first_rule_that_speaks_decides_and_hours_change_what_was_chosen(flags in any::<[bool; 11]>()) {
        let [deny, allow, exempt, block, by_override, resolver, operation, closure, key, plan, hours] = flags;
        let rules = Rules {
            deny, allow, exempt, block, by_override, resolver, operation, closure, key, plan, hours,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let answer = runtime.unwrap().block_on(rules.ask());
        prop_assert_eq!(answer, rules.answer());
    }
}

/// Each rule decides where it is the first that speaks.
#[tokio::test(start_paused = true)]
async fn each_rule_of_the_table_decides_where_none_before_it_speaks() {
    for first in 0..=10 {
        let speaks = |place: usize| place >= first;
        let rules = Rules {
            deny: speaks(0),
            allow: speaks(1),
            exempt: speaks(2),
            block: speaks(3),
            by_override: speaks(4),
            resolver: speaks(5),
            operation: speaks(6),
            closure: speaks(7),
            key: speaks(8),
            plan: speaks(9),
            hours: speaks(10),
        };
        assert_eq!(rules.ask().await, rules.answer(), "from rule {first} on");
    }
}

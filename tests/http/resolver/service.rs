//! A `LimitLayer` for services of any kind.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::plan::{Plan, Resolved};
use tower_ratelimit::service::Refused;
use tower_ratelimit::{FixedWindow, LimitLayer, Limiter, Policy};

use crate::resolver::scene::*;

struct Mail {
    customer: &'static str,
    cost: u32,
}

fn mail(customer: &'static str) -> Mail {
    // More than any limit, so that the decision is told.
    let cost = 1_000_000;
    Mail { customer, cost }
}

type ServiceResult = Result<String, Infallible>;
type Layered = LimitLayer<Mail, String, Infallible>;

fn layer(limiter: Limiter) -> Layered {
    let refuse = |refused: Refused| {
        Ok(match refused {
            Refused::OverLimit(decision) => told(&decision),
            refused => format!("{refused}"),
        })
    };
    LimitLayer::new(limiter, |mail: &Mail| mail.customer, refuse).cost(|mail: &Mail| mail.cost)
}

async fn send(layer: &Layered, mail: Mail) -> ServiceResult {
    let inner = service_fn(async |_: Mail| Ok::<_, Infallible>("sent".to_owned()));
    layer.layer(inner).oneshot(mail).await
}

/// Asks a layer whose own resolver finds the limits.
pub(crate) async fn asks(
    limiter: Limiter,
    resolver: &tower_ratelimit::plan::Resolver<String>,
    customer: &'static str,
    times: usize,
) {
    let of = |mail: &Mail| Some(mail.customer.to_owned());
    let layer = layer(limiter).resolver(resolver.clone(), of);
    for _ in 0..times {
        assert_eq!(
            send(&layer, mail(customer)).await.unwrap(),
            "plan free, fresh"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_plan_of_its_key() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.delay(30 * MILLIS);
    let layer = layer(limiter(&source.resolver()).into());
    let start = Instant::now();
    assert_eq!(send(&layer, mail("ann")).await.unwrap(), "plan pro, fresh");
    assert_eq!(start.elapsed(), 30 * MILLIS);
    assert_eq!(send(&layer, mail("ann")).await.unwrap(), "plan pro, fresh");
    assert_eq!(start.elapsed(), 30 * MILLIS);
    let small = Mail {
        customer: "bob",
        cost: 1,
    };
    assert_eq!(send(&layer, small).await.unwrap(), "sent");
}

#[tokio::test(start_paused = true)]
async fn a_layer_has_a_resolver_of_its_own_for_what_its_requests_show() {
    let source = ScriptedSource::new();
    source.set("of ann", "pro");
    let minute = Policy::new("minute", FixedWindow::per_minute(10));
    let with_plans = Limiter::builder()
        .policy(minute.clone())
        .plans_by_name(plans())
        .build();
    let customer = |mail: &Mail| (mail.customer != "none").then(|| format!("of {}", mail.customer));
    let layer = layer(with_plans.unwrap()).resolver(source.resolver(), customer);
    assert_eq!(send(&layer, mail("ann")).await.unwrap(), "plan pro, fresh");
    // It is not looked up.
    assert_eq!(send(&layer, mail("none")).await.unwrap(), "plan free, ");

    let own = Plan::new("own").limit("minute", FixedWindow::per_minute(7));
    source.acts("of bob", LookupScript::Answer(Resolved::Limits(own)));
    let taking = Limiter::builder()
        .policy(minute)
        .takes_resolved_limits()
        .build();
    let layer =
        crate::resolver::service::layer(taking.unwrap()).resolver(source.resolver(), customer);
    assert_eq!(
        send(&layer, mail("bob")).await.unwrap(),
        "resolver own, fresh"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_plan_is_not_known_is_refused_by_choice() {
    let source = ScriptedSource::new();
    source.acts("ann", LookupScript::Fail);
    let resolver = source.builder().refuse_unresolved().build().unwrap();
    let refuse = |refused: Refused| match refused {
        Refused::Store(error) => Err(error.kind()),
        refused => panic!("{refused}"),
    };
    let layer = LimitLayer::new(limiter(&resolver), |key: &&'static str| *key, refuse);
    let service = layer.layer(service_fn(async |_: &str| Ok(())));
    // After a lookup, and at once.
    for _ in 0..2 {
        let answer = service.clone().oneshot("ann").await;
        assert_eq!(answer, Err(StoreErrorKind::Unresolved));
    }
}

/// A service may be ready once: for the request that it was asked for.
#[tokio::test(start_paused = true)]
async fn the_instance_that_was_ready_is_called_after_the_wait() {
    struct Once {
        is_ready: bool,
        calls: Arc<AtomicUsize>,
    }
    impl Clone for Once {
        fn clone(&self) -> Self {
            Self {
                is_ready: false,
                calls: Arc::clone(&self.calls),
            }
        }
    }
    impl Service<Mail> for Once {
        type Response = String;
        type Error = Infallible;
        type Future = std::future::Ready<ServiceResult>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            self.is_ready = true;
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Mail) -> Self::Future {
            assert!(std::mem::take(&mut self.is_ready), "it was not ready");
            self.calls.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok("sent".to_owned()))
        }
    }
    let source = ScriptedSource::new();
    source.delay(10 * MILLIS);
    let inner = Once {
        is_ready: false,
        calls: Arc::default(),
    };
    let mut service = layer(limiter(&source.resolver()).into()).layer(inner.clone());
    let small = Mail {
        customer: "ann",
        cost: 1,
    };
    let answer = service.ready().await.unwrap().call(small);
    // A clone that is not ready stays.
    assert!(!service.get_ref().is_ready);
    assert_eq!(answer.await.unwrap(), "sent");
    assert_eq!(inner.calls.load(Ordering::Relaxed), 1);
}

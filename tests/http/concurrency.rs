//! Requests at once: a slot from the decision to the end of the body, whatever the end is.

use std::convert::Infallible;
use std::future::{Pending, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::key;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::OnAbandoned;
use tower_ratelimit::{
    Concurrency, FixedWindow, LimitLayer, Limiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, TokenBucket,
};

use crate::exchange::{Behind, Hello, ask, get, global, limit, now, poll};

/// A body of this many frames, which the test releases.
struct Frames {
    left: usize,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data")))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn frames(left: usize) -> Response<Frames> {
    Response::new(Frames { left })
}

fn poll_body<B: Body + Unpin>(body: &mut B) -> Option<Frame<B::Data>>
where
    B::Error: std::fmt::Debug,
{
    let mut cx = Context::from_waker(Waker::noop());
    match Pin::new(body).poll_frame(&mut cx) {
        Poll::Ready(frame) => frame.map(Result::unwrap),
        Poll::Pending => panic!("the body waits"),
    }
}

/// Returns a layer that lets this many requests go on at once.
fn at_once(most: u32) -> RateLimitLayer {
    limit([global("at once", Concurrency::of(most))]).1
}

fn streaming(
    layer: &RateLimitLayer,
) -> impl Service<
    Request<()>,
    Response = Response<tower_ratelimit::middleware::ResponseBody<Frames>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ use<> {
    layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(frames(2))
    }))
}

/// Returns the number of free slots, by the headers of the next request.
fn free(layer: &RateLimitLayer) -> u32 {
    let hello = Hello::behind(layer);
    let answer = ask(&hello, get());
    if answer.status == 429 {
        return 0;
    }
    let limits = answer.field("ratelimit").unwrap();
    let remaining = limits.rsplit_once("r=").unwrap().1;
    // The answer has ended by now.
    remaining.parse::<u32>().unwrap() + 1
}

#[test]
fn a_slot_is_free_when_the_body_has_ended_or_is_dropped() {
    let of_one_line = RateLimitLayer::new(key::global(), Concurrency::of(2));
    for layer in [at_once(2), of_one_line] {
        let service = streaming(&layer);
        let mut first = now(service.clone().oneshot(get())).unwrap().into_body();
        let second = now(service.clone().oneshot(get())).unwrap();
        assert_eq!(free(&layer), 0);
        // Dropped, read or not: the client has gone away, or the stream was reset.
        drop(second);
        assert_eq!(free(&layer), 1);
        assert!(poll_body(&mut first).is_some() && poll_body(&mut first).is_some());
        assert_eq!(free(&layer), 1);
        assert!(poll_body(&mut first).is_none());
        // The body is still there.
        assert_eq!(free(&layer), 2);
        drop(first);
        assert_eq!(free(&layer), 2);
    }
}

#[test]
fn a_slot_is_free_when_the_call_is_dropped_fails_or_panics() {
    let layer = at_once(1);
    let never = layer.layer(service_fn(
        |_: Request<()>| -> Pending<Result<Response<Full<Bytes>>, Infallible>> { pending() },
    ));
    {
        let mut call = pin!(never.clone().oneshot(get()));
        assert!(poll(call.as_mut()).is_pending());
        assert_eq!(free(&layer), 0);
    }
    assert_eq!(free(&layer), 1);
    let failing = layer.layer(service_fn(async |_: Request<()>| {
        Err::<Response<Full<Bytes>>, _>("broken")
    }));
    assert!(now(failing.oneshot(get())).is_err());
    assert_eq!(free(&layer), 1);
    let panicking = layer.layer(service_fn(
        async |_: Request<()>| -> Result<Response<Full<Bytes>>, Infallible> { panic!("a handler") },
    ));
    let call = catch_unwind(AssertUnwindSafe(|| now(panicking.oneshot(get()))));
    assert!(call.is_err());
    assert_eq!(free(&layer), 1);
}

#[test]
fn a_request_gives_back_its_slots_and_units_when_the_hook_panics() {
    let tokens = global("tokens", FixedWindow::per_minute(100))
        .cost(|_| 40)
        .on_abandoned(OnAbandoned::Nothing);
    let layer = RateLimitLayer::builder()
        .policy(global("at once", Concurrency::of(1)))
        .policy(tokens)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .on_decision(|_, _, _| panic!("a hook"))
        .build()
        .unwrap();
    let service = Hello::behind(&layer);
    let call = catch_unwind(AssertUnwindSafe(|| now(service.oneshot(get()))));
    assert!(call.is_err());
    let told = now(layer.limiter().peek(key::global().key_of(()).unwrap(), 0)).unwrap();
    let used: Vec<_> = told.policies().map(|(_, told)| told.used()).collect();
    assert_eq!(used, [0, 0]);
}

#[test]
fn a_refusal_promises_no_wait_and_names_the_unit() {
    let layer = at_once(20);
    let service = streaming(&layer);
    let held: Vec<_> = (0..20)
        .map(|_| now(service.clone().oneshot(get())).unwrap())
        .collect();
    let first = &held[0];
    let field = |name: &str| first.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!(
        field("ratelimit-policy"),
        r#""at once";q=20;qu="concurrent-requests""#
    );
    assert_eq!(field("ratelimit"), r#""at once";r=19"#);
    let refused = ask(&Hello::behind(&layer), get());
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("retry-after"), None);
    assert_eq!(
        refused.field("ratelimit-policy"),
        Some(r#""at once";q=20;qu="concurrent-requests""#)
    );
    assert_eq!(refused.field("ratelimit"), Some(r#""at once";r=0"#));
    let text = refused.text();
    assert!(
        text.contains("Too many requests at once. Retry when another one has ended."),
        "{text}"
    );
    drop(held);
    assert_eq!(free(&layer), 20);
}

#[test]
fn a_request_has_a_slot_and_its_rate_or_neither() {
    let policies = [
        global("rate", TokenBucket::per_minute(1).burst(3)),
        global("at once", Concurrency::of(2)),
    ];
    let (_, layer) = limit(policies);
    let service = streaming(&layer);
    let first = now(service.clone().oneshot(get())).unwrap();
    let second = now(service.clone().oneshot(get())).unwrap();
    // No slot: the rate is not charged.
    for _ in 0..5 {
        let refused = ask(&Hello::behind(&layer), get());
        assert_eq!(refused.status, 429);
        assert_eq!(refused.field("ratelimit"), Some(r#""at once";r=0"#));
    }
    drop(second);
    let third = now(service.clone().oneshot(get())).unwrap();
    let field = third.headers()["ratelimit"].to_str().unwrap();
    assert!(field.starts_with(r#""rate";r=0;"#), "{field}");
    drop((first, third));
    // No rate: no slot is taken.
    for _ in 0..5 {
        let refused = ask(&Hello::behind(&layer), get());
        assert_eq!(refused.field("retry-after"), Some("60"));
    }
}

#[test]
fn keys_plans_and_costs_have_slots_of_their_own() {
    let plans = Plans::new([
        Plan::new("free").limit("at once", Concurrency::of(1)),
        Plan::new("pro").limit("at once", Concurrency::of(3)),
    ]);
    let policy = Policy::new("at once", Concurrency::of(1))
        .key(key::header("x-user"))
        .cost(|head| {
            head.header("x-cost")
                .map_or(1, |cost| cost.parse().unwrap())
        });
    let layer = RateLimitLayer::builder()
        .policy(policy)
        .plans(plans, |head| {
            Some(head.header("x-plan").unwrap_or("free").to_owned())
        })
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let service = streaming(&layer);
    let send = |user: &str, plan: &str, cost: u32| {
        let request = Request::get("/")
            .header("x-user", user)
            .header("x-plan", plan);
        let request = request.header("x-cost", cost).body(()).unwrap();
        now(service.clone().oneshot(request)).unwrap()
    };
    let ann = send("ann", "free", 1);
    assert_eq!(ann.status(), 200);
    assert_eq!(send("ann", "free", 1).status(), 429);
    assert_eq!(send("bob", "free", 1).status(), 200);
    let more = send("ann", "pro", 2);
    assert_eq!(more.status(), 200);
    assert_eq!(
        more.headers()["ratelimit-policy"],
        r#""at once";q=3;qu="concurrent-requests""#
    );
    assert_eq!(send("ann", "pro", 1).status(), 429);
    drop(ann);
    assert_eq!(send("ann", "pro", 1).status(), 200);
    drop(more);
    assert_eq!(send("ann", "pro", 3).status(), 200);
}

#[test]
fn a_service_of_any_type_holds_a_slot_to_its_answer() {
    let limiter = Limiter::builder()
        .policy(Policy::new("at once", Concurrency::of(1)))
        .build_local()
        .unwrap();
    let busy = Arc::new(AtomicUsize::new(0));
    let layer = LimitLayer::new(
        limiter.clone(),
        |_: &u32| "key",
        |_| Err::<u32, _>("refused"),
    );
    let seen = Arc::clone(&busy);
    let check = limiter.clone();
    let service = layer.layer(service_fn(move |number: u32| {
        // During the call, the slot is taken.
        let told = check.peek("key", 1).now();
        seen.fetch_add(usize::from(!told.is_allowed()), Ordering::Relaxed);
        async move { Ok::<_, &str>(number) }
    }));
    for number in 0..3 {
        assert_eq!(now(service.clone().oneshot(number)), Ok(number));
    }
    assert_eq!(busy.load(Ordering::Relaxed), 3);
    let reservation = limiter.reserve("key", 1).now();
    assert_eq!(now(service.clone().oneshot(4)), Err("refused"));
    reservation.settle(7);
    assert_eq!(now(service.clone().oneshot(4)), Ok(4));
}

#[test]
fn checking_takes_no_slot_and_changing_usage_frees_none() {
    let limiter = Limiter::builder()
        .policy(Policy::new("at once", Concurrency::of(2)))
        .policy(Policy::new("rate", FixedWindow::per_hour(100)))
        .build_local()
        .unwrap();
    let held = limiter.reserve("ann", 2).now();
    for _ in 0..3 {
        assert!(!limiter.check("ann", 1).now().is_allowed());
        assert!(limiter.check("bob", 2).now().is_allowed());
    }
    limiter.reset("ann").now();
    limiter.refund("ann", 2).now();
    limiter.settle("ann", 1).now();
    assert!(!limiter.reserve("ann", 1).now().is_allowed());
    limiter
        .block("bob", std::time::Duration::from_secs(60))
        .now();
    assert!(!limiter.reserve("bob", 1).now().is_allowed());
    let text = limiter.inspect("ann").now().to_string();
    assert!(
        text.contains("at once: 2 of 2 used, none remains. One more when a request ends.\n"),
        "{text}"
    );
    let told = limiter.inspect("ann").now();
    let resets = told
        .policies()
        .map(|(_, slots)| told.reset_at(slots).is_some());
    assert_eq!(resets.collect::<Vec<_>>(), [false, true]);
    drop(held);
    assert!(limiter.reserve("ann", 2).now().is_allowed());
}

#[test]
fn an_option_that_concurrency_cannot_have_is_refused_with_the_remedy() {
    use tower_ratelimit::factor::FactorCell;
    use tower_ratelimit::policy::Penalty;

    let policy = || Policy::new("at once", Concurrency::of(2));
    let minute = std::time::Duration::from_secs(60);
    let refused = |policy: Policy| {
        Limiter::builder()
            .policy(policy)
            .build_local()
            .unwrap_err()
            .to_string()
    };
    for (policy, field) in [
        (policy().factor(&FactorCell::new()), "`factor`"),
        (policy().penalty(Penalty::after(5, minute)), "`penalty`"),
    ] {
        let error = refused(policy);
        assert!(error.starts_with(field), "{error}");
    }
    let limiter = Limiter::builder().policy(policy()).build_local().unwrap();
    let error = limiter.override_limit("at once", "ann", Concurrency::of(9), minute);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("name a policy on a rate")
    );
}

#[test]
fn a_text_says_it() {
    let algorithm: tower_ratelimit::Algorithm = "concurrency 20".parse().unwrap();
    assert_eq!(algorithm, Concurrency::of(20).into());
    assert_eq!(algorithm.to_string(), "concurrency 20");
    assert_eq!((algorithm.period(), algorithm.longest_wait()), (None, None));
    assert!(
        "concurrency 20/minute"
            .parse::<tower_ratelimit::Algorithm>()
            .is_err()
    );
}

/// Returns a layer that lets requests wait for a slot, and the requests that it lets go on.
fn patient(longest: Duration) -> RateLimitLayer {
    let policy = global("at once", Concurrency::of(1)).wait_up_to(longest);
    RateLimitLayer::builder().policy(policy).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_slot_in_the_order_in_which_they_came() {
    let layer = patient(Duration::from_secs(60));
    let service = streaming(&layer);
    let first = service.clone().oneshot(get()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = JoinSet::new();
    for number in 0..5 {
        let (service, order) = (service.clone(), Arc::clone(&order));
        waiting.spawn(async move {
            let response = service.oneshot(get()).await.unwrap();
            order.lock().unwrap().push(number);
            sleep(Duration::from_millis(100)).await;
            response.status()
        });
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_secs(1)).await;
    assert!(order.lock().unwrap().is_empty());
    drop(first);
    for status in waiting.join_all().await {
        assert_eq!(status, 200);
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(free(&layer), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_too_long_for_a_slot_is_refused_and_holds_none() {
    let layer = patient(Duration::from_secs(2));
    let service = streaming(&layer);
    let first = service.clone().oneshot(get()).await.unwrap();
    let asked = Instant::now();
    let refused = service.clone().oneshot(get()).await.unwrap();
    assert_eq!(refused.status(), 429);
    let waited = asked.elapsed();
    assert!(
        waited >= Duration::from_millis(1_980) && waited <= Duration::from_millis(2_100),
        "{waited:?}"
    );
    drop(first);
    assert_eq!(free(&layer), 1);
}

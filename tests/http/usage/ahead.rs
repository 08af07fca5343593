//! No body is read of a request that the limits refuse whatever it says.

use std::convert::Infallible;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::{Head, IntoKey, JsonFields, Key};
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit::plan::{Operations, Plan, Plans};
use tower_ratelimit::policy::{Mode, OnMissingKey, Penalty, Rule};
use tower_ratelimit::store::{Backend, Charge, Charged, MemoryBackend, Reply, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, ManualClock, MemoryStore, Policy, Quota, RateLimitLayer,
    StoreError, key, policy::Http, usage,
};

use crate::arrivals::store;
use crate::exchange::{Received, answer, now, poll};
use crate::slow_store::{BrokenStore, SlowStore, When};

/// A body that counts the bytes that are read of it.
struct Counted {
    data: Option<Bytes>,
    read: Arc<AtomicUsize>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let data = this.data.take();
        this.read
            .fetch_add(data.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }
}

const BODY: &str = r#"{"model":"small","rows":3}"#;

/// A service under limits that look at requests before their bodies are read.
struct Service {
    limits: RateLimitLayer,
    read: Arc<AtomicUsize>,
}

impl Service {
    fn new(policies: impl IntoIterator<Item = Policy<Http>>) -> Self {
        Self::over(MemoryStore::new().clock(ManualClock::new()), policies)
    }

    fn over(store: impl Store, policies: impl IntoIterator<Item = Policy<Http>>) -> Self {
        let builder = RateLimitLayer::builder().policies(policies).store(store);
        Self::of(builder.build().unwrap())
    }

    fn of(limits: RateLimitLayer) -> Self {
        Self {
            limits,
            read: Arc::default(),
        }
    }

    fn request(&self) -> Request<Counted> {
        let body = Counted {
            data: Some(Bytes::from(BODY)),
            read: Arc::clone(&self.read),
        };
        let request = Request::post("/").header(CONTENT_TYPE, "application/json");
        request.header("x-user", "ann").body(body).unwrap()
    }

    fn send(&self, request: Request<Counted>) -> impl Future<Output = Received> {
        let handler = service_fn(async |_: Request<ReadBody<Counted>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let read = ReadJsonLayer::new().text("model").number("rows");
        let service = read.unless_refused_by(&self.limits);
        let service = service.layer(self.limits.layer(handler));
        async move { answer(service.oneshot(request).await.unwrap()) }
    }

    /// Returns the status of a request, and how many bytes of its body were read.
    fn ask(&self) -> (u16, usize) {
        let status = now(self.send(self.request())).status.as_u16();
        (status, self.read.swap(0, Ordering::Relaxed))
    }

    /// Returns how many requests of each policy were allowed and refused.
    fn counts(&self) -> Vec<(u64, u64)> {
        let policies = self.limits.limiter().snapshot().policies;
        let counts = policies.iter().map(|of| (of.allowed, of.refused));
        counts.collect()
    }
}

const READ: (u16, usize) = (200, BODY.len());
const UNREAD: (u16, usize) = (429, 0);

fn users(most: u32) -> Policy<Http> {
    Policy::new("users", FixedWindow::per_hour(most)).key(key::header("x-user"))
}

fn models(most: u32) -> Policy<Http> {
    Policy::new("models", FixedWindow::per_hour(most)).key(key::json("model"))
}

#[test]
fn a_body_is_not_read_if_a_policy_denies_that_does_not_ask_for_it() {
    let service = Service::new([models(100), users(2)]);
    assert_eq!([service.ask(), service.ask()], [READ, READ]);
    let refused = now(service.send(service.request()));
    assert_eq!(service.read.load(Ordering::Relaxed), 0);
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.field("ratelimit-policy"),
        Some("\"users\";q=2;w=3600")
    );
    assert_eq!(refused.field("ratelimit"), Some("\"users\";r=0;t=3600"));
    assert_eq!(refused.field("retry-after"), Some("3600"));
    // It is counted once, by the policy that has decided.
    assert_eq!(service.counts(), [(2, 0), (2, 1)]);
    let requests = service.limits.limiter().snapshot().requests;
    assert_eq!((requests.allowed, requests.refused), (2, 1));
}

#[test]
fn a_request_is_charged_by_all_policies_or_by_none() {
    let service = Service::new([models(1), users(3)]);
    assert_eq!(service.ask(), READ);
    // The policy by the body denies it, and so the other one charges nothing.
    for _ in 0..5 {
        assert_eq!(service.ask(), (429, BODY.len()));
    }
    assert_eq!(service.counts(), [(1, 5), (1, 0)]);
    let user = service.limits.limiter();
    let key = key::header("x-user").key_of("ann").unwrap();
    let peeked = now(user.named([("users", key, 0)]).unwrap().peek()).unwrap();
    assert_eq!(peeked.binding().unwrap().1.used(), 1);
}

#[test]
fn a_policy_that_asks_for_the_body_anywhere_is_asked_when_it_has_been_read() {
    let rows = |head: &Head<'_>| head.extension::<JsonFields>()?.number("rows");
    let none = || users(0);
    let operations = Operations::new().limit("small", FixedWindow::per_hour(0));
    let of_policy = [
        models(0),
        none().when(move |head| rows(head).is_some()),
        users(2).cost(move |head| rows(head).map_or(1, |_| 3)),
        users(2)
            .estimate_with(usage::estimate::json("rows"))
            .settle(usage::openai()),
        users(2)
            .estimate_with(usage::estimate::openai())
            .settle(usage::openai()),
        users(9)
            .operation(key::json("model"))
            .operations(operations),
        users(9).limit_by(move |head| rows(head).map(|_| FixedWindow::per_hour(0))),
        none().when(|head| {
            let fields = head.extension::<JsonFields>();
            fields.is_some_and(|fields| fields.unread().is_none())
        }),
    ];
    for policy in of_policy {
        let service = Service::new([policy]);
        assert_eq!(service.ask(), (429, BODY.len()));
    }
    // One that could, and does not ask for it of this request.
    let service =
        Service::new([none().when(move |head| head.method() == "POST" || rows(head).is_some())]);
    assert_eq!(service.ask(), UNREAD);
}

#[test]
fn a_plan_by_the_body_is_one_of_all_policies() {
    let small = Plan::new("small").limit("users", FixedWindow::per_hour(1));
    let by_model = |head: &Head<'_>| {
        let fields = head.extension::<JsonFields>()?;
        fields.text("model").map(str::to_owned)
    };
    let layer = RateLimitLayer::builder()
        .policy(users(0))
        .plans(Plans::new([small]), by_model)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build();
    let service = Service::of(layer.unwrap());
    assert_eq!([service.ask(), service.ask()], [READ, (429, BODY.len())]);
}

#[test]
fn a_request_without_a_key_and_one_of_the_deny_list_are_not_read() {
    let strict = users(1).on_missing_key(OnMissingKey::Refuse(http::StatusCode::UNAUTHORIZED));
    let builder = RateLimitLayer::builder().policies([models(9), strict]);
    let layer = builder.deny(|head| head.path() == "/denied");
    let service = Service::of(layer.build().unwrap());
    for (path, user, status) in [("/", false, 401), ("/denied", true, 403)] {
        let mut request = service.request();
        *request.uri_mut() = path.parse().unwrap();
        if !user {
            request.headers_mut().remove("x-user");
        }
        assert_eq!(now(service.send(request)).status, status);
        assert_eq!(service.read.load(Ordering::Relaxed), 0, "{path}");
    }
    let requests = service.limits.limiter().snapshot().requests;
    assert_eq!((requests.without_key, requests.forbidden), (1, 1));
    assert_eq!(service.ask(), READ);
}

#[test]
fn what_refuses_nothing_does_not_stand_in_the_way_of_the_body() {
    let soft = Service::new([models(9), users(0).soft()]);
    assert_eq!(soft.ask(), READ);
    let unlike = Service::new([models(9), users(0)]);
    unlike.limits.modes().set("users", Mode::Shadow).unwrap();
    assert_eq!(unlike.ask(), READ);
    unlike.limits.modes().set("users", Mode::Off).unwrap();
    assert_eq!(unlike.ask(), READ);
    unlike.limits.modes().unset("users").unwrap();
    assert_eq!(unlike.ask(), UNREAD);
}

#[test]
fn refusals_before_the_body_count_towards_a_penalty() {
    let penalty = Penalty::after(3, Duration::from_secs(60)).block(Duration::from_secs(7200));
    let service = Service::new([models(9), users(1).penalty(penalty)]);
    let asked = [(); 4].map(|()| service.ask());
    assert_eq!(asked, [READ, UNREAD, UNREAD, UNREAD]);
    let blocked = now(service.send(service.request()));
    assert_eq!(blocked.field("retry-after"), Some("7200"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_wait_is_read() {
    let patient = || {
        let users = Policy::new("users", FixedWindow::per_second(1));
        let users = users.wait_up_to(Duration::from_secs(2));
        users.key(key::header("x-user"))
    };
    let queue = Policy::new("users", LeakyQueue::per_second(1).places(0)).key(key::global());
    for (policy, then) in [(patient(), 200), (queue, 429)] {
        let service = Service::over(store(), [models(9), policy]);
        for status in [200, then] {
            let answer = service.send(service.request()).await;
            assert_eq!(answer.status, status);
            let read = service.read.swap(0, Ordering::Relaxed);
            assert_eq!(read, BODY.len());
        }
    }
    // Looking takes no place in the line: of two requests that wait, the first has the place.
    let users = patient().wait_places(1);
    let service = Service::over(store(), [models(9), users]);
    let ask = || service.send(service.request());
    let (first, second, third) = tokio::join!(ask(), ask(), ask());
    assert_eq!([first.status, second.status], [200, 200]);
    assert_eq!(third.status, 429);
}

#[test]
fn a_store_that_answers_later_is_asked_before_the_body_too() {
    let store = SlowStore::new();
    let service = Service::over(store.clone(), [models(9), users(1)]);
    for (answers, status, read) in [(2, 200, BODY.len()), (2, 429, 0)] {
        let mut sent = pin!(service.send(service.request()));
        for _ in 0..answers {
            assert!(poll(sent.as_mut()).is_pending());
            assert_eq!(service.read.load(Ordering::Relaxed), 0);
            store.release(1);
            if status == 200 {
                break;
            }
        }
        if status == 200 {
            assert!(poll(sent.as_mut()).is_pending());
            assert_eq!(service.read.load(Ordering::Relaxed), read);
            store.release(1);
        }
        let Poll::Ready(answer) = poll(sent.as_mut()) else {
            panic!("no answer");
        };
        assert_eq!(answer.status, status);
        assert_eq!(service.read.swap(0, Ordering::Relaxed), read);
    }
    assert_eq!(service.counts(), [(1, 0), (1, 1)]);
}

#[test]
fn without_an_answer_of_the_store_the_body_is_read() {
    for when in [When::Now, When::Later] {
        let kind = tower_ratelimit::error::StoreErrorKind::Unavailable;
        let service = Service::over(BrokenStore { when, kind }, [models(9), users(1)]);
        assert_eq!(service.ask(), (503, BODY.len()));
    }
}

/// Denies what it is asked about, and then allows it: another request has given units back in between.
struct Changing(MemoryBackend);

#[derive(Clone)]
struct ChangingStore(MemoryStore);

impl Sealed for ChangingStore {}

impl Store for ChangingStore {
    type Backend = Changing;

    fn open(&self, policies: &[Rule]) -> Result<Changing, ConfigError> {
        self.0.open(policies).map(Changing)
    }
}

impl Sealed for Changing {}

impl Backend for Changing {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        self.0.charge(charges, wanted, outcomes)
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        let dear = charges.iter().map(|charge| Charge {
            cost: u32::MAX,
            ..*charge
        });
        self.0.peek(&dear.collect::<Vec<_>>())
    }

    fn amend(
        &self,
        charges: &[Charge],
        amendment: tower_ratelimit::store::Amendment,
    ) -> Reply<Result<bool, StoreError>> {
        self.0.amend(charges, amendment)
    }
}

impl fmt::Debug for Changing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changing")
    }
}

#[test]
fn units_that_come_back_meanwhile_are_charged_once() {
    let memory = MemoryStore::new().clock(ManualClock::new());
    let service = Service::over(ChangingStore(memory), [models(9), users(3)]);
    for used in 1..=3 {
        let answer = now(service.send(service.request()));
        assert_eq!(answer.status, 200);
        let left = format!("\"users\";r={};t=3600", 3 - used);
        assert!(answer.field("ratelimit").unwrap().contains(&left));
    }
    assert_eq!(service.read.swap(0, Ordering::Relaxed), 3 * BODY.len());
    assert_eq!(service.ask(), UNREAD);
}

/// The guarantee of the request is that of a key in its body.
#[test]
fn a_level_waits_for_the_body_if_it_guarantees_something_to_a_key_in_it() {
    let spend = Policy::tree("spend")
        .level("user", key::header("x-user"), FixedWindow::per_hour(10))
        .level("model", key::json("model"), FixedWindow::per_hour(8))
        .with(|model| model.guaranteed(Quota::per_hour(4)))
        .build();
    let service = Service::new(spend.unwrap());
    assert_eq!(service.ask(), READ);
    let limiter = service.limits.limiter();
    let large = Key::branch("ann", &["large".into_key()]);
    let borrowing = [("spend.user", large.root(), 6), ("spend.model", large, 6)];
    assert!(
        now(limiter.named(borrowing).unwrap().check())
            .unwrap()
            .is_allowed()
    );
    assert_eq!([(); 3].map(|()| service.ask()), [READ; 3]);
    assert_eq!(service.ask(), (429, BODY.len()));
}

//! The places of the layer in an application, and that it counts each request once.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::routing::{any_service, get, post};
use axum::{Json, Router};
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::{ResponseBody, ResponseFuture};
use tower_ratelimit::{RateLimit, RateLimitLayer, TokenBucket};

use crate::exchange::{ask, now};

/// Two requests at once for all clients, and hours until the next. The type is written out.
fn limit() -> RateLimitLayer {
    RateLimitLayer::new(|_: &Head<'_>| "global", TokenBucket::per_day(2))
}

fn wrap<S>(inner: S) -> RateLimit<S> {
    limit().layer(inner)
}

async fn hello() -> &'static str {
    "hello"
}

fn to(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// Sends requests for these paths in turn. Returns their statuses, and the remaining units in each response.
fn statuses<S, R, const N: usize>(service: &S, paths: [&str; N]) -> [(u16, Option<u32>); N]
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: http_body::Body<Error: std::fmt::Debug>,
{
    paths.map(|path| {
        let answer = ask(service, to(path));
        let remaining = answer.field("ratelimit").map(|limit| {
            let (_, rest) = limit.split_once(r#""default";r="#).unwrap();
            rest.split(';').next().unwrap().parse().unwrap()
        });
        (answer.status.as_u16(), remaining)
    })
}

const TWO_PASS: [(u16, Option<u32>); 3] = [(200, Some(1)), (200, Some(0)), (429, Some(0))];

#[test]
fn under_router_layer_every_path_counts_also_those_that_do_not_exist() {
    let app = Router::new()
        .route("/", get(hello))
        .route("/other", get(hello))
        .layer(limit());
    assert_eq!(statuses(&app, ["/", "/other", "/"]), TWO_PASS);

    let app = Router::new().route("/", get(hello)).layer(limit());
    let expected = [(404, Some(1)), (200, Some(0)), (429, Some(0))];
    assert_eq!(statuses(&app, ["/nowhere", "/", "/nowhere"]), expected);
}

#[test]
fn under_route_layer_only_paths_that_exist_count() {
    let app = Router::new().route("/", get(hello)).route_layer(limit());
    let expected = [
        (404, None),
        (200, Some(1)),
        (200, Some(0)),
        (429, Some(0)),
        (404, None),
    ];
    let paths = ["/nowhere", "/", "/", "/", "/nowhere"];
    assert_eq!(statuses(&app, paths), expected);
}

#[test]
fn under_a_method_routers_layer_only_that_path_counts() {
    let app = Router::new()
        .route("/limited", get(hello).layer(limit()))
        .route("/free", get(hello));
    assert_eq!(statuses(&app, ["/limited"; 3]), TWO_PASS);
    assert_eq!(statuses(&app, ["/free"; 3]), [(200, None); 3]);
}

#[test]
fn a_nested_router_has_its_own_limit_and_the_path_is_the_nested_one() {
    let key = |head: &Head<'_>| head.path().to_owned();
    let limit = RateLimitLayer::new(key, TokenBucket::per_day(2));
    let api = Router::new()
        .route("/a", get(hello))
        .route("/b", get(hello))
        .layer(limit);
    let app = Router::new().route("/", get(hello)).nest("/api", api);
    assert_eq!(statuses(&app, ["/api/a"; 3]), TWO_PASS);
    assert_eq!(statuses(&app, ["/api/b"; 3]), TWO_PASS);
    assert_eq!(statuses(&app, ["/"; 3]), [(200, None); 3]);
}

#[test]
fn in_a_service_builder_no_error_has_to_be_handled() {
    let app = Router::new()
        .route("/", get(hello))
        .layer(ServiceBuilder::new().layer(limit()));
    assert_eq!(statuses(&app, ["/"; 3]), TWO_PASS);

    let service = ServiceBuilder::new()
        .layer(limit())
        .service(Router::new().route("/", get(hello)));
    assert_eq!(statuses(&service, ["/"; 3]), TWO_PASS);
}

#[tokio::test]
async fn inside_layers_that_answer_with_an_empty_body_of_their_own() {
    let app = Router::new().route("/", get(hello)).layer(
        ServiceBuilder::new()
            .layer(CorsLayer::permissive())
            .layer(TimeoutLayer::with_status_code(
                StatusCode::GATEWAY_TIMEOUT,
                Duration::from_secs(60),
            ))
            .layer(limit()),
    );
    let mut told = Vec::new();
    for _ in 0..3 {
        let answer = app.clone().oneshot(Request::new(Body::empty())).await;
        let answer = answer.unwrap();
        // A browser needs these headers to show the refusal to the page.
        let cors = answer.headers().contains_key("access-control-allow-origin");
        told.push((answer.status().as_u16(), cors));
    }
    assert_eq!(told, [(200, true), (200, true), (429, true)]);
}

#[test]
fn a_thousand_requests_at_once_pass_exactly_up_to_the_limit() {
    const LIMIT: u32 = 300;
    let layer = RateLimitLayer::new(|_: &Head<'_>| "global", TokenBucket::per_day(LIMIT));
    let app = Router::new().route("/", get(hello)).layer(layer);
    let passed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| statuses(&app, ["/"; 125]).into_iter()))
            .collect();
        let answers = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        answers.filter(|(status, _)| *status == 200).count()
    });
    assert_eq!(passed, LIMIT as usize);
}

#[test]
fn around_a_whole_router_from_outside() {
    let service: RateLimit<Router> = wrap(Router::new().route("/", get(hello)));
    assert_eq!(statuses(&service, ["/"; 3]), TWO_PASS);
    assert_eq!(statuses(&service.into_inner(), ["/"]), [(200, None)]);
}

#[test]
fn around_a_service_that_is_routed_to() {
    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let app = Router::new()
        .route("/", any_service(wrap(service)))
        .fallback_service(wrap(service));
    assert_eq!(statuses(&app, ["/"; 3]), TWO_PASS);
    assert_eq!(statuses(&app, ["/nowhere"; 3]), TWO_PASS);
}

#[test]
fn on_a_router_whose_state_is_still_to_come() {
    let with_state: Router<&'static str> = Router::new()
        .route(
            "/",
            get(|State(greeting): State<&'static str>| async move { greeting }),
        )
        .layer(limit());
    let app = with_state.with_state("hello");
    assert_eq!(statuses(&app, ["/"; 3]), TWO_PASS);
}

#[test]
fn clones_of_a_layer_and_of_its_services_share_one_state() {
    let limit = limit();
    let one = Router::new().route("/", get(hello)).layer(limit.clone());
    let two = limit.layer(Router::new().route("/", get(hello)));
    assert_eq!(statuses(&one, ["/"]), [(200, Some(1))]);
    assert_eq!(statuses(&two.clone(), ["/"]), [(200, Some(0))]);
    assert_eq!(statuses(&one.clone(), ["/"]), [(429, Some(0))]);
    assert_eq!(statuses(&two, ["/"]), [(429, Some(0))]);
}

#[test]
fn layers_that_were_made_apart_share_nothing() {
    let router = || Router::new().route("/", get(hello));
    let (one, two) = (router().layer(limit()), router().layer(limit()));
    assert_eq!(statuses(&one, ["/"; 3]), TWO_PASS);
    assert_eq!(statuses(&two, ["/"; 3]), TWO_PASS);
}

#[test]
fn the_request_arrives_whole_behind_the_layer() {
    let echo = |Json(numbers): Json<Vec<u32>>| async move { Json(numbers) };
    let app = Router::new().route("/", post(echo)).layer(limit());
    let request = Request::post("/")
        .header("content-type", "application/json")
        .body(Body::from("[1,2,3]"))
        .unwrap();
    let answer = ask(&app, request);
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "[1,2,3]"));
}

#[test]
fn a_handler_that_fails_is_counted_too() {
    let failing = || async { StatusCode::INTERNAL_SERVER_ERROR };
    let app = Router::new().route("/", get(failing)).layer(limit());
    let expected = [(500, Some(1)), (500, Some(0)), (429, Some(0))];
    assert_eq!(statuses(&app, ["/"; 3]), expected);
}

#[test]
fn a_layer_outside_sees_the_refusal_and_may_change_it() {
    let outside = |mut response: Response<_>| {
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
        }
        response
    };
    let app = Router::new()
        .route("/", get(hello))
        .layer(limit())
        .layer(tower::util::MapResponseLayer::new(outside));
    let expected = [(200, Some(1)), (200, Some(0)), (418, Some(0))];
    assert_eq!(statuses(&app, ["/"; 3]), expected);
}

#[test]
fn the_types_are_as_shareable_as_what_they_hold() {
    fn send_and_sync<T: Send + Sync + Unpin + 'static>() {}
    fn send<T: Send + 'static>() {}
    fn clone_and_debug<T: Clone + std::fmt::Debug>() {}

    send_and_sync::<RateLimitLayer>();
    send_and_sync::<tower_ratelimit::middleware::RateLimitLayerBuilder>();
    send_and_sync::<RateLimit<()>>();
    send_and_sync::<ResponseBody<String>>();
    send::<RateLimit<Router>>();
    send::<ResponseFuture<Router, Request<Body>>>();
    clone_and_debug::<RateLimitLayer>();
    clone_and_debug::<RateLimit<Router>>();
}

#[test]
fn the_inner_service_need_not_be_send() {
    let local = std::rc::Rc::new("hello");
    let service = wrap(service_fn(move |_: Request<()>| {
        let local = std::rc::Rc::clone(&local);
        async move { Ok::<_, Infallible>(Response::new((*local).to_owned())) }
    }));
    let future = tower::ServiceExt::oneshot(service, Request::new(()));
    assert_eq!(now(future).unwrap().status(), StatusCode::OK);
}

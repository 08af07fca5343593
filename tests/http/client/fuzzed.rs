//! For any answer of a server, nothing panics, no hold is too long, and the next calls go on.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Response};
use proptest::prelude::*;
use tokio::time::Instant;
use tower::Layer;
use tower_ratelimit::client::ClientThrottleLayer;

use crate::client::server::{Scripted, call};

const NAMES: [&str; 14] = [
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "date",
    "age",
    "grpc-status",
    "grpc-status-details-bin",
];

fn value() -> impl Strategy<Value = HeaderValue> {
    let number = prop_oneof![
        Just(i128::from(u64::MAX)),
        Just(i128::MAX),
        Just(-1),
        0..100_i128,
        1_700_000_000..1_900_000_000_i128,
        any::<i64>().prop_map(i128::from),
    ];
    let text = prop_oneof![
        number.clone().prop_map(|number| number.to_string()),
        (number.clone(), "[0-9]{0,9}").prop_map(|(number, rest)| format!("{number}.{rest}")),
        (number.clone(), number.clone()).prop_map(|(r, t)| format!("\"a\";r={r};t={t}")),
        (number.clone(), number).prop_map(|(r, t)| format!("\"a\";r={r}, \"b\";t={t};r=0")),
        "\"a\";(r|t|qu|pk)=[-0-9a-z:\"?.]{0,20}",
        "(Mon|Fri|Sun), [0-9]{2} (Jan|Feb) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        "(8|14|[0-9]{1,3})",
        "[A-Za-z0-9+/]{0,64}={0,2}",
        ".{0,40}",
    ];
    let bytes = proptest::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        text.prop_filter_map("not a value", |text| HeaderValue::from_str(&text).ok()),
        bytes.prop_filter_map("not a value", |bytes| HeaderValue::from_bytes(&bytes).ok()),
    ]
}

fn answer() -> impl Strategy<Value = Response<()>> {
    let status = prop_oneof![Just(200), Just(429), Just(503), 200..600_u16];
    let field = (proptest::sample::select(&NAMES[..]), value());
    (status, proptest::collection::vec(field, 0..8)).prop_map(|(status, fields)| {
        let mut response = Response::builder().status(status).body(()).unwrap();
        for (name, value) in fields {
            response
                .headers_mut()
                .append(HeaderName::from_static(name), value);
        }
        response
    })
}

proptest! {
    #[test]
    fn no_answer_panics_or_holds_for_too_long(script in proptest::collection::vec(answer(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let answers = u32::try_from(script.len()).unwrap();
            let hold = Duration::from_secs(100);
            let client = ClientThrottleLayer::new().max_hold(hold).layer(Scripted::new(script));
            let start = Instant::now();
            for _ in 0..answers {
                call(&client, "http://a/").await.unwrap();
            }
            let calls = (0..20).map(|_| call(&client, "http://a/"));
            let mut set = tokio::task::JoinSet::new();
            calls.for_each(|call| drop(set.spawn(async move { call.await.unwrap() })));
            assert_eq!(set.join_all().await, [200; 20]);
            assert!(start.elapsed() <= hold * answers + Duration::from_secs(1));
        });
    }
}

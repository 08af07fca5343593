//! Headers that are left out where a shared cache would serve them to other clients.

use std::convert::Infallible;

use http::Response;
use tower::{Layer, service_fn};
use tower_ratelimit::response::Dialect;
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use crate::exchange::{Received, ask, get, global};

/// Returns the response beside these `Cache-Control` headers.
fn beside(cache_control: &'static [&'static str], dialects: &[Dialect], spares: bool) -> Received {
    let builder = RateLimitLayer::builder()
        .policy(global("a", FixedWindow::per_minute(2)))
        .dialects(dialects.iter().copied());
    let builder = if spares {
        builder.without_headers_if_public()
    } else {
        builder
    };
    let service = service_fn(|_: http::Request<()>| async {
        let mut response = Response::builder();
        for line in cache_control {
            response = response.header("cache-control", *line);
        }
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    ask(&builder.build().unwrap().layer(service), get())
}

#[test]
fn no_limit_is_told_in_a_response_that_says_it_is_public() {
    for (cache_control, is_public) in [
        (&["public"][..], true),
        (&["max-age=60, Public"], true),
        (&["s-maxage=60"], true),
        (&["S-MaxAge = 60,max-age=0"], true),
        (&["max-age=60", "public"], true),
        (&[], false),
        (&["private"], false),
        (&["max-age=60"], false),
        (&["no-store, x-public, publicly"], false),
        (&["community=\"public\""], false),
    ] {
        for dialects in [
            &[Dialect::Draft11][..],
            &[Dialect::GitHub],
            &[Dialect::Draft11, Dialect::GitHub],
        ] {
            let answer = beside(cache_control, dialects, true);
            let told = answer.headers.keys().any(|name| name != "cache-control");
            assert_eq!(told, !is_public, "{cache_control:?} {dialects:?}");
            assert_eq!(answer.lines("cache-control"), cache_control);
            let answer = beside(cache_control, dialects, false);
            let told = answer.headers.keys().any(|name| name != "cache-control");
            assert!(told, "{cache_control:?} {dialects:?}");
        }
    }
}

//! The time that a layer adds to a service, beside the layers of peers, in one run.
//!
//! Each iteration builds a request and drives the response to its end; `bare` is the service alone, to be
//! subtracted from the others. Each layer reads its default clock: ours std's, the peers' `quanta`. Rows that say
//! `quanta` have ours under that clock, beside the same peers.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};
use tower_ratelimit::clock::QuantaClock;
use tower_ratelimit::{Gcra, MemoryStore, RateLimitLayer};
use tower_ratelimit_benches::requests::{hello, request, send};
use tower_ratelimit_benches::{PLENTY, a_round, ours, peers};

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Sends requests that are all answered with the same status, except for the first.
fn row<S, B>(group: &mut Group<'_>, name: &str, expected: StatusCode, mut service: S)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    send(&mut service, request());
    group.bench_function(name, |b| b.iter(|| send(&mut service, request())));
    assert_eq!(send(&mut service, request()).status(), expected, "{name}");
}

fn layer_of(limit: u32, fields: bool) -> RateLimitLayer {
    ours::layer(Gcra::per_hour(limit), MemoryStore::new(), fields)
}

/// Returns a layer under the default clock of the peers, which refuses nothing.
fn layer_by_quanta(fields: bool) -> RateLimitLayer {
    let store = MemoryStore::new().clock(QuantaClock::new());
    ours::layer(Gcra::per_hour(PLENTY), store, fields)
}

fn layers(c: &mut Criterion) {
    let group = &mut c.benchmark_group("layer");
    let (ok, refused) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    row(group, "bare", ok, hello());

    let silent = layer_of(PLENTY, false);
    row(group, "no headers/ours", ok, silent.layer(hello()));
    let silent = layer_by_quanta(false);
    row(group, "no headers/ours, quanta", ok, silent.layer(hello()));
    let silent = peers::tower_governor_silent(PLENTY);
    row(
        group,
        "no headers/tower_governor",
        ok,
        silent.layer(hello()),
    );

    for (cell, limit, status) in [("all headers", PLENTY, ok), ("refused", 1, refused)] {
        let ours = layer_of(limit, true).layer(hello());
        row(group, &format!("{cell}/ours"), status, ours);
        if status == ok {
            let ours = layer_by_quanta(true).layer(hello());
            row(group, &format!("{cell}/ours, quanta"), status, ours);
        }
        let peer = peers::tower_governor(limit).layer(hello());
        row(group, &format!("{cell}/tower_governor"), status, peer);
        let peer = peers::axum_governor(limit).layer(hello());
        row(group, &format!("{cell}/axum-governor"), status, peer);
    }
}

/// The layer around a router with one handler, as in production.
fn around_a_router(c: &mut Criterion) {
    let group = &mut c.benchmark_group("layer");
    let (ok, refused) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    let router = || -> Router { Router::new().route("/", get(|| async { "hello" })) };
    row(group, "router/bare", ok, router());
    let ours = layer_of(PLENTY, true).layer(router());
    row(group, "router/allowed", ok, ours);
    let ours = layer_of(1, true).layer(router());
    row(group, "router/refused", refused, ours);
}

criterion_group! {
    name = benches;
    config = a_round();
    targets = layers, around_a_router
}
criterion_main!(benches);

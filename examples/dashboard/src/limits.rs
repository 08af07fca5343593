//! The limits of the service.

use std::env;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use axum::http::Request;
use tower_ratelimit::key::{self, Head, Secret};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::TopKeys;
use tower_ratelimit::{
    AnchoredWindow, LeakyQueue, Policy, RateLimitLayer, RedisStore, TokenBucket,
};
use tower_ratelimit_adapt::{Adapt, Kernel, Steps};

pub(crate) fn layer() -> Result<RateLimitLayer, Box<dyn Error>> {
    let secret = env::var("SECRET").unwrap_or_else(|_| "public, in an example".to_owned());
    let secret = Secret::new(secret)?;
    let customer = || key::api_key().hashed(&secret).or(key::peer_ip());

    let adapt = Adapt::builder(Steps::standard())
        .signal(Kernel::new().cpu())
        .signal(Kernel::new().memory())
        .build()?;
    tokio::spawn(adapt.run());

    let plans = Plans::new([
        Plan::new("free")
            .limit("minute", AnchoredWindow::per_minute(10))
            .limit("day", AnchoredWindow::per_day(1_000)),
        Plan::new("pro")
            .limit("minute", AnchoredWindow::per_minute(100))
            .limit("day", AnchoredWindow::per_day(10_000)),
        Plan::new("ent")
            .unlimited("minute")
            .limit("day", AnchoredWindow::per_day(1_000_000)),
    ]);
    let builder = RateLimitLayer::builder()
        .policy(
            Policy::new("minute", AnchoredWindow::per_minute(10))
                .top_keys(TopKeys::new(10))
                .key(customer()),
        )
        .policy(Policy::new("day", AnchoredWindow::per_day(1_000)).key(customer()))
        // A report is expensive: each customer gets one at a time, and ten may wait.
        .policy(
            Policy::new("reports", LeakyQueue::per_second(2).places(10))
                .ignore_plans()
                .key(customer())
                .when(|head| head.path() == "/report"),
        )
        // All customers together, and fewer requests under high load.
        .policy(
            Policy::new("everyone", TokenBucket::per_second(2_000).burst(2_000))
                .ignore_plans()
                .factor(adapt.factor())
                .key(key::global()),
        )
        .plans(plans, |head: &Head<'_>| plan_of(head.header("x-api-key")?))
        .adjustable()
        .expose_decision();
    match env::var("REDIS_URL") {
        Ok(url) if !url.is_empty() => Ok(builder.store(RedisStore::new(&url)?).build()?),
        _ => Ok(builder.build()?),
    }
}

/// The prefix of a key stands for the result of authentication, because a client can invent any prefix.
fn plan_of(key: &str) -> Option<&'static str> {
    let (plan, _) = key.split_once('-')?;
    ["free", "pro", "ent"]
        .into_iter()
        .find(|known| *known == plan)
}

/// Returns a request like those of the client that an operator names by an API key or an address.
pub(crate) fn request_of(client: &str) -> Option<Request<()>> {
    let request = Request::get("/report");
    let request = match client.parse::<IpAddr>() {
        Ok(address) => request.extension(SocketAddr::new(address, 0)),
        Err(_) => request.header("x-api-key", client),
    };
    request.body(()).ok()
}

//! Custom keys: a tenant from the path, a hashed token, a user who has logged in, and visitors.
//!
//! Run `cargo run --example custom_key`. It prints commands to try. `ADDR` is the address. `SECRET` hashes tokens: at
//! least 16 bytes, and the same on all nodes that share a store.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use tower_ratelimit::key::{self, IntoKey, Secret};
use tower_ratelimit::policy::OnMissingKey;
use tower_ratelimit::{ConfigError, Policy, RateLimitLayer, TokenBucket};

/// A user who has logged in. Visitors have no such extension.
#[derive(Clone)]
struct User {
    id: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let secret = match std::env::var("SECRET") {
        Ok(secret) => Secret::new(secret)?,
        Err(_) => Secret::of_the_process()?,
    };
    let app = Router::new()
        .route("/", get(hello).layer(by_user_or_address()?))
        .route("/api", get(hello).layer(by_token(&secret)?))
        .route("/tenants/{tenant}/items", get(hello).layer(by_tenant()?))
        .route("/login", post(hello).layer(by_address_and_name()?))
        .layer(from_fn(log_in));

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}: 3 requests at once for each key");
    println!();
    let curl = "curl -s -o /dev/null -w '%{http_code}\\n'";
    println!("  visitors, by address:    {curl} 'http://{address}/?[1-4]'");
    println!("  user 7, wherever:        {curl} -H 'cookie: user=7' 'http://{address}/?[1-4]'");
    println!(
        "  a token:                 {curl} -H 'authorization: Bearer t' 'http://{address}/api?[1-4]'"
    );
    println!("  no token, no answer:     curl -i http://{address}/api");
    println!(
        "  a tenant, any client:    {curl} 'http://{address}/tenants/{{red,blue}}/items?[1-4]'"
    );
    println!("  an address and a name:   {curl} -X POST 'http://{address}/login?user=ann&n=[1-4]'");

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

fn bucket() -> TokenBucket {
    TokenBucket::per_minute(6).burst(3)
}

/// `extension` reads the user that an outer layer has verified, `map` takes the identity of the user, and `or` counts
/// clients that have not logged in by address.
fn by_user_or_address() -> Result<RateLimitLayer, ConfigError> {
    let user = key::extension::<User>().optional();
    let caller = user.map(|user: &User| user.id).or(key::client_ip());
    one_policy(Policy::new("caller", bucket()).key(caller))
}

/// The store keeps 128 bits of a keyed hash in place of the token. This example does not verify the token, so a
/// client that invents tokens is counted by its address too.
fn by_token(secret: &Secret) -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .policy(
            Policy::new("token", bucket())
                .key(key::bearer_token().hashed(secret))
                .on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED)),
        )
        .policy(Policy::new("address", TokenBucket::per_second(5).burst(20)).key(key::client_ip()))
        .build()
}

/// Any closure over the head of the request. A request without a key gets `None`.
fn by_tenant() -> Result<RateLimitLayer, ConfigError> {
    let tenant = key::from_fn(|head| {
        let tenant = head.path().strip_prefix("/tenants/")?.split('/').next();
        tenant.map(IntoKey::into_key)
    });
    one_policy(Policy::new("tenant", bucket()).key(tenant))
}

/// User name and address together: a client that guesses passwords does not use up the limit of its network, and no
/// client can lock out a user at another address.
fn by_address_and_name() -> Result<RateLimitLayer, ConfigError> {
    let both = key::client_ip().and(key::query("user"));
    one_policy(Policy::new("login", bucket()).key(both))
}

fn one_policy(
    policy: Policy<tower_ratelimit::policy::Http>,
) -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder().policy(policy).build()
}

/// Stands for a session. It trusts the cookie, which your service must not do.
async fn log_in(mut request: Request, next: Next) -> Response {
    let cookie = request.headers().get("cookie");
    let id = cookie.and_then(|cookie| cookie.to_str().ok()?.strip_prefix("user="));
    if let Some(id) = id.and_then(|id| id.parse().ok()) {
        request.extensions_mut().insert(User { id });
    }
    next.run(request).await
}

async fn hello() -> &'static str {
    "hello\n"
}

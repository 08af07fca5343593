//! Two layers: a limit by address outside authentication, which also limits guesses of tokens, and a limit by user
//! inside.
//!
//! Run `cargo run --example stacked`. It prints commands to try. `ADDR` is the address. The known tokens are `ann`
//! and `bob`.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Router, routing::get};
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::middleware::OverLimit;
use tower_ratelimit::{ConfigError, Policy, RateLimitLayer, TokenBucket};

/// The authenticated user.
#[derive(Clone)]
struct UserId(String);

impl IntoKey for UserId {
    fn into_key(self) -> Key {
        self.0.into_key()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();

    // In a router, the layer that is added last is the outermost: requests meet it first.
    let for_users = Router::new()
        .route("/", get(hello))
        .layer(by_user()?)
        .layer(from_fn(authenticate));
    let app = for_users
        .route("/health", get(|| async { "ok\n" }))
        .layer(by_address()?);

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}: 40 requests at once for each address, of which");
    println!("each user has 10, the first 5 with all there is");
    println!();
    let curl = "curl -s -o /dev/null -w '%{http_code}\\n'";
    println!(
        "  one request of ann:       curl -i -H 'authorization: Bearer ann' http://{address}/"
    );
    println!(
        "  twelve, of which ten pass: {curl} -H 'authorization: Bearer ann' 'http://{address}/?[1-12]'"
    );
    println!(
        "  guesses, until 429:        {curl} -H 'authorization: Bearer x' 'http://{address}/?[1-45]'"
    );

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Counts all clients, whatever token they send. The probes of a load balancer are not counted.
fn by_address() -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("address", TokenBucket::per_second(2).burst(40)).key(key::client_ip()))
        .exempt_paths(["/health"])
        .build()
}

/// Counts verified users: a client cannot choose its key.
fn by_user() -> Result<RateLimitLayer, ConfigError> {
    let user = key::extension::<UserId>;
    RateLimitLayer::builder()
        .policy(Policy::new("user", TokenBucket::per_second(1).burst(10)).key(user()))
        .policy(
            Policy::new("full", TokenBucket::per_minute(5))
                .key(user())
                .soft(),
        )
        .build()
}

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get(header::AUTHORIZATION);
    let token = token.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(user @ ("ann" | "bob")) = token else {
        return Err(StatusCode::UNAUTHORIZED);
    };
    let user = UserId(user.to_owned());
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}

async fn hello(
    Extension(UserId(user)): Extension<UserId>,
    over: Option<Extension<OverLimit>>,
) -> String {
    match over {
        None => format!("hello {user}, and all there is\n"),
        Some(_) => format!("hello {user}\n"),
    }
}

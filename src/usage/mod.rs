//! What an answer says that it has used, such as the tokens of a language model.
//!
//! A policy that [settles](crate::Policy::settle) by a [`Usage`] reads it from the body of the response, while the body goes to the
//! client unchanged:
//!
//! ```
//! use axum::{Router, body::Body, routing::post};
//! use http::Request;
//! use tower::ServiceExt;
//! use tower_ratelimit::{AnchoredWindow, Policy, RateLimitLayer, key, usage};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokens = Policy::new("tokens", AnchoredWindow::per_minute(100_000))
//!     .key(key::global())
//!     .estimate(1_024)
//!     .settle(usage::openai());
//! let layer = RateLimitLayer::builder().policy(tokens).build()?;
//! let limiter = layer.limiter();
//!
//! let answer = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}"#;
//! let chat = move || async move { ([("content-type", "application/json")], answer) };
//! let app: Router = Router::new().route("/v1/chat/completions", post(chat)).layer(layer);
//!
//! let request = Request::post("/v1/chat/completions").body(Body::empty())?;
//! let response = app.oneshot(request).await?;
//! assert_eq!(axum::body::to_bytes(response.into_body(), 1_000).await?, answer);
//! let decision = limiter.peek(key::global().key_of(())?, 0).await?;
//! assert_eq!(decision.binding().unwrap().1.used(), 21);
//! # Ok(())
//! # }
//! ```
//!
//! # What is read
//!
//! - A body of JSON (`application/json`, `…+json`), several documents in a row (`application/x-ndjson`), an array of documents,
//!   and the data of server-sent events (`text/event-stream`), each of any length. Of a number that comes several times, the
//!   last counts: streams tell cumulative numbers.
//! - Plain, or compressed by gzip. A frame that becomes more than a hundred times longer is not read.
//! - Nothing of the body is kept but the numbers. A document that is nested deeper than 128 levels is not read.
//!
//! # What cannot be read
//!
//! A body of another type or coding (br, zstd), one without the numbers, and one that is broken off before them costs a guess: the
//! bytes of the request, as its `content-length` says, and those of the response so far, divided by four and rounded up, 1 at
//! least. With [prices](Prices), the bytes of the request cost what tokens of the input do, and those of the response what tokens of the
//! output do. That is about what tokens of English text come to; the frames around the events of a stream make the guess a high
//! one. The first such answer is [told in the log](crate::diagnostics), and each is counted in
//! [`RequestStats::guessed`](crate::observe::RequestStats::guessed). Another source may come first:
//! `Settle::from(usage::openai()).or(Settle::from_header("x-tokens"))` takes the header where the body tells nothing, and the guess
//! where both do not.
//!
//! A request without an answer costs what [`Policy::on_abandoned`](crate::Policy::on_abandoned) says. An answer that is
//! an error has no usage, so it costs the guess; [`Policy::refund_when`](crate::Policy::refund_when) gives that back:
//! `.refund_when(|ending| ending.status().is_server_error())`.

pub mod estimate;

mod events;
mod money;
mod prices;
mod reader;
mod scanner;
mod shapes;

pub use self::money::Money;
pub use self::prices::{Price, Prices};
pub use self::shapes::{Usage, anthropic, gemini, json, json_sum, openai, try_json};

pub(crate) use self::prices::{MODEL, requested_model};
pub(crate) use self::reader::UsageReader;

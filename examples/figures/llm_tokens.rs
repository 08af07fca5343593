//! A language model behind a token limit: 10,000 tokens a minute for each API key, and three requests at once.
//!
//! `cargo run --example llm_tokens`, with `ADDR` (default 127.0.0.1:3000), `TOKENS` (default 10000), the tokens of a
//! window, and `PERIOD_S` (default 60), the window in seconds. `POST /v1/chat/completions` has the shape that clients of
//! models know, also streamed; the key is `authorization: Bearer`. The model is a small one of its own: it says the words
//! of the last message again, until it has said `max_tokens`.
//!
//! A request reserves an estimate of its prompt plus `max_tokens`, and settles the tokens in `usage`. If the client
//! goes away during a stream, the request settles the tokens that were generated until then.
//!
//! State is in this process or, with `REDIS_URL`, on a server that several such processes share:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis --example llm_tokens
//! ```

use std::convert::Infallible;
use std::env::VarError;
use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_ratelimit::key::{Key, Secret};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::{Concurrency, Decision, Limiter, Policy, Quota, SlidingWindow};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let service = Service {
        limiter: limiter()?,
        secret: Secret::new(setting("SECRET", String::from("public, in an example"))?)?,
    };
    let app = Router::new()
        .route("/v1/chat/completions", post(complete))
        .with_state(service);

    let listener = listen("ADDR", "127.0.0.1:3000").await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!();
    println!("  curl -i -H 'authorization: Bearer ann' -H 'content-type: application/json' \\");
    println!(
        "    -d '{{\"model\":\"parrot\",\"max_tokens\":20,\"messages\":[{{\"role\":\"user\",\"content\":\"hello you\"}}]}}' \\"
    );
    println!("    http://{address}/v1/chat/completions");

    axum::serve(listener, app).await?;
    Ok(())
}

#[derive(Clone)]
struct Service {
    limiter: Limiter,
    secret: Secret,
}

/// The number of requests of a key at once. There is no limit on their rate.
const AT_ONCE: u32 = 3;

fn limiter() -> Result<Limiter, Box<dyn Error>> {
    let period = Duration::from_secs(setting("PERIOD_S", 60)?);
    let quota = Quota::new(setting("TOKENS", 10_000)?, period)?;
    let builder = Limiter::builder()
        .policy(Policy::new("requests", Concurrency::of(AT_ONCE)))
        .policy(Policy::new("tokens", SlidingWindow::of(quota)));

    let url = setting("REDIS_URL", String::new())?;
    if url.is_empty() {
        return Ok(builder.build()?);
    }
    #[cfg(feature = "redis")]
    return Ok(builder
        .store(tower_ratelimit::RedisStore::new(&url)?)
        .build()?);
    #[cfg(not(feature = "redis"))]
    Err("REDIS_URL is set: run this with `--features redis`, or without REDIS_URL".into())
}

#[derive(Deserialize)]
struct Prompt {
    #[serde(default)]
    model: String,
    messages: Vec<Message>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u32>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<Content>,
}

/// Clients send a text, or a list of parts, some of which are text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl Message {
    fn texts(&self) -> impl Iterator<Item = &str> {
        let (text, parts) = match &self.content {
            Some(Content::Text(text)) => (Some(&**text), &[][..]),
            Some(Content::Parts(parts)) => (None, &**parts),
            None => (None, &[][..]),
        };
        text.into_iter().chain(parts.iter().map(|part| &*part.text))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.texts().flat_map(str::split_whitespace)
    }
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// The default of `max_tokens`.
const MAX_TOKENS: u32 = 256;

impl Prompt {
    /// A token has about four bytes. This is an estimate, because each model has its own tokens.
    fn estimate(&self) -> u32 {
        let texts = self.messages.iter().flat_map(Message::texts);
        let bytes: usize = texts.map(str::len).sum();
        u32::try_from(bytes.div_ceil(4)).unwrap_or(u32::MAX)
    }

    /// The tokens of this model are words.
    fn tokens(&self) -> u32 {
        let words = self.messages.iter().flat_map(Message::words);
        u32::try_from(words.count()).unwrap_or(u32::MAX)
    }

    fn answer(&self) -> Completion {
        let said = self.messages.last().into_iter();
        let words = said.flat_map(Message::words).map(str::to_owned);
        Completion {
            words: words.collect(),
            said: 0,
            most: self.max_tokens.unwrap_or(MAX_TOKENS),
        }
    }
}

/// The completion: the words of the prompt, repeated.
struct Completion {
    words: Vec<String>,
    said: u32,
    most: u32,
}

impl Completion {
    async fn next(&mut self) -> Option<String> {
        if self.said == self.most || self.words.is_empty() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let word = &self.words[self.said as usize % self.words.len()];
        self.said += 1;
        Some(format!("{word} "))
    }
}

/// A request in progress. When it ends, for whatever reason, it settles the tokens that were generated.
struct UnderWay {
    reservation: Option<Reservation>,
    prompt: u32,
    answer: Completion,
}

impl UnderWay {
    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answer.said,
            "total_tokens": self.prompt.saturating_add(self.answer.said),
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            let tokens = self.prompt.saturating_add(self.answer.said);
            let settled = reservation.settle_with([("tokens", tokens)]);
            settled.expect("the limiter has a policy of this name");
        }
    }
}

async fn complete(
    State(service): State<Service>,
    headers: HeaderMap,
    prompt: Result<Json<Prompt>, JsonRejection>,
) -> Response {
    let Some(key) = api_key(&headers, &service.secret) else {
        return failure(
            StatusCode::UNAUTHORIZED,
            ("invalid_request_error", "invalid_api_key"),
            "Give an API key, `authorization: Bearer`.",
        );
    };
    let Json(prompt) = match prompt {
        Ok(prompt) => prompt,
        Err(rejection) => {
            let kind = ("invalid_request_error", "invalid_request");
            return failure(rejection.status(), kind, &rejection.body_text());
        }
    };
    let most = prompt.max_tokens.unwrap_or(MAX_TOKENS);
    let estimate = prompt.estimate().saturating_add(most);
    let asked = [("requests", key, 1), ("tokens", key, estimate)];
    let Ok(reservation) = reserve(&service.limiter, asked).await else {
        return failure(
            StatusCode::SERVICE_UNAVAILABLE,
            ("server_error", "unavailable"),
            "The limits cannot be checked at the moment.",
        );
    };
    let decision = reservation.decision().clone();
    let mut response = if reservation.is_allowed() {
        let under_way = UnderWay {
            reservation: Some(reservation),
            prompt: prompt.tokens(),
            answer: prompt.answer(),
        };
        if prompt.stream {
            streamed(&prompt, under_way)
        } else {
            whole(&prompt, under_way).await
        }
    } else {
        refused(&decision, estimate)
    };
    tell(response.headers_mut(), &decision);
    response
}

/// Slots and tokens in one decision: all or nothing.
async fn reserve(
    limiter: &Limiter,
    asked: [(&str, Key, u32); 2],
) -> Result<Reservation, Box<dyn Error>> {
    Ok(limiter.named(asked)?.reserve().await?)
}

fn api_key(headers: &HeaderMap, secret: &Secret) -> Option<Key> {
    let credentials = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = credentials.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    // A shared store must not show the keys of customers.
    is_bearer.then(|| secret.hash(token))
}

async fn whole(prompt: &Prompt, mut under_way: UnderWay) -> Response {
    let mut said = String::new();
    while let Some(word) = under_way.answer.next().await {
        said.push_str(&word);
    }
    Json(json!({
        "id": "chatcmpl-parrot",
        "object": "chat.completion",
        "created": 0,
        "model": prompt.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": said.trim_end()},
            "finish_reason": "length",
        }],
        "usage": under_way.usage(),
    }))
    .into_response()
}

/// Events of a stream: a chunk for each word, the usage if it was asked for, and the end.
fn streamed(prompt: &Prompt, under_way: UnderWay) -> Response {
    let asks_for_usage = prompt
        .stream_options
        .as_ref()
        .is_some_and(|options| options.include_usage);
    let model = prompt.model.clone();
    let chunk = move |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chatcmpl-parrot",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": choices,
            "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let events = stream::unfold(Some(under_way), move |state| {
        let chunk = chunk.clone();
        async move {
            let mut under_way = state?;
            let Some(word) = under_way.answer.next().await else {
                let end = json!([{"index": 0, "delta": {}, "finish_reason": "length"}]);
                let mut last = chunk(end, Value::Null);
                if asks_for_usage {
                    last.push_str(&chunk(json!([]), under_way.usage()));
                }
                last.push_str("data: [DONE]\n\n");
                return Some((last, None));
            };
            let delta = json!([{"index": 0, "delta": {"content": word}, "finish_reason": null}]);
            Some((chunk(delta, Value::Null), Some(under_way)))
        }
    });
    let events = futures_util::StreamExt::map(events, Ok::<_, Infallible>);
    let content_type = [(header::CONTENT_TYPE, "text/event-stream")];
    (content_type, Body::from_stream(events)).into_response()
}

fn refused(decision: &Decision, estimate: u32) -> Response {
    const CODE: &str = "rate_limit_exceeded";
    let denies = |name: &str| {
        let mut policies = decision.policies();
        policies.any(|(policy, told)| policy == name && !told.is_allowed())
    };
    if !denies("tokens") {
        let message = format!("Rate limit reached for requests: {AT_ONCE} at once.");
        return failure(StatusCode::TOO_MANY_REQUESTS, ("requests", CODE), &message);
    }
    let tokens = decision.policies().find(|(name, _)| *name == "tokens");
    let Some(wait) = tokens.and_then(|(_, told)| told.retry_after()) else {
        let message = format!("The request is too large: it may take {estimate} tokens.");
        let mut response = failure(StatusCode::TOO_MANY_REQUESTS, ("tokens", CODE), &message);
        // No wait helps.
        let headers = response.headers_mut();
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
        return response;
    };
    let message = format!(
        "Rate limit reached for tokens. Try again in {}.",
        short(wait)
    );
    let mut response = failure(StatusCode::TOO_MANY_REQUESTS, ("tokens", CODE), &message);
    let millis = wait.as_micros().div_ceil(1_000);
    let seconds = wait.as_micros().div_ceil(1_000_000);
    put(response.headers_mut(), "retry-after", seconds);
    put(response.headers_mut(), "retry-after-ms", millis);
    response
}

/// The rate limit headers of model providers: what remains after the estimate, and the free slots.
fn tell(headers: &mut HeaderMap, decision: &Decision) {
    for (name, told) in decision.policies() {
        put(headers, &format!("x-ratelimit-limit-{name}"), told.limit());
        put(
            headers,
            &format!("x-ratelimit-remaining-{name}"),
            told.remaining(),
        );
        if name == "tokens" {
            put(
                headers,
                "x-ratelimit-reset-tokens",
                short(told.reset_after()),
            );
        }
    }
}

fn failure(status: StatusCode, (kind, code): (&str, &str), message: &str) -> Response {
    let error = json!({"message": message, "type": kind, "param": null, "code": code});
    (status, Json(json!({ "error": error }))).into_response()
}

fn put(headers: &mut HeaderMap, name: &str, value: impl Display) {
    let value = HeaderValue::from_str(&value.to_string());
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value) {
        headers.insert(name, value);
    }
}

/// Returns a time in the form of these headers, `120ms` or `1m5.25s`, rounded up.
fn short(time: Duration) -> String {
    let millis = time.as_micros().div_ceil(1_000);
    match (millis / 60_000, millis % 60_000) {
        (0, rest) if rest < 1_000 => format!("{rest}ms"),
        (0, rest) => format!("{}.{:03}s", rest / 1_000, rest % 1_000),
        (minutes, rest) => format!("{minutes}m{}.{:03}s", rest / 1_000, rest % 1_000),
    }
}

async fn listen(name: &str, default: &str) -> Result<tokio::net::TcpListener, String> {
    let address = setting(name, default.to_owned())?;
    let listener = tokio::net::TcpListener::bind(&address).await;
    listener.map_err(|error| format!("cannot listen on {name}={address}: {error}"))
}

fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> Result<T, String> {
    match std::env::var(name) {
        Ok(value) => {
            let parsed = value.parse();
            parsed.map_err(|error| format!("{name}={value} cannot be used: {error}"))
        }
        Err(VarError::NotPresent) => Ok(default),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

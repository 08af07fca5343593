//! The routes, and the checks before each of them.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Extensions, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;
use tower_ratelimit::key::Head;

use super::access::{Access, Operator};
use super::handle::Handle;
use super::operator::{self, Change, Failed};
use super::page::{CONTENT_POLICY, NOTHING, PAGE};
use super::state::RouterState;
use super::viewers::NoRoom;

/// Returns the routes of the page, to [nest](Router::nest) in a service. See the [module](crate::admin) for
/// an example.
///
/// `handle` is a [`Handle`], a [`RateLimitLayer`](tower_ratelimit::RateLimitLayer), such as that of a watched file, or a
/// [`Limiter`](tower_ratelimit::Limiter).
///
/// The task that keeps the history and sends events is one of the runtime in which this is called, or else in which the first
/// request is answered. Call it in the runtime that serves.
pub fn router<S>(handle: impl Into<Handle>, access: Access) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let state = RouterState::new(handle.into(), access);
    Router::new()
        .route("/", get(show))
        .route("/events", get(events))
        .route("/history", get(history))
        .route("/snapshot", get(snapshot))
        .route("/inspect", post(inspect))
        .route("/block", post(block))
        .route("/unblock", post(unblock))
        .route("/reset", post(reset))
        .route("/limits", post(limit))
        // Access is checked for other paths too.
        .fallback(nothing)
        .layer(from_fn_with_state(Arc::clone(&state), admit))
        .with_state(state)
}

type AppState = State<Arc<RouterState>>;

/// The most bytes of a question.
const LONGEST: usize = 16 * 1_024;

/// Admits operators, and protects all answers.
async fn admit(State(state): AppState, mut request: Request, next: Next) -> Response {
    state.begin();
    let mut answer = match state.access.admit(&Head::of(&request)) {
        Ok(operator) => {
            request.extensions_mut().insert(operator);
            next.run(request).await
        }
        Err(reason) => error(StatusCode::FORBIDDEN, reason),
    };
    let headers = answer.headers_mut();
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(NOTHING));
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn show() -> Response {
    let mut answer = answer(StatusCode::OK, "text/html; charset=utf-8", PAGE);
    answer
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, CONTENT_POLICY.clone());
    answer
}

async fn nothing() -> Response {
    error(StatusCode::NOT_FOUND, "there is no such page")
}

async fn events(State(state): AppState) -> Response {
    match state.join() {
        Ok(events) => {
            let mut answer = answer(StatusCode::OK, "text/event-stream", Body::new(events));
            // Otherwise nginx buffers the response.
            let name = HeaderName::from_static("x-accel-buffering");
            answer
                .headers_mut()
                .insert(name, HeaderValue::from_static("no"));
            answer
        }
        Err(why) => {
            let reason = match why {
                NoRoom::TooMany => "there are 16 viewers already",
                NoRoom::Ended => "the service is shutting down",
            };
            let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, reason);
            answer
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("5"));
            answer
        }
    }
}

async fn history(State(state): AppState) -> Response {
    answer(StatusCode::OK, JSON, state.history())
}

async fn snapshot(State(state): AppState) -> Response {
    answer(StatusCode::OK, JSON, state.snapshot())
}

async fn inspect(State(state): AppState, request: Request) -> Response {
    let question = match read(request).await {
        Ok((_, question)) => question,
        Err(answer) => return answer,
    };
    match operator::inspect(&state.handle, &question).await {
        Ok(inspected) => answer(StatusCode::OK, JSON, inspected.to_string()),
        Err(why) => failed(&why),
    }
}

async fn block(State(state): AppState, request: Request) -> Response {
    change("block", &state, request, operator::block).await
}

async fn unblock(State(state): AppState, request: Request) -> Response {
    change("unblock", &state, request, operator::unblock).await
}

async fn reset(State(state): AppState, request: Request) -> Response {
    change("reset", &state, request, operator::reset).await
}

async fn limit(State(state): AppState, request: Request) -> Response {
    change("limit", &state, request, operator::limit).await
}

/// Makes the change that a request asks for, and logs it.
async fn change<T: DeserializeOwned>(
    verb: &'static str,
    state: &RouterState,
    request: Request,
    make: impl AsyncFnOnce(&Handle, &T) -> Result<Change, Failed>,
) -> Response {
    match write(state, request).await {
        Ok((operator, question)) => done(verb, &operator, make(&state.handle, &question).await),
        Err(answer) => answer,
    }
}

/// Reads the question of a request that changes something.
async fn write<T: DeserializeOwned>(
    state: &RouterState,
    request: Request,
) -> Result<(Operator, T), Response> {
    if state.access.is_writable() {
        read(request).await
    } else {
        let reason = "this page is read-only: see `Access::writable`";
        Err(error(StatusCode::FORBIDDEN, reason))
    }
}

/// Reads the question in the body of a request, in JSON: a form of another site cannot send that type.
async fn read<T: DeserializeOwned>(request: Request) -> Result<(Operator, T), Response> {
    let (head, body) = request.into_parts();
    let of_type = head
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = of_type
        .and_then(|of_type| of_type.split(';').next())
        .unwrap_or_default();
    if !essence.trim().eq_ignore_ascii_case(JSON) {
        let reason = "send JSON, with content-type: application/json";
        return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let bytes = to_bytes(body, LONGEST).await;
    let bytes = bytes.map_err(|_| {
        error(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the question is longer than 16 KiB",
        )
    })?;
    let question = serde_json::from_slice(&bytes)
        .map_err(|mistake| error(StatusCode::BAD_REQUEST, &mistake.to_string()))?;
    Ok((operator_of(&head.extensions), question))
}

fn operator_of(extensions: &Extensions) -> Operator {
    let operator = extensions.get::<Operator>().cloned();
    operator.unwrap_or_else(|| Operator(String::new()))
}

/// Logs a change, and answers the request.
fn done(verb: &'static str, operator: &Operator, change: Result<Change, Failed>) -> Response {
    match change {
        Ok(change) => {
            log(verb, operator, &change);
            let mut body = json!({ "before": change.before, "after": change.after });
            if let Some(was_blocked) = change.was_blocked {
                body["was_blocked"] = was_blocked.into();
            }
            answer(StatusCode::OK, JSON, body.to_string())
        }
        Err(why) => failed(&why),
    }
}

/// The subject names the policy and the plan; a key may be a secret, and is not logged.
fn log(verb: &'static str, Operator(operator): &Operator, change: &Change) {
    tracing::info!(
        target: "tower_ratelimit::admin",
        operator,
        verb,
        subject = change.subject,
        before = change.before,
        after = change.after,
        "an operator has changed the rate limiter",
    );
}

fn failed(why: &Failed) -> Response {
    match why {
        Failed::Invalid(reason) => error(StatusCode::BAD_REQUEST, reason),
        Failed::Store(reason) => error(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the store cannot tell: {reason}"),
        ),
    }
}

const JSON: &str = "application/json";

fn error(status: StatusCode, reason: &str) -> Response {
    answer(status, JSON, json!({ "error": reason }).to_string())
}

fn answer(status: StatusCode, of_type: &'static str, body: impl Into<Body>) -> Response {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(of_type));
    answer
}

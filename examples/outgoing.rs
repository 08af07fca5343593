//! A client that obeys the rate limit headers of a server: it makes many calls at once, and hardly any is refused.
//!
//! Run `cargo run --example quickstart` in one terminal, and `cargo run --features client --example outgoing` in
//! another. The example ends after ten seconds. `URL`, `SECONDS` and `CALLERS` change the server, the length of the
//! run and the number of simultaneous callers.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, ServiceExt};
use tower_ratelimit::client::ClientThrottleLayer;

/// The answers of the server.
#[derive(Debug, Default)]
struct Answers {
    served: AtomicU32,
    refused: AtomicU32,
    /// The number of times that the remaining requests fell to zero.
    reached: AtomicU32,
    is_spent: AtomicBool,
}

impl Answers {
    fn count<B>(&self, response: &Response<B>) {
        let is_refused = response.status() == StatusCode::TOO_MANY_REQUESTS;
        let answers = if is_refused {
            &self.refused
        } else {
            &self.served
        };
        answers.fetch_add(1, Ordering::Relaxed);
        let told = response.headers().get("ratelimit");
        let is_spent =
            told.is_some_and(|told| told.as_bytes().windows(5).any(|part| part == b";r=0;"));
        if !self.is_spent.swap(is_spent, Ordering::Relaxed) && is_spent {
            self.reached.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = env::var("URL").unwrap_or_else(|_| "http://127.0.0.1:3000/".into());
    let seconds = number("SECONDS", 10)?;
    let callers = number("CALLERS", 20)?;

    let answers = Arc::new(Answers::default());
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let count = Arc::clone(&answers);
    let client = client.map_response(move |response| {
        count.count(&response);
        response
    });
    // This layer is all that it takes. Each caller has a clone, and all clones share what they learn.
    let client = ClientThrottleLayer::new().layer(client);

    println!("{callers} callers for {seconds} s, each as quick as it may, to {url}");
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut calls = JoinSet::new();
    for _ in 0..callers {
        let (client, url) = (client.clone(), url.clone());
        calls.spawn(async move {
            while Instant::now() < end {
                let request = Request::get(&url).body(Empty::new())?;
                let Ok(response) = timeout_at(end, client.clone().oneshot(request)).await else {
                    break;
                };
                response?.into_body().collect().await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }

    let [served, refused, reached] = [&answers.served, &answers.refused, &answers.reached]
        .map(|answers| answers.load(Ordering::Relaxed));
    println!("{served} served, {refused} refused; the limit was reached {reached} times");
    if refused > reached {
        return Err("more than one refusal for each time that the limit was reached".into());
    }
    Ok(())
}

fn number(name: &str, default: u32) -> Result<u32, Box<dyn Error + Send + Sync>> {
    match env::var(name) {
        Ok(number) => Ok(number
            .parse()
            .map_err(|_| format!("{name} is not a number"))?),
        Err(_) => Ok(default),
    }
}

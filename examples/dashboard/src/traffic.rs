//! Simulated customers, so that the page has something to show.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderValue, Request, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::{MissedTickBehavior, interval};

/// Each customer with its path and the time between two of its requests. Together they send fewer than forty requests
/// a second, and each waits for its answer.
const CUSTOMERS: [(&str, &str, Duration); 8] = [
    ("free-ann", "/", Duration::from_millis(700)),
    ("free-bob", "/", Duration::from_secs(4)),
    ("free-eve", "/", Duration::from_millis(150)),
    ("pro-dan", "/", Duration::from_millis(450)),
    ("pro-mia", "/", Duration::from_millis(1_100)),
    ("ent-zoe", "/", Duration::from_millis(60)),
    ("ent-max", "/report", Duration::from_millis(330)),
    ("ent-max", "/report", Duration::from_millis(410)),
];

/// The period of the waves of traffic, and the length of a wave.
const WAVE: (Duration, Duration) = (Duration::from_secs(90), Duration::from_secs(30));

pub(crate) async fn customers(address: SocketAddr) {
    let each = CUSTOMERS.map(|customer| tokio::spawn(customer_of(address, customer)));
    for customer in each {
        // The task ends with the program.
        let _ = customer.await;
    }
}

async fn customer_of(address: SocketAddr, (key, path, every): (&'static str, &str, Duration)) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let Ok(uri) = format!("http://{address}{path}").parse::<Uri>() else {
        return;
    };
    let begin = tokio::time::Instant::now();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for turn in 0_u64.. {
        ticks.tick().await;
        let at = begin.elapsed().as_millis() % WAVE.0.as_millis();
        // Between waves, two of three requests are left out.
        if at > WAVE.1.as_millis() && turn % 3 != 0 {
            continue;
        }
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert("x-api-key", HeaderValue::from_static(key));
        // A service that shuts down no longer answers.
        if let Ok(answer) = client.request(request).await {
            let _ = answer.into_body().collect().await;
        }
    }
}

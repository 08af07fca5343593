//! A small upstream, for a gateway without one of its own.

use std::convert::Infallible;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::{Body, full};

/// Answers each request with a description of it, as JSON.
pub async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            let service =
                service_fn(|request| async move { Ok::<_, Infallible>(answer(&request)) });
            // The client has gone.
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(request: &Request<Incoming>) -> Response<Body> {
    let headers: Map<String, Value> = request
        .headers()
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.to_string(), json!(value))
        })
        .collect();
    let arrived = json!({
        "method": request.method().as_str(),
        "uri": request.uri().to_string(),
        "headers": headers,
    });
    let mut response = Response::new(full(arrived.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

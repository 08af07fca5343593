//! A tower service that speaks the Model Context Protocol, with a limit for each tool.
//!
//! Run `cargo run --example mcp --features usage`. It calls the service in this process, and prints what each call gets.

use std::convert::Infallible;
use std::error::Error;

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::JsonFields;
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit::plan::Operations;
use tower_ratelimit::{AnchoredWindow, Policy, RateLimitLayer, key};

/// Answers a call of a tool.
async fn answer(request: Request<ReadBody<Body>>) -> Result<Response<Body>, Infallible> {
    // The layer has read it already; a server would parse the whole body.
    let fields = request.extensions().get::<JsonFields>();
    let tool = fields.and_then(|fields| fields.text("params.name"));
    let said = format!("done: {}", tool.unwrap_or("nothing"));
    let result = format!(r#"{{"content":[{{"type":"text","text":{said:?}}}]}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    Ok(Response::new(Body::from(body)))
}

/// A call of a tool, whose header says this name and whose body that one.
fn call(header: &str, tool: &str) -> Result<Request<Body>, Box<dyn Error>> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
    );
    let request = Request::post("/mcp")
        .header("authorization", "Bearer t0ken")
        .header(CONTENT_TYPE, "application/json")
        .header("mcp-method", "tools/call")
        .header("mcp-name", header);
    Ok(request.body(Body::from(body))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let operations = Operations::new()
        .limit("search", AnchoredWindow::per_minute(3))
        .limit("send_mail", AnchoredWindow::per_minute(1));
    let tools = Policy::new("tools", AnchoredWindow::per_minute(60))
        .key(key::bearer_token())
        .operation(key::mcp_name())
        .operations(operations);
    let limits = RateLimitLayer::builder().policy(tools).build()?;
    // The outermost layer reads the body, and holds the headers against it.
    let service = ReadJsonLayer::new()
        .mcp()
        .layer(limits.layer(service_fn(answer)));

    for (header, tool) in [
        ("search", "search"),
        ("send_mail", "send_mail"),
        // The same tool, as a client may write it too.
        ("=?base64?c2VuZF9tYWls?=", "send_mail"),
        // A client that tries to have its mail counted as a search.
        ("search", "send_mail"),
        ("search", "search"),
        ("translate", "translate"),
    ] {
        let response = service.clone().oneshot(call(header, tool)?).await?;
        let status = response.status();
        let left = response.headers().get("ratelimit").cloned();
        let body = to_bytes(Body::new(response.into_body()), 10_000).await?;
        println!("{tool:10} as {header:24} {status}");
        if let Some(left) = left {
            println!("    {}", left.to_str()?);
        }
        println!("    {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

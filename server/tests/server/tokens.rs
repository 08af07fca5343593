//! The server in front of a model: a request costs the tokens that its answer tells.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::scene::{Scene, head, listener};

/// Answers each connection with what stands here, a response as it is sent.
async fn model(listener: TcpListener, answers: &'static [&'static str]) {
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
}

fn limits(settle: &str) -> String {
    format!(
        "[policies.tokens]\nkey = \"global\"\nalgorithm = \"fixed-window\"\nquota = \"1000/day\"\nestimate = 10\nsettle = {settle}\n"
    )
}

/// Returns what remains after each of the requests, with the estimate of the last.
async fn remaining(answers: &'static [&'static str], settle: &str) -> Vec<String> {
    let (listener, upstream) = listener().await;
    tokio::spawn(model(listener, answers));
    let scene = Scene::before(&upstream, &limits(settle)).await;
    let mut remaining = Vec::new();
    for _ in answers {
        let answer = scene.get("/v1/chat/completions", &[]).await;
        let limit = answer.header("ratelimit").unwrap();
        let number = limit.split(';').nth(1).unwrap();
        remaining.push(number.to_owned());
    }
    remaining
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":60,\"total_tokens\":150}}\n\n\
    data: [DONE]\n\n";

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 66\r\n\
    connection: close\r\n\r\n\
    {\"id\":\"c\",\"usage\":{\"prompt_tokens\": 20,\"completion_tokens\":  5}  }";

/// A stream of Anthropic that breaks off: the chunk that ends it is missing.
const BROKEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
    connection: close\r\n\r\n\
    63\r\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":300,\"output_tokens\":1}}}\n\n        \r\n";

#[tokio::test]
async fn each_answer_costs_the_tokens_that_it_tells() {
    let remaining = remaining(&[STREAM, WHOLE, STREAM], "\"openai\"").await;
    assert_eq!(remaining, ["r=990", "r=840", "r=815"]);
}

#[tokio::test]
async fn a_stream_that_breaks_off_costs_what_it_has_told() {
    let remaining = remaining(&[BROKEN, STREAM], "\"anthropic\"").await;
    assert_eq!(remaining, ["r=990", "r=689"]);
}

#[tokio::test]
async fn the_file_says_what_the_numbers_cost() {
    let weights = "{ json = { \"usage.prompt_tokens\" = 1, \"usage.completion_tokens\" = 4 } }";
    let remaining = remaining(&[WHOLE, STREAM], weights).await;
    assert_eq!(remaining, ["r=990", "r=950"]);
}

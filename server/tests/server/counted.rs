//! What is counted is what the upstream gets, and it gets the whole of it.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::nginx::Nginx;
use super::scene::{LONG, Scene, WIDE, ask_at, head, listener};

fn limited_by(key: &str) -> String {
    format!("[policies.key]\nquota = \"9/minute\"\nkey = {key}\n")
}

#[tokio::test]
async fn a_counted_field_reaches_the_upstream_once_and_in_its_own_spelling() {
    let scene = Scene::new(&limited_by("{ header = \"x_tenant\" }")).await;
    let headers = &scene
        .get("/", &["x_tenant: a", "x-tenant: b"])
        .await
        .arrived()["headers"];
    assert_eq!(headers["x_tenant"], "a");
    assert_eq!(headers["x-tenant"], Value::Null);
    let twice = ["x_tenant: random", "x_tenant: exhausted"];
    assert_eq!(scene.get("/", &twice).await.status(), 400);
    // The proxy that asks forwards both.
    for fields in [twice, ["x_tenant: a", "x-tenant: b"]] {
        assert_eq!(scene.get("/_limit/check", &fields).await.status(), 400);
        let answer = scene.get("/_limit/check?refuse=403", &fields).await;
        assert_eq!(answer.status(), 403);
    }

    let scene = Scene::new(&limited_by("{ cookie = \"sid\" }")).await;
    let cookies = ["cookie: a=1; sid=random; sid=exhausted"];
    let headers = &scene.get("/", &cookies).await.arrived()["headers"];
    assert_eq!(headers["cookie"], "a=1; sid=random");
    let answer = scene.get("/_limit/check", &cookies).await;
    assert_eq!(answer.status(), 400);

    let scene = Scene::new(&limited_by("{ query = \"token\" }")).await;
    assert_eq!(scene.get("/?a=1&a=2&token=b", &[]).await.status(), 200);
    let target = "/?token=random&token=exhausted";
    assert_eq!(scene.get(target, &[]).await.status(), 400);
    let question = format!("x-original-uri: {target}");
    let answer = scene.get("/_limit/check?refuse=403", &[&question]).await;
    assert_eq!(answer.status(), 403);
}

/// Answers with the method, the length and the trailers of a request.
async fn measure(listener: tokio::net::TcpListener) {
    let answer = service_fn(|request: Request<Incoming>| async {
        let method = request.method().clone();
        let answer = match request.into_body().collect().await {
            Ok(body) => {
                let trailers = body.trailers().map_or(0, http::HeaderMap::len);
                let length = body.to_bytes().len();
                format!("{method} {length} {trailers}")
            }
            Err(error) => error.to_string(),
        };
        let response = Response::builder().header("x-read", answer);
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            let stream = TokioIo::new(stream);
            let _ = builder.serve_connection(stream, answer).await;
        });
    }
}

#[tokio::test]
async fn a_body_without_a_length_arrives_whole_and_its_trailers_do_not() {
    let (listener, upstream) = listener().await;
    tokio::spawn(measure(listener));
    let scene = Scene::before(&upstream, WIDE).await;
    for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS"] {
        let answer = scene
            .ask(&format!(
                "{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
                 5\r\nwhole\r\n0\r\nx-forwarded-for: 192.0.2.1\r\nx-original-url: /admin\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.header("x-read"), Some(&*format!("{method} 5 0")));
        let answer = scene
            .ask(&format!(
                "{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.header("x-read"), Some(&*format!("{method} 0 0")));
    }
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    // HTTP/1 sends trailers to the upstream only if the head names them; HTTP/2 sends all.
    let calls = [
        (Method::GET, "text/plain"),
        (Method::HEAD, "text/plain"),
        (Method::POST, "text/plain"),
        (Method::POST, "application/grpc"),
    ];
    for (method, content_type) in calls {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-forwarded-for", "192.0.2.1".parse().unwrap());
        let frames = [
            Frame::data(Bytes::from_static(b"whole")),
            Frame::trailers(trailers),
        ];
        let frames = frames.map(Ok::<_, Infallible>);
        let request = Request::builder()
            .method(&method)
            .version(Version::HTTP_2)
            .uri(format!("http://{}/", scene.address))
            .header("content-type", content_type)
            .body(StreamBody::new(tokio_stream::iter(frames)))
            .unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.headers()["x-read"], format!("{method} 5 0"));
    }
}

#[tokio::test]
async fn an_option_of_the_connection_that_is_no_text_hides_no_other() {
    let scene = Scene::new(WIDE).await;
    let mut stream = scene.connect().await;
    let request =
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nconnection: x-hop, \xff\r\nx-hop: 1\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!answer.contains("x-hop\":"), "{answer}");
}

#[tokio::test]
async fn no_request_passes_with_two_lengths_after_a_trailer_with_a_bare_lf() {
    let (listener, upstream) = listener().await;
    tokio::spawn(measure(listener));
    let scene = Scene::before(&upstream, WIDE).await;
    let get = "GET /h HTTP/1.1\r\nhost: a\r\n\r\n";
    for trailers in ["x: 1\n\r\n\r\n", "x: 1\r\n\n", "x: 1\n\n", "x: 1\n\r\n"] {
        // hyper takes the lines of another request after the bare LF for trailers.
        for hidden in ["", get] {
            let mut stream = scene.connect().await;
            let request = format!(
                "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                0\r\n{trailers}{hidden}\
                PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n\
                0\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answers = String::new();
            let _ = stream.read_to_string(&mut answers).await;
            assert!(!answers.contains("PUT"), "{trailers:?} {hidden}: {answers}");
        }
    }
}

#[tokio::test]
async fn a_malformed_body_is_the_fault_of_the_client() {
    let (listener, upstream) = listener().await;
    tokio::spawn(measure(listener));
    let scene = Scene::before(&upstream, WIDE).await;
    for chunks in ["x\r\n", "5\r\nwholex\r\n", "5\r\nwhole\n"] {
        let mut stream = scene.connect().await;
        let head_of_it = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head_of_it.as_bytes()).await.unwrap();
        stream.write_all(chunks.as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(LONG, head(&mut stream)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{chunks:?}: {answer}");
    }
}

/// nginx as the documentation configures it.
#[tokio::test]
async fn a_refusal_passes_nginx_for_no_content_type() {
    let documented = include_str!("../../docs/server.md");
    let documented = documented.split("```nginx\n").nth(1).unwrap();
    let documented = documented.split("```").next().unwrap();
    for (more, admitted) in [
        ("", 3),
        ("[responses]\ngrpc = { calls = \"always\" }\n", 3),
        ("[lists]\ndeny = { path = \"/page\" }\n", 0),
    ] {
        for content_type in [
            "text/plain",
            "application/grpc",
            "Application/GRPC",
            "application/grpc-web",
            "application/grpc-web-text",
            "application/grpc-web+proto",
        ] {
            let limits = "[policies.address]\nquota = \"3/hour\"\nkey = \"client_ip\"\n";
            let scene = Scene::new(&format!("{limits}{more}")).await;
            let nginx = Nginx::start(2, |at| {
                let front = documented
                    .replace("listen 8000", &format!("listen {}", at[0]))
                    .replace("127.0.0.1:3000", &scene.address.to_string())
                    .replace("127.0.0.1:8080", &at[1].to_string());
                format!("{front}\nserver {{ listen {}; return 204; }}", at[1])
            });
            let request = format!(
                "GET /page HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: {content_type}\r\n\r\n"
            );
            for number in 0..5 {
                let answer = ask_at(nginx.addresses[0], &request).await;
                let expected = if number < admitted { 204 } else { 429 };
                assert_eq!(answer.status(), expected, "{more} {content_type} {number}");
            }
        }
    }
}

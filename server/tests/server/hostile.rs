//! Requests that the limits and the upstream could read in two ways.

use http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::scene::{Scene, WIDE, head, listener};

/// A limit of one request for each value of a header, below `/dear`.
const DEAR: &str = "
    [policies.dear]
    quota = \"1/minute\"
    key = { header = \"host\" }
    when = { path = \"/dear/*\" }
";

#[tokio::test]
async fn a_head_that_two_servers_read_in_two_ways_is_refused_and_the_connection_closed() {
    let scene = Scene::new(WIDE).await;
    for (request, status) in [
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1|host: a|host: b", 400),
        ("GET / HTTP/1.1|host: a@b", 400),
        ("GET http://a@b/ HTTP/1.1|host: b", 400),
        ("GET a:80 HTTP/1.1|host: a", 400),
        ("GET * HTTP/1.1|host: a", 400),
        ("CONNECT a:80 HTTP/1.1|host: a:80", 405),
        (
            "POST / HTTP/1.1|host: a|content-length: 3|content-length: 4",
            400,
        ),
        ("POST / HTTP/1.1|host: a|content-length: 3, 3", 400),
        ("POST / HTTP/1.1|host: a|content-length: +3", 400),
        (
            "POST / HTTP/1.1|host: a|content-length: 3|transfer-encoding: chunked",
            400,
        ),
        (
            "POST / HTTP/1.1|host: a|content-length: 3|transfer-encoding: identity",
            400,
        ),
        (
            "POST / HTTP/1.1|host: a|content-length: 3|content-length: 3",
            400,
        ),
        ("POST / HTTP/1.1|host: a|content-length: 0x3", 400),
        ("POST / HTTP/1.1|host: a|content-length: -1", 400),
        (
            "POST / HTTP/1.1|host: a|content-length: 18446744073709551616",
            400,
        ),
        ("POST / HTTP/1.1|host: a|transfer-encoding : chunked", 400),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding: chunked|transfer-encoding: identity",
            400,
        ),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding: identity|transfer-encoding: chunked",
            501,
        ),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding: chunked;q=1",
            400,
        ),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding: \"chunked\"",
            400,
        ),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding:\u{b}chunked",
            400,
        ),
        ("POST / HTTP/1.1|host: a|transfer-encoding:| chunked", 400),
        ("POST / HTTP/1.1|host: a|transfer-encoding: xchunked", 400),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding: chunked, identity",
            400,
        ),
        ("POST / HTTP/1.0|host: a|transfer-encoding: chunked", 400),
        (
            "POST / HTTP/1.1|host: a|transfer-encoding: gzip, chunked",
            501,
        ),
    ] {
        let request = request.replace('|', "\r\n");
        let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
        let answer = scene.ask(&format!("{request}\r\n\r\n{smuggled}")).await;
        assert_eq!(answer.status(), status, "{request}");
        // There is one answer, and it is the last of the connection.
        assert!(!answer.body().contains("HTTP/1.1"), "{answer:?}");
    }
}

/// The upstream answers before it has the body, and then the body hides a request.
#[tokio::test]
async fn no_request_hides_behind_a_chunk_that_two_servers_read_in_two_ways() {
    let scene = Scene::new(WIDE).await;
    let hidden = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";
    for chunks in [
        "+0\r\n\r\n",
        "-0\r\n\r\n",
        "0x0\r\n\r\n",
        "\r\n\r\n",
        " 0\r\n\r\n",
        "10000000000000000\r\n\r\n",
        "0;a\n\r\n",
        "0;\rX\r\n\r\n",
        "0\n\n",
        "0\r\n\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "1\r\na0\r\n\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut stream = scene.connect().await;
        let request = format!("{head}{chunks}{hidden}");
        stream.write_all(request.as_bytes()).await.unwrap();
        // It may wait for more otherwise.
        stream.shutdown().await.unwrap();
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers).await;
        let answers = String::from_utf8(answers).unwrap();
        assert!(!answers.contains("/hidden"), "{chunks:?}: {answers}");
    }
    // A message that ends correctly is followed by the next request.
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let last = "GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let answer = scene.ask(&format!("{head}0\r\n\r\n{last}")).await;
    assert!(answer.body().contains("/next"), "{answer:?}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let scene = Scene::new(WIDE).await;
    let many: Vec<String> = (0..200)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    let many = many.concat();
    let long = format!("x-long: {}\r\n", "x".repeat(1 << 20));
    let target = format!("/{}", "x".repeat(100_000));
    for (target, fields, status) in [("/", &*many, 431), ("/", &*long, 431), (&*target, "", 431)] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let mut stream = scene.connect().await;
        // The gateway does not read all of it.
        let _ = stream.write_all(request.as_bytes()).await;
        let head = head(&mut stream).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
}

#[tokio::test]
async fn the_host_of_the_target_is_the_one_that_is_counted_and_forwarded() {
    let scene = Scene::new(DEAR).await;
    for (host, status) in [("one", 200), ("two", 429)] {
        let request = format!(
            "GET http://shop/dear/x?y HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        );
        let answer = scene.ask(&request).await;
        assert_eq!(answer.status(), status, "{answer:?}");
        if status == 200 {
            assert_eq!(answer.arrived()["uri"], "/dear/x?y");
            assert_eq!(answer.arrived()["headers"]["host"], "shop");
        }
    }
}

#[tokio::test]
async fn a_path_is_counted_in_every_spelling_and_forwarded_as_it_was_sent() {
    for path in [
        "/dear/1",
        "//dear//1",
        "/x/../dear/1",
        "/./dear/1",
        "/d%65ar/1",
        "/dear/%2e%2e/dear/1",
        "/dear%2F1",
        "/x/..%2fdear/1",
        "/x/..;/dear/1",
    ] {
        let scene = Scene::new(DEAR).await;
        // Only a question may have these headers.
        let forged = ["x-original-uri: /cheap", "x-forwarded-uri: /cheap"];
        let answer = scene.get(path, &forged).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.arrived()["uri"], path);
        assert_eq!(scene.get(path, &forged).await.status(), 429, "{path}");
    }
    let scene = Scene::new(DEAR).await;
    for path in ["/dears", "/x/..", "/cheap//a%2Fb/?c=//d"] {
        for _ in 0..2 {
            assert_eq!(scene.get(path, &[]).await.arrived()["uri"], path);
        }
    }
    let options = "OPTIONS * HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert_eq!(scene.ask(options).await.arrived()["uri"], "*");
}

#[tokio::test]
async fn a_refused_request_is_not_told_to_send_its_body() {
    let limits = DEAR.replace("/dear/*", "/*");
    let scene = Scene::new(&limits).await;
    let mut stream = scene.connect().await;
    let request = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 100"));
    let next = "okPOST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    stream.write_all(next.as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");
    assert!(!answers.contains("expect"), "{answers}");
    assert!(answers.contains("HTTP/1.1 429"), "{answers}");
    assert!(!answers.contains("HTTP/1.1 100"), "{answers}");
}

#[tokio::test]
async fn a_request_with_a_body_does_not_switch_protocols() {
    let scene = Scene::new(WIDE).await;
    for request in [
        "POST / HTTP/1.1\r\ncontent-length: 0",
        "GET / HTTP/1.1\r\ncontent-length: 2",
        "GET / HTTP/1.1\r\ntransfer-encoding: chunked",
    ] {
        let body = match request {
            _ if request.ends_with('0') => "",
            _ if request.ends_with('2') => "ok",
            _ => "0\r\n\r\n",
        };
        let fields = "host: a\r\nconnection: upgrade, close\r\nupgrade: websocket";
        let answer = scene
            .ask(&format!("{request}\r\n{fields}\r\n\r\n{body}"))
            .await;
        assert_eq!(answer.status(), 200, "{request}");
        let headers = &answer.arrived()["headers"];
        assert_eq!(headers["upgrade"], serde_json::Value::Null, "{request}");
    }
}

#[tokio::test]
async fn no_field_that_passes_for_a_counted_one_reaches_the_upstream() {
    let limits = "[policies.key]\nquota = \"9/minute\"\nkey = { api_key = \"x-token\" }\n";
    let scene = Scene::new(limits).await;
    let fields = ["x_token: forged", "x-token: own", "x_own: own"];
    let headers = scene.get("/", &fields).await.arrived()["headers"].clone();
    assert_eq!(headers["x-token"], "own");
    assert_eq!(headers["x_token"], serde_json::Value::Null);
    assert_eq!(headers["x_own"], "own");
}

#[tokio::test]
async fn requests_over_http_2_are_read_as_those_over_http_1() {
    let scene = Scene::new(DEAR).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Empty<bytes::Bytes>>();
    let request = |path: &str| {
        Request::get(format!("http://{}{path}", scene.address))
            .version(Version::HTTP_2)
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Empty::new())
            .unwrap()
    };
    let response = client.request(request("/dear/1")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let arrived: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(arrived["headers"]["cookie"], "a=1; b=2");
    assert_eq!(arrived["headers"]["host"], scene.address.to_string());
    let refused = client.request(request("/dear/2")).await.unwrap();
    assert_eq!(refused.status(), 429);
    let reserved = client
        .request(request("/a/../_limit/status"))
        .await
        .unwrap();
    assert_eq!(reserved.status(), 404);
}

#[tokio::test]
async fn an_upstream_removes_no_header_of_the_limit_and_tells_one_length() {
    let (listener, upstream) = listener().await;
    let scene = Scene::before(&upstream, WIDE).await;
    let serving = tokio::spawn(async move {
        let (mut upstream, _) = listener.accept().await.unwrap();
        head(&mut upstream).await;
        let response = "HTTP/1.1 200 OK\r\n\
            connection: ratelimit, ratelimit-policy, x-hop\r\nx-hop: 1\r\n\
            content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n";
        upstream.write_all(response.as_bytes()).await.unwrap();
        upstream
    });
    let answer = scene.get("/", &[]).await;
    serving.await.unwrap();
    assert!(answer.header("ratelimit").is_some(), "{answer:?}");
    assert!(answer.header("ratelimit-policy").is_some(), "{answer:?}");
    assert_eq!(answer.header("x-hop"), None);
    assert_eq!(answer.header("content-length"), None);
    assert_eq!(answer.body(), "5\r\nwhole\r\n0\r\n\r\n");
}

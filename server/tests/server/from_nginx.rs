//! A real nginx beside the limits that the guide makes of its lines. The model of it in `tests/limiter/migrating.rs` is asked at any time.

use std::net::SocketAddr;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::nginx::Nginx;
use super::scene::{LONG, Received, Scene, ask_at, listener};

const REQUEST: &str = "HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// How many requests have passed, and how many were refused.
type Counts = (usize, usize);

fn count((passed, refused): Counts, answer: &Received) -> Counts {
    match answer.status() {
        200 => (passed + 1, refused),
        429 => (passed, refused + 1),
        other => panic!("{other}"),
    }
}

/// Returns how thirty requests end, one after the other.
async fn passed(address: SocketAddr) -> Counts {
    let mut counts = (0, 0);
    for _ in 0..30 {
        counts = count(counts, &ask_at(address, REQUEST).await);
    }
    counts
}

/// At a request a minute, time plays no part.
#[tokio::test]
async fn as_many_requests_pass_as_in_nginx() {
    for (line, burst, expected) in [
        ("limit_req zone=a burst=20 nodelay;", 21, (21, 9)),
        ("limit_req zone=a burst=4 nodelay;", 5, (5, 25)),
        ("limit_req zone=a;", 1, (1, 29)),
        ("limit_req zone=a burst=40 nodelay;", 41, (30, 0)),
    ] {
        let scene = Scene::new(&format!(
            "[policies.addresses]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nburst = {burst}\nkey = \"client_ip\"\n"
        ))
        .await;
        let nginx = Nginx::start(1, |at| {
            format!(
                "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m; limit_req_status 429;\n\
                 server {{ listen {}; location / {{ {line} empty_gif; }} }}",
                at[0]
            )
        });
        let theirs = passed(nginx.addresses[0]).await;
        assert_eq!(theirs, expected, "{line}");
        assert_eq!(passed(scene.address).await, theirs, "{line}");
    }
}

/// Returns how those of ten requests end that do not wait, if so many wait.
async fn settled(address: SocketAddr, waiting: usize) -> Counts {
    let mut requests = JoinSet::new();
    for _ in 0..10 {
        requests.spawn(ask_at(address, REQUEST));
    }
    let mut counts = (0, 0);
    while requests.len() > waiting {
        let answer = timeout(LONG, requests.join_next()).await;
        counts = count(counts, &answer.expect("fewer wait").unwrap().unwrap());
    }
    counts
}

/// What waits does so for a minute and more.
#[tokio::test]
async fn as_many_requests_wait_as_in_nginx() {
    for (line, fields, waiting, expected) in [
        (
            "limit_req zone=a burst=4;",
            "algorithm = \"leaky-queue\"\nplaces = 4",
            4,
            (1, 5),
        ),
        (
            "limit_req zone=a burst=4 delay=2;",
            "algorithm = \"token-bucket\"\nburst = 3\nwait_up_to = \"120s\"",
            2,
            (3, 5),
        ),
    ] {
        let scene = Scene::new(&format!(
            "[policies.addresses]\nquota = \"1/minute\"\nkey = \"client_ip\"\n{fields}\n"
        ))
        .await;
        let nginx = Nginx::start(1, |at| {
            format!(
                "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m; limit_req_status 429;\n\
                 server {{ listen {}; location / {{ {line} empty_gif; }} }}",
                at[0]
            )
        });
        let theirs = settled(nginx.addresses[0], waiting).await;
        assert_eq!(theirs, expected, "{line}");
        assert_eq!(settled(scene.address, waiting).await, theirs, "{line}");
    }
}

#[tokio::test]
async fn as_many_requests_are_under_way_as_in_nginx() {
    // It takes connections, and answers nobody.
    let (silent, upstream) = listener().await;
    let limits = "[policies.connections]\nconcurrency = 3\nkey = \"client_ip\"\n";
    let scene = Scene::before(&upstream, limits).await;
    let nginx = Nginx::start(1, |at| {
        format!(
            "limit_conn_zone $binary_remote_addr zone=c:1m; limit_conn_status 429;\n\
             server {{ listen {}; location / {{ limit_conn c 3; proxy_pass {upstream}; }} }}",
            at[0]
        )
    });
    assert_eq!(settled(nginx.addresses[0], 3).await, (0, 7));
    assert_eq!(settled(scene.address, 3).await, (0, 7));
    drop(silent);
}

/// Of several limits, each is charged, or none.
#[tokio::test]
async fn several_limits_refuse_the_requests_that_nginx_refuses() {
    let scene = Scene::new(
        "[policies.addresses]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nburst = 5\nkey = \"client_ip\"\n\
         [policies.keys]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nburst = 2\nkey = { api_key = \"x-api-key\" }\n",
    )
    .await;
    let nginx = Nginx::start(1, |at| {
        format!(
            "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m; limit_req_zone $http_x_api_key zone=b:1m rate=1r/m;\n\
             limit_req_status 429;\n\
             server {{ listen {}; location / {{ limit_req zone=a burst=4 nodelay; limit_req zone=b burst=1 nodelay; empty_gif; }} }}",
            at[0]
        )
    });
    let keys = ["a", "a", "a", "b", "b", "b", "c", "c", "d"];
    let mut statuses = [Vec::new(), Vec::new()];
    for (address, statuses) in [nginx.addresses[0], scene.address]
        .into_iter()
        .zip(&mut statuses)
    {
        for key in keys {
            let request = format!(
                "HEAD / HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
            );
            statuses.push(ask_at(address, &request).await.status());
        }
    }
    let [theirs, ours] = statuses;
    assert_eq!(theirs, [200, 200, 429, 200, 200, 429, 200, 429, 429]);
    assert_eq!(ours, theirs);
}

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
    for (line, fields, expected) in [
        ("limit_req zone=a burst=20 nodelay;", "burst = 21", (21, 9)),
        ("limit_req zone=a burst=4 nodelay;", "burst = 5", (5, 25)),
        ("limit_req zone=a;", "burst = 1", (1, 29)),
        ("limit_req zone=a burst=40 nodelay;", "burst = 41", (30, 0)),
        (
            "limit_req zone=a burst=4 nodelay; limit_req_dry_run on;",
            "burst = 5\nmode = \"shadow\"",
            (30, 0),
        ),
    ] {
        let scene = Scene::new(&format!(
            "[policies.addresses]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nkey = \"client_ip\"\n{fields}\n"
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

/// With `limit_conn_dry_run`, all of ten requests are under way.
#[tokio::test]
async fn a_dry_run_refuses_no_request_that_is_under_way() {
    let (silent, upstream) = listener().await;
    let limits =
        "[policies.connections]\nconcurrency = 3\nkey = \"client_ip\"\nmode = \"shadow\"\n";
    let scene = Scene::before(&upstream, limits).await;
    let nginx = Nginx::start(1, |at| {
        format!(
            "limit_conn_zone $binary_remote_addr zone=c:1m; limit_conn_status 429;\n\
             server {{ listen {}; location / {{ limit_conn c 3; limit_conn_dry_run on; proxy_pass {upstream}; }} }}",
            at[0]
        )
    });
    for address in [nginx.addresses[0], scene.address] {
        let mut requests = JoinSet::new();
        let mut arrived = Vec::new();
        for _ in 0..10 {
            requests.spawn(ask_at(address, REQUEST));
            let accepted = timeout(LONG, silent.accept()).await;
            arrived.push(accepted.expect("a request is refused").unwrap());
        }
        requests.abort_all();
    }
}

/// Sends requests of these paths through a proxy that is trusted, with these addresses before it, and returns how they end.
async fn forwarded(address: SocketAddr, requests: &[(&str, &str)]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (path, chain) in requests {
        let request = format!(
            "HEAD {path} HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {chain}\r\nconnection: close\r\n\r\n"
        );
        statuses.push(ask_at(address, &request).await.status());
    }
    statuses
}

const REAL_IP: &str = "set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8;\n\
    real_ip_header X-Forwarded-For; real_ip_recursive on;\n";

const PROXIES: &str =
    "[proxies]\nnetworks = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\nheader = \"x-forwarded-for\"\n";

/// Which requests count, and by which address. The annotation `limit-whitelist` of ingress-nginx is a `geo` to an empty key.
#[tokio::test]
async fn addresses_are_found_and_spared_as_in_nginx() {
    for (option, lines, fields, expected) in [
        (
            "real_ip_recursive",
            "map $binary_remote_addr $counted { default $binary_remote_addr; }",
            "",
            [200, 429, 429, 429, 200, 200, 200, 429, 200, 429],
        ),
        (
            "geo and limit-whitelist",
            "geo $limited { default 1; 192.0.2.0/24 0; }\n\
             map $limited $counted { 0 \"\"; 1 $binary_remote_addr; }",
            "[lists]\nallow = { address = \"192.0.2.0/24\" }\n",
            [200, 429, 429, 429, 200, 200, 200, 429, 200, 200],
        ),
        (
            "map",
            "map $uri $counted { default \"\"; ~^/api/ $binary_remote_addr; }",
            "when = { path = \"/api/*\" }\n",
            [200, 200, 429, 429, 200, 200, 200, 200, 200, 429],
        ),
    ] {
        let requests = [
            ("/api/a", "203.0.113.7"),
            ("/", "203.0.113.7"),
            ("/api/a", "198.51.100.9, 203.0.113.7"),
            ("/api/a", "198.51.100.9, 203.0.113.7, 10.2.0.1"),
            ("/api/a", "203.0.113.7, 203.0.113.8"),
            ("/api/a", "203.0.113.7, 198.51.100.9, 10.2.0.1"),
            ("/", "10.3.0.1, 10.2.0.1"),
            ("/", "10.3.0.1"),
            ("/api/a", "192.0.2.1"),
            ("/api/a", "192.0.2.1"),
        ];
        let scene = Scene::new(&format!(
            "[policies.addresses]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nburst = 1\nkey = \"client_ip\"\n{fields}{PROXIES}"
        ))
        .await;
        let nginx = Nginx::start(1, |at| {
            format!(
                "{REAL_IP}{lines}\nlimit_req_zone $counted zone=a:1m rate=1r/m; limit_req_status 429;\n\
                 server {{ listen {}; location / {{ limit_req zone=a; empty_gif; }} }}",
                at[0]
            )
        });
        let theirs = forwarded(nginx.addresses[0], &requests).await;
        assert_eq!(theirs, expected, "{option}");
        let ours = forwarded(scene.address, &requests).await;
        assert_eq!(ours, theirs, "{option}");
    }
}

#[tokio::test]
async fn keys_of_other_variables_count_as_in_nginx() {
    for (variable, fields, expected) in [
        (
            "$http_x_api_key",
            "key = { api_key = \"x-api-key\" }\non_missing_key = \"skip\"",
            [200, 429, 429, 200, 200],
        ),
        (
            "$server_name",
            "key = { header = \"host\" }",
            [200, 429, 200, 429, 429],
        ),
    ] {
        let requests = [
            "host: a\r\nx-api-key: x",
            "host: a\r\nx-api-key: x",
            "host: b\r\nx-api-key: x",
            "host: b",
            "host: a",
        ];
        let scene = Scene::new(&format!(
            "[policies.keys]\nalgorithm = \"token-bucket\"\nquota = \"1/minute\"\nburst = 1\n{fields}\n"
        ))
        .await;
        let nginx = Nginx::start(1, |at| {
            let server = |name| {
                format!(
                    "server {{ listen {}; server_name {name}; location / {{ limit_req zone=a; empty_gif; }} }}\n",
                    at[0]
                )
            };
            format!(
                "limit_req_zone {variable} zone=a:1m rate=1r/m; limit_req_status 429;\n{}{}",
                server("a"),
                server("b")
            )
        });
        let mut statuses = [Vec::new(), Vec::new()];
        for (address, statuses) in [nginx.addresses[0], scene.address]
            .into_iter()
            .zip(&mut statuses)
        {
            for fields in requests {
                let request = format!("HEAD / HTTP/1.1\r\n{fields}\r\nconnection: close\r\n\r\n");
                statuses.push(ask_at(address, &request).await.status());
            }
        }
        let [theirs, ours] = statuses;
        assert_eq!(theirs, expected, "{variable}");
        assert_eq!(ours, theirs, "{variable}");
    }
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

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::nginx::Nginx;
use super::scene::{LONG, Scene, ask_at};

const LIMITS: &str = "
    [policies.writes]
    quota = \"1/minute\"
    key = \"client_ip\"
    when = { method = \"POST\", path = \"/dear/*\" }
    [proxies]
    networks = [\"127.0.0.0/8\"]
    header = \"x-forwarded-for\"
";

const POST: [&str; 3] = [
    "x-forwarded-for: 192.0.2.1",
    "x-original-method: POST",
    "x-original-uri: /dear/1?a=b",
];

#[tokio::test]
async fn a_question_is_about_the_original_request() {
    let scene = Scene::new(LIMITS).await;
    let answer = scene.get("/_limit/check", &POST).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("ratelimit"), Some("\"writes\";r=0;t=60"));
    let refused = scene.get("/_limit/check", &POST).await;
    assert_eq!(refused.status(), 429);
    let as_403 = scene.get("/_limit/check?refuse=403", &POST).await;
    assert_eq!(as_403.status(), 403);
    for name in [
        "ratelimit-policy",
        "ratelimit",
        "retry-after",
        "content-type",
    ] {
        assert!(refused.header(name).is_some(), "{name}");
        assert_eq!(as_403.header(name), refused.header(name), "{name}");
    }
    // The same state is behind the upstream.
    let post = "POST /dear/2 HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.1\r\n\
        content-length: 0\r\nconnection: close\r\n\r\n";
    assert_eq!(scene.ask(post).await.status(), 429);

    for other in [
        ["x-forwarded-for: 192.0.2.2", POST[1], POST[2]],
        [POST[0], "x-original-method: GET", POST[2]],
        [POST[0], POST[1], "x-original-uri: /cheap"],
        [
            POST[0],
            "x-forwarded-method: GET",
            "x-forwarded-uri: /dear/1",
        ],
    ] {
        let answer = scene.get("/_limit/check", &other).await;
        assert_eq!(answer.status(), 200, "{other:?}");
    }
}

/// The fields as each proxy sends them, for `POST /dear/1?a=b` of a client.
#[tokio::test]
async fn each_proxy_asks_in_its_own_words() {
    for (proxy, fields) in [
        ("nginx", &POST[1..]),
        (
            "Caddy",
            &[
                "x-forwarded-method: POST",
                "x-forwarded-uri: /dear/1?a=b",
                "x-forwarded-host: shop",
                "x-forwarded-proto: https",
            ],
        ),
        (
            "Traefik",
            &[
                "x-forwarded-method: POST",
                "x-forwarded-uri: /dear/1?a=b",
                "x-forwarded-host: shop",
                "x-forwarded-port: 443",
                "x-forwarded-proto: https",
                "x-forwarded-server: edge",
                "x-real-ip: 192.0.2.1",
            ],
        ),
    ] {
        let scene = Scene::new(LIMITS).await;
        let fields = [&POST[..1], fields].concat();
        for (status, as_403) in [(200, false), (429, false), (403, true)] {
            let path = if as_403 {
                "/_limit/check?refuse=403"
            } else {
                "/_limit/check"
            };
            let answer = scene.get(path, &fields).await;
            assert_eq!(answer.status(), status, "{proxy}");
            assert!(answer.header("ratelimit").is_some(), "{proxy}");
        }
    }
}

#[tokio::test]
async fn a_limit_by_host_is_that_of_the_original_host() {
    let limits = "
        [policies.shop]
        quota = \"1/minute\"
        key = { header = \"host\" }
        when = { header = { host = [\"shop.example\", \"blog.example\"] } }
    ";
    let scene = Scene::new(limits).await;
    for (host, status) in [
        ("shop.example", 200),
        ("shop.example", 429),
        ("blog.example", 200),
        ("other.example", 200),
        ("other.example", 200),
        ("blog.example", 429),
    ] {
        let field = format!("x-forwarded-host: {host}");
        let answer = scene.get("/_limit/check", &[&field]).await;
        assert_eq!(answer.status(), status, "{host}");
    }
}

/// The limits, and how many requests they let pass.
const REFUSING: [(&str, &str, u16, usize); 6] = [
    (
        "a policy",
        "[policies.a]\nquota = \"3/minute\"\nkey = \"client_ip\"",
        429,
        3,
    ),
    (
        "a limit of nothing",
        "[policies.a]\nquota = \"0/minute\"\nkey = \"client_ip\"",
        429,
        0,
    ),
    (
        "a list",
        "[policies.a]\nquota = \"9/minute\"\nkey = \"client_ip\"\n[lists]\ndeny = { path = \"/\" }",
        403,
        0,
    ),
    (
        "a key",
        "[policies.a]\nquota = \"9/minute\"\nkey = { header = \"x-token\" }\non_missing_key = 401",
        401,
        0,
    ),
    (
        "calls of every kind",
        "[policies.a]\nquota = \"3/minute\"\nkey = \"client_ip\"\n[responses]\ngrpc = { calls = \"always\" }",
        429,
        3,
    ),
    (
        "a limit by the content type",
        "[policies.a]\nquota = \"3/minute\"\nkey = { header = \"content-type\" }\n[responses]\nrefusal_status = 420",
        420,
        3,
    ),
];

#[tokio::test]
async fn a_refusal_of_grpc_is_no_yes_to_a_proxy() {
    for (what, limits, refused, admitted) in REFUSING {
        for content_type in [
            "application/json",
            "application/grpc",
            "Application/GRPC",
            "application/grpc+proto",
            "application/grpc ;a=b",
            "application/grpc-web",
            "application/grpc-web-text",
            "application/grpc-web+proto",
            "APPLICATION/GRPC-WEB-TEXT+proto; a=b",
        ] {
            for (path, refused) in [
                ("/_limit/check", refused),
                ("/_limit/check?refuse=403", 403),
            ] {
                let scene = Scene::new(limits).await;
                let field = format!("content-type: {content_type}");
                for number in 0..admitted + 2 {
                    let expected = if number < admitted { 200 } else { refused };
                    let answer = scene.get(path, &[&field]).await;
                    let case = format!("{what}, {content_type}, {path}, {number}");
                    assert_eq!(answer.status(), expected, "{case}: {answer:?}");
                    assert_eq!(answer.header("grpc-status"), None, "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_reserved_is_never_forwarded() {
    let scene = Scene::new(LIMITS).await;
    for path in [
        "/_limit",
        "/_limit/",
        "/_limit/other",
        "//_limit/check",
        "//_limit/status",
        "/%5flimit/x",
        "/_limit/../x",
        "/x/../_limit/status",
        "/x/..%2f_limit/status",
        "/_limit/status/",
        "/_limit;x/",
        "/%255flimit/",
        "/_LIMIT/",
    ] {
        let answer = scene.get(path, &[]).await;
        assert_eq!(answer.status(), 404, "{path}");
    }
    // A client behind the proxy has sent it.
    let answer = scene.get("/_limit/status", &POST[..1]).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(scene.get("/_limits", &[]).await.status(), 200);
}

#[tokio::test]
async fn a_question_that_contradicts_itself_is_no_yes() {
    let scene = Scene::new(LIMITS).await;
    let fields = ["x-original-uri: /dear/1", "x-forwarded-uri: /cheap"];
    assert_eq!(scene.get("/_limit/check", &fields).await.status(), 400);
    let answer = scene.get("/_limit/check?refuse=403", &fields).await;
    assert_eq!(answer.status(), 403);
}

#[tokio::test]
async fn a_question_with_two_readings_is_a_403_where_each_refusal_is_one() {
    let scene = Scene::new(LIMITS).await;
    for (path, expected) in [("/_limit/check", 400), ("/_limit/check?refuse=403", 403)] {
        let question = format!("GET {path} HTTP/1.1\r\nhost: a@b\r\nconnection: close\r\n\r\n");
        assert_eq!(scene.ask(&question).await.status(), expected, "{path}");
    }
}

/// Starts nginx as the guide configures it, with these addresses and this patience with the gateway.
fn of_the_guide(gateway: SocketAddr, upstream: SocketAddr, patience: Duration) -> Nginx {
    const GUIDE: &str = include_str!("../../docs/server.md");
    let (_, server) = GUIDE.split_once("```nginx\n").unwrap();
    let (server, _) = server.split_once("```").unwrap();
    Nginx::start(1, |at| {
        let server = server
            .replace("listen 8000", &format!("listen {}", at[0]))
            .replace("127.0.0.1:3000", &gateway.to_string())
            .replace("127.0.0.1:8080", &upstream.to_string())
            // A gateway on a busy machine may answer late, and one that is away never does.
            .replace(
                "read_timeout 1s",
                &format!("read_timeout {}s", patience.as_secs()),
            );
        format!("large_client_header_buffers 4 128k;\n{server}")
    })
}

/// nginx takes each status of the question but 2xx, 401 and 403 for a fault of its own.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_as_the_guide_configures_it_refuses_what_the_gateway_cannot_read() {
    let limits = "[policies.a]\nquota = \"3/minute\"\nkey = { header = \"x-token\" }\non_missing_key = \"skip\"\n";
    let scene = Scene::new(limits).await;
    let upstream = Scene::new(super::scene::WIDE).await;
    let nginx = of_the_guide(scene.address, upstream.address, LONG);
    let long = format!("x-long: {}", "x".repeat(70 << 10));
    for (fields, expected) in [
        ("x-a: 1", 200),
        ("x-token: 1", 200),
        ("x-token: 1\r\nx-token: 2", 429),
        (&*long, 429),
        (&*long, 429),
        ("x-a: 1", 200),
    ] {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n\r\n");
        let answer = ask_at(nginx.addresses[0], &head).await;
        let shown: String = fields.chars().take(30).collect();
        assert_eq!(answer.status(), expected, "{shown}");
    }
}

/// By default nginx asks with the host of `proxy_pass`, which is that of all sites.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_as_the_guide_configures_it_tells_the_host() {
    let limits = "[policies.a]\nquota = \"1/minute\"\nkey = { header = \"host\" }\n";
    let scene = Scene::new(limits).await;
    let upstream = Scene::new(super::scene::WIDE).await;
    let nginx = of_the_guide(scene.address, upstream.address, LONG);
    for (fields, expected) in [
        ("host: shop.example", 200),
        ("host: blog.example", 200),
        ("host: SHOP.example.", 429),
        ("host: blog.example:80\r\nx-forwarded-host: other", 429),
    ] {
        let head = format!("GET / HTTP/1.1\r\nconnection: close\r\n{fields}\r\n\r\n");
        let answer = ask_at(nginx.addresses[0], &head).await;
        assert_eq!(answer.status(), expected, "{fields}");
    }
}

/// By default nginx answers each request with 500.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_as_the_guide_configures_it_lets_requests_pass_while_the_gateway_is_away() {
    let upstream = Scene::new(super::scene::WIDE).await;
    // Nothing listens there.
    let away = SocketAddr::from(([127, 0, 0, 1], 1));
    // The system accepts its connections, and nothing answers.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    for gateway in [away, mute.local_addr().unwrap()] {
        let nginx = of_the_guide(gateway, upstream.address, Duration::from_secs(1));
        for _ in 0..3 {
            let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            let answer = ask_at(nginx.addresses[0], head).await;
            assert_eq!(answer.status(), 200, "{gateway}");
        }
    }
}

//! The service over gRPC, and the program that serves it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use ratelimitd::envoy::messages::envoy::r#type::v3::RateLimitUnit;
use ratelimitd::phase::Phase;
use ratelimitd::ratelimit::{NoAnswer, Options, RateLimits};
use ratelimitd::server::{self, Answers, Bounds};
use ratelimitd::socket::Socket;
use ratelimitd::{Gateway, Limits, envoy};
use serde_json::Value;
use tokio::sync::watch;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{NotServing, Serving};
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tower_ratelimit::RedisStore;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::middleware::Deadline;

use super::super::process::{HOST, Server, get};
use super::super::program::{failed, printed};
use super::super::scene::{LONG, listener};
use super::{Folder, With, descriptor, passes, request};

const FILE: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Serves these limits, and returns where.
async fn serve(limits: impl Into<Option<RateLimits>>) -> (SocketAddr, watch::Sender<Phase>) {
    let (listener, _) = listener().await;
    let address = listener.local_addr().unwrap();
    let gateway = Gateway::new(Limits::none(None).unwrap(), None).answer_descriptors(limits);
    let phase = watch::Sender::new(Phase::Ready);
    let answers = Answers::Envoy(envoy::router(gateway, phase.subscribe()).unwrap());
    let server = server::Server::new(Bounds::default(), phase.subscribe());
    tokio::spawn(server.serve(Socket::Tcp(listener), answers));
    (address, phase)
}

fn limits(folder: &Folder) -> RateLimits {
    RateLimits::read(folder.path(), Options::default(), LimiterBuilder::build).unwrap()
}

pub(crate) async fn call(
    address: SocketAddr,
    request: tonic::Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let answer = client.unary(request, path.parse().unwrap(), codec).await;
    Ok(answer?.into_inner())
}

fn tenant() -> tonic::Request<RateLimitRequest> {
    tonic::Request::new(request(vec![descriptor(&[("tenant", "gold")])]))
}

#[tokio::test]
async fn a_call_is_answered_by_the_file_and_a_mistake_by_its_code() {
    let folder = Folder::of(&[("shop.yaml", FILE)]);
    let (address, phase) = serve(limits(&folder)).await;
    let passed = call(address, tenant()).await.unwrap();
    assert!(passes(&passed));
    assert!(!passes(&call(address, tenant()).await.unwrap()));
    let empty = tonic::Request::new(RateLimitRequest::default());
    let error = call(address, empty).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::InvalidArgument,
            "domain is empty; send the domain of a file"
        )
    );

    // Its health is that of the server.
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let mut status = async || {
        let mut of = async |service: &str| {
            let service = service.to_owned();
            let answer = health.check(HealthCheckRequest { service }).await.unwrap();
            answer.into_inner().status()
        };
        let status = of("envoy.service.ratelimit.v3.RateLimitService").await;
        assert_eq!(
            of("ratelimit").await,
            status,
            "for probes of the other service"
        );
        status
    };
    assert_eq!(status().await, Serving);
    phase.send_replace(Phase::Draining);
    while status().await != NotServing {
        tokio::task::yield_now().await;
    }
    assert!(
        !passes(&call(address, tenant()).await.unwrap()),
        "it serves on"
    );
}

/// Envoy sends the bytes of a header as they are, and lets the request pass if it gets an error.
#[tokio::test]
async fn a_value_may_be_any_bytes_and_is_counted_apart() {
    let folder = Folder::of(&[("shop.yaml", FILE)]);
    let (address, _phase) = serve(limits(&folder)).await;
    let ask = async |value: &[u8]| {
        let mut tenant = descriptor(&[("tenant", "")]);
        tenant.entries[0].value = value.to_owned();
        let answer = call(address, tonic::Request::new(request(vec![tenant]))).await;
        passes(&answer.unwrap())
    };
    assert!(ask(b"\xff").await);
    assert!(!ask(b"\xff").await);
    assert!(ask(b"\xfe").await);
    assert!(ask("\u{fffd}".as_bytes()).await);
}

#[tokio::test]
async fn without_files_the_service_is_not_there() {
    let (address, _phase) = serve(None).await;
    assert_eq!(
        call(address, tenant()).await.unwrap_err().code(),
        Code::Unimplemented
    );
}

/// A store that is not there, for limits that decide so meanwhile.
fn away(on_store_failure: &str) -> (Folder, RateLimits) {
    let file = FILE.replace(
        "requests_per_unit: 1",
        &format!("requests_per_unit: 1, on_store_failure: {on_store_failure}"),
    );
    let folder = Folder::of(&[("shop.yaml", &file)]);
    // Nothing listens on the port of a listener that is closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let store = RedisStore::builder().deadline(Duration::from_millis(5));
    let store = store.open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let options = Options {
        time: Duration::from_secs(60),
        ..Options::default()
    };
    let limits = RateLimits::read(folder.path(), options, move |builder| {
        builder.store(store.clone()).build()
    });
    (folder, limits.unwrap())
}

#[tokio::test]
async fn while_the_store_is_away_each_limit_decides_as_it_says() {
    let (_folder, limits) = away("refuse");
    let (address, _phase) = serve(limits).await;
    let error = call(address, tenant()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");

    let (_folder, limits) = away("local");
    let (address, _phase) = serve(limits).await;
    assert!(passes(&call(address, tenant()).await.unwrap()));
    assert!(!passes(&call(address, tenant()).await.unwrap()));

    let (_folder, limits) = away("allow");
    let (address, _phase) = serve(limits).await;
    for _ in 0..3 {
        let answer = call(address, tenant()).await.unwrap();
        assert!(passes(&answer));
        assert_eq!(answer.statuses.len(), 1);
    }
}

/// Limits over a store that takes all and answers nothing, one of four nodes. It would give up after a minute.
fn mute(rate_limit: &str, options: Options) -> (std::net::TcpListener, Folder, RateLimits) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let file = format!(
        "domain: shop\ndescriptors:\n- key: tenant\n  rate_limit: {{ unit: hour, {rate_limit} }}\n"
    );
    let folder = Folder::of(&[("shop.yaml", &file)]);
    let store = RedisStore::builder().deadline(Duration::from_secs(60));
    let store = store.nodes(4).open(format!("redis://{address}/")).unwrap();
    let limits = RateLimits::read(folder.path(), options, move |builder| {
        builder.store(store.clone()).build()
    });
    (listener, folder, limits.unwrap())
}

#[tokio::test]
async fn a_call_that_the_store_does_not_answer_in_time_is_decided_as_each_limit_says() {
    const TIME: Duration = Duration::from_millis(20);
    let within = |time| Options {
        time,
        ..Options::default()
    };
    let tenant = || request(vec![descriptor(&[("tenant", "gold")])]);
    let own = descriptor(&[("any", "x")]).under(8, RateLimitUnit::Hour);
    let mut of_two_hours = own.clone();
    of_two_hours.limit.as_mut().unwrap().unit_multiplier = Some(2);
    let late = NoAnswer::Unavailable("the store has not answered in time".to_owned());
    let begun = Instant::now();
    // This node has a quarter of each limit.
    for (limit, question, passing) in [
        ("requests_per_unit: 8", tenant(), 2),
        ("requests_per_unit: 8", request(vec![own]), 2),
        (
            "requests_per_unit: 8",
            request(vec![of_two_hours.clone()]),
            2,
        ),
        ("requests_per_unit: 8, settles: true", tenant(), 2),
        ("requests_per_unit: 8, on_store_failure: allow", tenant(), 4),
        (
            "requests_per_unit: 8, on_store_failure: refuse",
            tenant(),
            0,
        ),
    ] {
        let (_redis, _folder, limits) = mute(limit, within(TIME));
        for number in 0..4 {
            let asking = Instant::now();
            match limits.ask(question.clone(), None).await {
                Ok(answer) => assert_eq!(passes(&answer), number < passing, "{limit}: {number}"),
                Err(error) => assert_eq!((error, passing), (late.clone(), 0), "{limit}"),
            }
            assert!(asking.elapsed() >= TIME, "{limit}");
        }
    }
    // The limiter that a new period brings knows what was counted before.
    let (_redis, _folder, limits) = mute("requests_per_unit: 8", within(TIME));
    for (question, passing) in [
        (tenant(), true),
        (tenant(), true),
        (request(vec![of_two_hours]), true),
        (tenant(), false),
    ] {
        assert_eq!(passes(&limits.ask(question, None).await.unwrap()), passing);
    }
    // The time of the call comes before that of the options.
    let (_redis, _folder, limits) = mute("requests_per_unit: 8", within(LONG));
    let answer = limits
        .ask(tenant(), Some(Deadline::after(TIME)))
        .await
        .unwrap();
    let status = &answer.statuses[0];
    assert_eq!(
        (
            status.current_limit.as_ref().unwrap().requests_per_unit,
            status.limit_remaining
        ),
        (2, 1)
    );
    // Far from a minute for each.
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn the_program_checks_and_explains_a_directory() {
    let folder = Folder::of(&[("shop.yaml", FILE)]);
    let file = folder.0.join("shop.yaml");
    let file = file.to_str().unwrap();
    assert_eq!(
        printed(&["check", folder.path()]),
        format!("domain shop, {file}:\n  line 5: tenant: fixed-window 1/hour\n")
    );
    let explained = |entry| {
        printed(&[
            "explain",
            folder.path(),
            "--domain",
            "shop",
            "--entry",
            entry,
        ])
    };
    assert_eq!(
        explained("tenant=gold"),
        format!(
            "(tenant, gold): fixed-window 1/hour\n  by {file}:5: tenant\n  its state: policy \"shop/tenant\"\n"
        )
    );
    assert_eq!(
        explained("path=/"),
        format!("(path, /): no limit\n  no descriptor at the top of {file} has (path, /)\n")
    );
    let (code, error) = failed(
        &[
            "explain",
            folder.path(),
            "--domain",
            "other",
            "--entry",
            "a=b",
        ],
        &[],
    );
    assert_eq!(
        (code, &*error),
        (
            Some(1),
            &*format!(
                "--domain: {} has no \"other\"; the domains are: shop\n",
                folder.path()
            )
        )
    );

    folder.write("shop.yaml", "domain: shop\ndescriptors:\n- kei: x\n");
    let (code, error) = failed(&["check", folder.path()], &[]);
    assert!(
        code == Some(1)
            && error.contains("shop.yaml:3:3: descriptors[0]: config error, unknown key 'kei'"),
        "{error}"
    );
    let serve = [
        "serve",
        "--ratelimit-config",
        folder.path(),
        "--listen",
        "none",
        "--ops",
        "none",
        "--grpc",
        "127.0.0.1:0",
    ];
    let (code, error) = failed(&serve, &[]);
    assert!(
        code == Some(1) && error.contains("unknown key 'kei'"),
        "{error}"
    );
}

/// Returns the status and the body of the response.
pub(crate) fn post(address: &str, path: &str, body: &str) -> (u16, String) {
    let mut client = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).unwrap();
    // A body that is too large is not read to its end.
    let _ = client.write_all(body.as_bytes());
    let mut response = Vec::new();
    let _ = client.read_to_end(&mut response);
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[test]
fn a_question_may_come_as_json() {
    let folder = Folder::of(&[("shop.yaml", FILE)]);
    let server = Server::start(&["--ratelimit-config", folder.path(), "--grpc", "127.0.0.1:0"]);
    let question = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "gold"}], "hitsAddend": "1"}]}"#;
    let passed = post(&server.clients, "/json", question);
    let json: serde_json::Value = serde_json::from_str(&passed.1).unwrap();
    assert_eq!(passed.0, 200, "{json}");
    assert_eq!(json["overallCode"], "OK");
    let status = &json["statuses"][0];
    assert_eq!(
        status["currentLimit"],
        serde_json::json!({ "requestsPerUnit": 1, "unit": "HOUR" })
    );
    let reset = status["durationUntilReset"].as_str().unwrap();
    assert!(reset.ends_with('s') && reset != "0s", "{reset}");

    // The built-in limit is not in force.
    let answer = get(&server.clients, "/_limit/check", HOST);
    assert!(!answer.contains("ratelimit"), "{answer}");

    let refused = post(&server.clients, "/json", question);
    assert!(
        refused.0 == 429 && refused.1.contains("OVER_LIMIT") && refused.1.contains("retry-after"),
        "{refused:?}"
    );
    for (body, expected) in [
        ("", "this is no RateLimitRequest: EOF"),
        ("{\"domain\": 1}", "this is no RateLimitRequest: "),
        ("{\"domains\": []}", "unrecognized field"),
        ("{} x", "trailing characters"),
        ("{}", "domain is empty; send"),
    ] {
        let (status, text) = post(&server.clients, "/json", body);
        assert!(
            status == 400 && text.contains(expected),
            "{body}: {status} {text}"
        );
    }
    let large = " ".repeat(2 << 20);
    assert_eq!(post(&server.clients, "/json", &large).0, 413);
    assert_eq!(post(&server.clients, "/other", question).0, 404);
}

#[test]
fn a_question_as_json_has_503_where_the_store_is_away_and_the_limit_refuses_then() {
    let table = |more: &str| {
        let limit = "domain = \"shop\"\nentries = [\"tenant\"]\nquota = \"9/hour\"\n";
        format!("[[envoy]]\n{limit}{more}[store]\nredis = \"redis://127.0.0.1:1/\"\n")
    };
    let question =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "gold"}]}]}"#;
    for (more, expected) in [("", 200), ("on_store_failure = \"refuse\"\n", 503)] {
        let folder = Folder::of(&[("limits.toml", &table(more))]);
        let server = Server::start(&[folder.0.join("limits.toml").to_str().unwrap()]);
        let (status, body) = post(&server.clients, "/json", question);
        assert_eq!(status, expected, "{body}");
        let failed = u32::from(expected == 503);
        let line = format!(
            "ratelimitd_descriptor_failed_calls_total{{reason=\"unavailable\"}} {failed}\n"
        );
        let metrics = server.ops("/metrics", HOST);
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[test]
fn a_call_that_is_refused_has_a_line_of_the_log() {
    let file = FILE.replace("{ unit", "{ name: one_an_hour, unit");
    let folder = Folder::of(&[("shop.yaml", &file)]);
    let arguments = ["--ratelimit-config", folder.path(), "--log", "json"];
    let mut server = Server::start(&arguments);
    let question =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "gold"}]}]}"#;
    for expected in [200, 429] {
        assert_eq!(post(&server.clients, "/json", question).0, expected);
    }
    let lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let refused = events.find(|event| event["message"] == "a request was refused");
    let refused = refused.unwrap();
    assert_eq!(refused["policy"], "one_an_hour");
    assert_eq!(refused["status"], 429);
}

#[test]
fn what_is_decided_is_counted_under_our_names_and_under_theirs_if_asked() {
    let folder = Folder::of(&[("shop.yaml", FILE)]);
    for (names, expected) in [
        (
            "own",
            &[
                "ratelimitd_descriptor_units_total{domain=\"shop\",descriptor=\"tenant\",outcome=\"asked\"} 2",
                "ratelimitd_descriptor_units_total{domain=\"shop\",descriptor=\"tenant\",outcome=\"within\"} 1",
                "ratelimitd_descriptor_units_total{domain=\"shop\",descriptor=\"tenant\",outcome=\"over\"} 1",
                "ratelimitd_descriptor_near_limit_units_total{domain=\"shop\",descriptor=\"tenant\"} 1",
                "ratelimitd_descriptor_failed_calls_total{reason=\"invalid\"} 1",
                "ratelimitd_descriptor_unknown_domain_total 1",
                "ratelimitd_descriptor_calls_without_store_total 0",
                "ratelimitd_descriptor_shadowed_calls_total 0",
                "ratelimitd_descriptor_calls_total 4",
            ][..],
        ),
        (
            "envoy",
            &[
                "ratelimit_service_rate_limit_domain_not_found 1",
                "ratelimit_service_response_time_seconds_bucket{grpc_method=\"ShouldRateLimit\",le=\"+Inf\"} 4",
                "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 4",
                "ratelimit_service_global_shadow_mode 0",
                "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"tenant\"} 2",
                "ratelimit_service_rate_limit_within_limit{domain=\"shop\",key1=\"tenant\"} 1",
                "ratelimit_service_rate_limit_over_limit{domain=\"shop\",key1=\"tenant\"} 1",
                "ratelimit_service_rate_limit_near_limit{domain=\"shop\",key1=\"tenant\"} 1",
                "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 1",
                "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 4",
                "ratelimit_service_config_load_success 1",
                "ratelimitd_descriptor_calls_total 4",
            ][..],
        ),
    ] {
        let server = Server::start(&["--ratelimit-config", folder.path(), "--stats", names]);
        let entry = "\"descriptors\": [{\"entries\": [{\"key\": \"tenant\", \"value\": \"a\"}]}]";
        for domain in ["shop", "shop", "other", ""] {
            post(
                &server.clients,
                "/json",
                &format!("{{\"domain\": \"{domain}\", {entry}}}"),
            );
        }
        let metrics = server.ops("/metrics", HOST);
        for line in expected {
            assert!(
                metrics.contains(&format!("\n{line}\n")),
                "{line} is not in\n{metrics}"
            );
        }
        let status = server.ops("/status", HOST);
        assert!(status.contains("\"domains\":\"shop\""), "{status}");
        // Without a file of limits, nothing else is limited.
        assert!(!metrics.contains("policy=\"address\""), "{metrics}");
    }
}

#[test]
fn the_metrics_have_values_where_the_file_says_so_and_what_fails() {
    let file = "
domain: shop
descriptors:
- key: tenant
  detailed_metric: true
  rate_limit: { unit: hour, requests_per_unit: 9 }
- key: path
  value_to_metric: true
  descriptors:
  - key: user
    descriptors:
    - key: method
      shadow_mode: true
      rate_limit: { unit: hour, requests_per_unit: 0 }
";
    for (names, expected) in [
        (
            "own",
            [
                "ratelimitd_descriptor_units_total{domain=\"shop\",descriptor=\"tenant_gold\",outcome=\"asked\"} 1",
                "ratelimitd_descriptor_units_total{domain=\"shop\",descriptor=\"path_/a.user.method\",outcome=\"asked\"} 1",
                "ratelimitd_descriptor_config_error 1",
            ],
        ),
        (
            "envoy",
            [
                "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"tenant_gold\"} 1",
                "ratelimit_service_rate_limit_shadow_mode{domain=\"shop\",key1=\"path_/a\",key2=\"user.method\"} 1",
                "ratelimit_service_config_load_error 1",
            ],
        ),
    ] {
        let folder = Folder::of(&[("shop.yaml", file)]);
        let server = Server::start(&["--ratelimit-config", folder.path(), "--stats", names]);
        for entries in [
            "{\"key\":\"tenant\",\"value\":\"gold\"}",
            "{\"key\":\"path\",\"value\":\"/a\"},{\"key\":\"user\",\"value\":\"ann\"},{\"key\":\"method\",\"value\":\"GET\"}",
        ] {
            let question =
                format!("{{\"domain\":\"shop\",\"descriptors\":[{{\"entries\":[{entries}]}}]}}");
            assert_eq!(post(&server.clients, "/json", &question).0, 200);
        }
        folder.write("shop.yaml", "domain: [");
        server.signal("HUP");
        let begun = Instant::now();
        for line in expected {
            let line = format!("\n{line}\n");
            // The signal is on its way.
            while !server.ops("/metrics", HOST).contains(&line) {
                let metrics = server.ops("/metrics", HOST);
                assert!(begun.elapsed() < LONG, "{line} is not in\n{metrics}");
            }
        }
    }
}

#[test]
fn in_shadow_all_requests_pass_and_those_over_a_limit_are_counted() {
    let folder = Folder::of(&[("shop.yaml", FILE)]);
    let server = Server::start(&[
        "--ratelimit-config",
        folder.path(),
        "--shadow-descriptors",
        "--stats",
        "envoy",
    ]);
    let question =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "gold"}]}]}"#;
    for code in ["OK", "OVER_LIMIT", "OVER_LIMIT"] {
        let (status, answer) = post(&server.clients, "/json", question);
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, &json["overallCode"]),
            (200, &"OK".into()),
            "{json}"
        );
        assert_eq!(json["statuses"][0]["code"], code, "{json}");
        assert!(!answer.contains("retry-after"), "{json}");
    }
    let metrics = server.ops("/metrics", HOST);
    for line in [
        "ratelimit_service_global_shadow_mode 2",
        "ratelimit_service_rate_limit_over_limit{domain=\"shop\",key1=\"tenant\"} 2",
    ] {
        assert!(
            metrics.contains(&format!("\n{line}\n")),
            "{line} is not in\n{metrics}"
        );
    }
}

/// A limit that refuses while its store is away would fail the call.
#[tokio::test]
async fn in_shadow_a_request_passes_without_the_store_too() {
    let options = Options {
        is_shadow: true,
        time: Duration::from_millis(20),
        ..Options::default()
    };
    for on_store_failure in ["local", "allow", "refuse"] {
        let limit = format!("requests_per_unit: 0, on_store_failure: {on_store_failure}");
        let (_redis, _folder, limits) = mute(&limit, options.clone());
        let answer = limits.ask(request(vec![descriptor(&[("tenant", "gold")])]), None);
        assert!(passes(&answer.await.unwrap()), "{on_store_failure}");
    }
}

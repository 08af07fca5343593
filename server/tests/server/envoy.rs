//! External authorization, as Envoy asks for it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use ratelimitd::envoy::messages::envoy::config::core::v3::{
    Address, HeaderMap, HeaderValue, SocketAddress, address, socket_address::PortSpecifier,
};
use ratelimitd::envoy::messages::envoy::service::auth::v3::attribute_context::{
    HttpRequest, Peer, Request,
};
use ratelimitd::envoy::messages::envoy::service::auth::v3::check_response::HttpResponse;
use ratelimitd::envoy::messages::envoy::service::auth::v3::{
    AttributeContext, CheckRequest, CheckResponse,
};
use ratelimitd::phase::Phase;
use ratelimitd::server::{Answers, Bounds, Server};
use ratelimitd::socket::Socket;
use ratelimitd::{Gateway, Limits, envoy};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::scene::{LONG, WIDE, listener};
use tower_ratelimit_config::Config;

/// A server that Envoy asks.
struct Envoy {
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    serving: JoinHandle<()>,
}

impl Envoy {
    async fn before(file: &str) -> Self {
        let (listener, _) = listener().await;
        let address = listener.local_addr().unwrap();
        let config: Config = file.parse().unwrap();
        let layer = config.layer().unwrap();
        let gateway = Gateway::new(Limits::Text { config, layer }, None);
        let phase = watch::Sender::new(Phase::Ready);
        let answers = Answers::Envoy(envoy::router(gateway, phase.subscribe()).unwrap());
        let server = Server::new(Bounds::default(), phase.subscribe());
        let serving = tokio::spawn(server.serve(Socket::Tcp(listener), answers));
        Self {
            address,
            phase,
            serving,
        }
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn ask(&self, request: CheckRequest) -> Result<CheckResponse, Status> {
        self.ask_within(request, LONG).await
    }

    async fn ask_within(
        &self,
        request: CheckRequest,
        time: Duration,
    ) -> Result<CheckResponse, Status> {
        let mut request = tonic::Request::new(request);
        request.set_timeout(time);
        self.call(request).await
    }

    async fn call(&self, request: tonic::Request<CheckRequest>) -> Result<CheckResponse, Status> {
        let mut client = Grpc::new(self.channel().await);
        client.ready().await.unwrap();
        let path = "/envoy.service.auth.v3.Authorization/Check"
            .parse()
            .unwrap();
        let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
        Ok(client.unary(request, path, codec).await?.into_inner())
    }

    /// Returns the status, or 200.
    async fn status(&self, http: HttpRequest) -> i32 {
        denied(&self.ask(from("192.0.2.1", http)).await.unwrap()).map_or(200, |(status, ..)| status)
    }
}

fn get(path: &str) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        path: path.to_owned(),
        host: "shop.example".to_owned(),
        ..HttpRequest::default()
    }
}

/// As Envoy joins fields of one name.
fn joined(fields: &[(&str, &str)]) -> HttpRequest {
    let headers = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    HttpRequest {
        headers: headers.collect::<HashMap<_, _>>(),
        ..get("/")
    }
}

/// As Envoy sends fields with `encode_raw_headers`.
fn raw(fields: &[(&str, &str)]) -> HttpRequest {
    let headers = fields.iter().map(|(name, value)| HeaderValue {
        key: (*name).to_owned(),
        raw_value: value.as_bytes().to_vec(),
        ..HeaderValue::default()
    });
    HttpRequest {
        header_map: Some(HeaderMap {
            headers: headers.collect(),
        }),
        ..get("/")
    }
}

fn from(peer: &str, http: HttpRequest) -> CheckRequest {
    let address = SocketAddress {
        address: peer.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(4711)),
    };
    let address = Address {
        address: Some(address::Address::SocketAddress(address)),
    };
    CheckRequest {
        attributes: Some(AttributeContext {
            source: Some(Peer {
                address: Some(address),
            }),
            request: Some(Request { http: Some(http) }),
        }),
    }
}

type Fields = HashMap<String, String>;

/// Returns the status, the header and the body that the client gets in place of an answer.
fn denied(answer: &CheckResponse) -> Option<(i32, Fields, &str)> {
    let is_passed = answer.status.as_ref().unwrap().code == 0;
    match answer.http_response.as_ref().unwrap() {
        HttpResponse::DeniedResponse(denied) => {
            assert!(!is_passed, "{answer:?}");
            let status = denied.status.as_ref().unwrap().code;
            Some((status, fields(&denied.headers), &denied.body))
        }
        HttpResponse::OkResponse(_) => {
            assert!(is_passed, "{answer:?}");
            None
        }
    }
}

fn fields(
    options: &[ratelimitd::envoy::messages::envoy::config::core::v3::HeaderValueOption],
) -> Fields {
    let fields = options.iter().map(|option| option.header.clone().unwrap());
    fields.map(|field| (field.key, field.value)).collect()
}

#[tokio::test]
async fn metadata_tell_who_pays() {
    let policy =
        |name: &str| format!("[policies.{name}]\nquota = \"1/hour\"\nkey = \"client_ip\"\n");
    let file = [policy("plan"), policy("credits")].concat();
    let envoy = Envoy::before(&format!(
        "{file}[first_of]\nspend = [\"plan\", \"credits\"]\n"
    ))
    .await;
    let mut payers = Vec::new();
    for _ in 0..3 {
        let answer = envoy.ask(from("192.0.2.1", get("/"))).await.unwrap();
        payers.push(
            answer
                .dynamic_metadata
                .map(|metadata| format!("{metadata:?}")),
        );
    }
    let [Some(first), Some(second), None] = &payers[..] else {
        panic!("{payers:?}")
    };
    assert!(
        first.contains("payers") && first.contains("spend"),
        "{first}"
    );
    assert!(
        first.contains("\"plan\"") && second.contains("\"credits\""),
        "{payers:?}"
    );
    let envoy = Envoy::before(&policy("alone")).await;
    let answer = envoy.ask(from("192.0.2.1", get("/"))).await.unwrap();
    assert_eq!(answer.dynamic_metadata, None);
}

#[tokio::test]
async fn a_request_that_envoy_describes_is_limited_by_the_file() {
    let envoy = Envoy::before(
        "[policies.writes]\nquota = \"1/hour\"\nkey = \"client_ip\"\nwhen = { method = \"POST\", path = \"/orders/*\" }\n",
    )
    .await;
    let order = || HttpRequest {
        method: "POST".to_owned(),
        ..get("/orders/7?express=1")
    };
    let passed = envoy.ask(from("192.0.2.1", order())).await.unwrap();
    assert_eq!(denied(&passed), None);
    let Some(HttpResponse::OkResponse(passed)) = passed.http_response else {
        panic!("it has passed")
    };
    let fields = self::fields(&passed.response_headers_to_add);
    assert!(
        fields["ratelimit"].starts_with("\"writes\";r=0;t="),
        "{fields:?}"
    );
    assert!(!fields.contains_key("content-length"), "{fields:?}");

    let refused = envoy.ask(from("192.0.2.1", order())).await.unwrap();
    assert_eq!(refused.status.as_ref().unwrap().code, 8);
    let (status, fields, body) = denied(&refused).unwrap();
    assert_eq!(status, 429);
    let wait: u64 = fields["retry-after"].parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!(fields["content-type"], "application/problem+json");
    assert!(
        body.contains("\"violated-policies\":[\"writes\"]"),
        "{body}"
    );

    // Another client, another method, another path.
    assert_eq!(
        denied(&envoy.ask(from("192.0.2.2", order())).await.unwrap()),
        None
    );
    assert_eq!(envoy.status(get("/orders/7")).await, 200);
}

#[tokio::test]
async fn a_client_is_the_peer_of_envoy_whatever_it_says_itself() {
    let forged = |number: u32| joined(&[("x-forwarded-for", &format!("198.51.100.{number}"))]);
    let alone = "[policies.address]\nquota = \"2/hour\"\nkey = \"client_ip\"\n";
    let envoy = Envoy::before(alone).await;
    let mut statuses = Vec::new();
    for number in 0..3 {
        statuses.push(envoy.status(forged(number)).await);
    }
    assert_eq!(statuses, [200, 200, 429]);

    let behind =
        format!("[proxies]\nnetworks = [\"192.0.2.0/24\"]\nheader = \"x-forwarded-for\"\n{alone}");
    let envoy = Envoy::before(&behind).await;
    for number in 0..3 {
        assert_eq!(envoy.status(forged(number)).await, 200);
    }
}

#[tokio::test]
async fn a_client_is_one_with_and_without_its_link_and_none_without_an_address() {
    let envoy =
        Envoy::before("[policies.address]\nquota = \"1/hour\"\nkey = \"client_ip\"\n").await;
    let mut statuses = Vec::new();
    for address in [
        "fe80::1%eth0",
        "fe80::1",
        "fe80::1%2",
        "",
        "/run/envoy.sock",
    ] {
        let answer = envoy.ask(from(address, get("/"))).await.unwrap();
        statuses.push(denied(&answer).map_or(200, |(status, ..)| status));
    }
    // Limits for each client address need one.
    assert_eq!(statuses, [200, 429, 429, 500, 500]);
    let mut pipe = from("", get("/"));
    pipe.attributes.as_mut().unwrap().source = Some(Peer {
        address: Some(Address { address: None }),
    });
    let answer = envoy.ask(pipe).await.unwrap();
    assert_eq!(denied(&answer).unwrap().0, 500);
}

#[tokio::test]
async fn a_counted_field_is_one_or_the_request_is_refused() {
    let envoy =
        Envoy::before("[policies.key]\nquota = \"2/hour\"\nkey = { header = \"x-api-key\" }\n")
            .await;
    for (http, expected) in [
        (raw(&[("x-api-key", "a")]), 200),
        (raw(&[("x-api-key", "a"), ("x-api-key", "b")]), 400),
        (raw(&[("x-api-key", "a"), ("x_api_key", "b")]), 400),
        // With a comma it may be the value of two fields.
        (joined(&[("x-api-key", "a,b")]), 400),
        (joined(&[("x-api-key", "a"), ("accept", "b, c")]), 200),
        (raw(&[("x-api-key", "a,b")]), 200),
        (joined(&[("x-api-key", "a"), (":path", "/")]), 429),
    ] {
        assert_eq!(envoy.status(http.clone()).await, expected, "{http:?}");
    }
}

#[tokio::test]
async fn what_a_client_has_written_badly_is_refused_and_no_error() {
    let envoy = Envoy::before(WIDE).await;
    let long = "x".repeat(70_000);
    for (http, expected) in [
        (get("/a b"), 400),
        (get("http://other.example/"), 400),
        (get("*"), 200),
        (get(""), 200),
        (
            HttpRequest {
                method: "GE T".to_owned(),
                ..get("/")
            },
            400,
        ),
        (
            HttpRequest {
                host: "\n".to_owned(),
                ..get("/")
            },
            400,
        ),
        (raw(&[("x-a", "b\0")]), 400),
        (raw(&[("x a", "b")]), 400),
        (raw(&[("x-a", "\u{e9}")]), 200),
        (joined(&[("x-a", &long)]), 431),
    ] {
        let shown = format!("{http:.200?}");
        assert_eq!(envoy.status(http).await, expected, "{shown}");
    }
}

/// Envoy bounds a head to 8 MiB at most, and lets a request pass upon an error.
#[tokio::test]
async fn a_head_of_any_size_that_envoy_takes_has_an_answer() {
    let envoy = Envoy::before(WIDE).await;
    let head = |bytes: usize| joined(&[("x-a", &"x".repeat(bytes))]);
    assert_eq!(envoy.status(head(9 << 20)).await, 431);
    let error = envoy.ask(from("192.0.2.1", head(11 << 20))).await;
    assert_eq!(error.unwrap_err().code(), Code::OutOfRange);
}

/// A request with a body, of which Envoy says whether it is cut.
fn post(kind: &str, cut: &str, body: &[u8], packed: bool) -> HttpRequest {
    let (text, bytes) = if packed {
        (&[][..], body)
    } else {
        (body, &[][..])
    };
    HttpRequest {
        method: "POST".to_owned(),
        body: text.to_vec(),
        raw_body: bytes.to_vec(),
        ..raw(&[("content-type", kind), ("x-envoy-auth-partial-body", cut)])
    }
}

#[tokio::test]
async fn fields_of_the_body_that_envoy_sends_decide() {
    let models = "[policies.models]\nkey = { json = \"model\" }\nquota = \"1/hour\"\ncost = { json = \"rows\", or = 1 }\n";
    let json = "application/json";
    for packed in [false, true] {
        let envoy = Envoy::before(models).await;
        for (kind, body, expected) in [
            (json, r#"{"model":"small"}"#, 200),
            (json, r#"{"model":"small"}"#, 429),
            (json, r#"{"model":"large"}"#, 200),
            (json, r#"{"model":"wide","rows":2}"#, 429),
            (json, r#"{"model":"a","model":"b"}"#, 400),
            (json, "[]", 400),
            ("text/plain", r#"{"model":"c"}"#, 415),
        ] {
            let request = post(kind, "false", body.as_bytes(), packed);
            assert_eq!(envoy.status(request).await, expected, "{body}");
        }
        // A text that is none is a mistake of the client, and the message is still one.
        let wrong = b"{\"model\":\"\xff\"}";
        assert_eq!(envoy.status(post(json, "false", wrong, packed)).await, 400);
        // Without a body, or if Envoy sends none, there is no field.
        let without = async || envoy.status(get("/")).await;
        assert_eq!([without().await, without().await], [200, 429]);
        let refused = envoy.ask(from("192.0.2.1", post(json, "false", b"[]", packed)));
        let refused = refused.await.unwrap();
        let (_, fields, body) = denied(&refused).unwrap();
        assert_eq!(fields["content-type"], "application/problem+json");
        assert!(body.contains("JSON object"), "{body}");
    }
}

#[tokio::test]
async fn a_body_that_envoy_has_cut_is_one_that_is_too_long() {
    let json = "application/json";
    let models = "[policies.models]\nkey = { json = \"model\" }\nquota = \"1/hour\"\n";
    let envoy = Envoy::before(models).await;
    // What is left may be a whole document.
    let cut = |says| post(json, says, b"{\"model\":\"small\"}", true);
    assert_eq!(envoy.status(cut("true")).await, 413);
    assert_eq!(envoy.status(cut("")).await, 413);
    let long = [
        b"{\"model\":\"small\"".to_vec(),
        vec![b' '; 70_000],
        b"}".to_vec(),
    ]
    .concat();
    assert_eq!(envoy.status(post(json, "false", &long, true)).await, 413);
    assert_eq!(envoy.status(cut("false")).await, 200);

    // An estimate is made of the length that the request declares.
    let tokens = "[policies.tokens]\nkey = \"global\"\nquota = \"3000/hour\"\nestimate = \"openai\"\nsettle = \"openai\"\n";
    for (length, expected) in [("4000", 1_024 + 1_000), ("7", 1_024 + 4)] {
        let envoy = Envoy::before(tokens).await;
        let mut request = post(json, "true", b"{\"input\":\"abcd", true);
        let fields = &mut request.header_map.as_mut().unwrap().headers;
        fields.push(HeaderValue {
            key: "content-length".to_owned(),
            value: length.to_owned(),
            ..HeaderValue::default()
        });
        let passed = envoy.ask(from("192.0.2.1", request)).await.unwrap();
        let Some(HttpResponse::OkResponse(passed)) = passed.http_response else {
            panic!("it has passed")
        };
        let fields = self::fields(&passed.response_headers_to_add);
        let left = format!("\"tokens\";r={};", 3_000 - expected);
        assert!(fields["ratelimit"].starts_with(&left), "{fields:?}");
    }
}

#[tokio::test]
async fn a_filter_that_describes_no_request_gets_an_error() {
    let envoy = Envoy::before(WIDE).await;
    for request in [
        CheckRequest::default(),
        CheckRequest {
            attributes: Some(AttributeContext::default()),
        },
    ] {
        let error = envoy.ask(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(
            error.message().contains("attributes.request.http"),
            "{error}"
        );
    }
}

/// The request would have its turn in an hour.
#[tokio::test]
async fn a_request_waits_no_longer_than_envoy() {
    let patient = "[policies.slow]\nalgorithm = \"anchored-window\"\nquota = \"1/hour\"\nkey = \"global\"\nwait_up_to = \"2h\"\n";
    let envoy = Envoy::before(patient).await;
    assert_eq!(envoy.status(get("/")).await, 200);
    let question = || from("192.0.2.1", get("/"));
    let answer = envoy.ask_within(question(), LONG).await.unwrap();
    assert_eq!(denied(&answer).unwrap().0, 429);

    let mut expecting = tonic::Request::new(question());
    let field = expecting.metadata_mut();
    field.insert("x-envoy-expected-rq-timeout-ms", "60000".parse().unwrap());
    let answer = tokio::time::timeout(LONG, envoy.call(expecting)).await;
    assert_eq!(denied(&answer.unwrap().unwrap()).unwrap().0, 429);
}

#[tokio::test]
async fn reflection_lists_and_describes_the_service() {
    let envoy = Envoy::before(WIDE).await;
    let mut reflection = ServerReflectionClient::new(envoy.channel().await);
    let mut ask = async |question: MessageRequest| {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(question),
        };
        let requests = tokio_stream::once(request);
        let mut answers = reflection.server_reflection_info(requests).await.unwrap();
        let answer = answers.get_mut().message().await.unwrap().unwrap();
        answer.message_response.unwrap()
    };
    let service = "envoy.service.auth.v3.Authorization";
    let listed = ask(MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(listed) = listed else {
        panic!("{listed:?}")
    };
    assert!(
        listed.service.iter().any(|it| it.name == service),
        "{listed:?}"
    );
    let described = ask(MessageRequest::FileContainingSymbol(service.to_owned())).await;
    let MessageResponse::FileDescriptorResponse(described) = described else {
        panic!("{described:?}")
    };
    let described = described.file_descriptor_proto.concat();
    let text = String::from_utf8_lossy(&described);
    assert!(text.contains("CheckRequest"), "{text}");
}

#[tokio::test]
async fn the_health_is_that_of_the_phase_until_the_last_call_has_ended() {
    let envoy = Envoy::before(WIDE).await;
    let mut health = HealthClient::new(envoy.channel().await);
    let about = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    let mut seen = health
        .watch(about("envoy.service.auth.v3.Authorization"))
        .await
        .unwrap()
        .into_inner();
    let mut wait_for = async |status: Option<i32>| {
        while seen.message().await.unwrap().map(|it| it.status) != status {}
    };
    wait_for(Some(1)).await;
    assert_eq!(health.check(about("")).await.unwrap().get_ref().status, 1);
    envoy.phase.send_replace(Phase::Draining);
    wait_for(Some(2)).await;

    // It answers on until it has to stop, and then ends what would never end by itself.
    assert_eq!(envoy.status(get("/")).await, 200);
    envoy.phase.send_replace(Phase::Stopped);
    wait_for(None).await;
    drop(health);
    tokio::time::timeout(LONG, envoy.serving)
        .await
        .unwrap()
        .unwrap();
}

/// Limits over a store that takes all and answers nothing, of which this is one node of four. It would give up after a minute.
fn over_a_mute_store(policy: &str) -> (std::net::TcpListener, String) {
    let redis = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", redis.local_addr().unwrap());
    let file = format!(
        "[policies.a]\nquota = \"8/hour\"\nkey = \"global\"\n{policy}\n[store]\nredis = {url:?}\ndeadline = \"60s\"\nnodes = 4\n"
    );
    (redis, file)
}

#[tokio::test]
async fn a_question_that_the_store_does_not_answer_in_time_is_decided_as_each_policy_says() {
    let begun = std::time::Instant::now();
    for (policy, expected) in [
        ("on_store_failure = \"local\"", [200, 200, 429]),
        ("on_store_failure = \"allow\"", [200, 200, 200]),
        ("on_store_failure = \"refuse\"", [503, 503, 503]),
    ] {
        let (_redis, file) = over_a_mute_store(policy);
        let envoy = Envoy::before(&file).await;
        for (number, expected) in expected.into_iter().enumerate() {
            // The call tells its time, or the server has one for it.
            let mut request = tonic::Request::new(from("192.0.2.1", get("/")));
            let expects = request.metadata_mut();
            if number > 0 {
                expects.insert("x-envoy-expected-rq-timeout-ms", "40".parse().unwrap());
            }
            let answer = envoy.call(request).await.unwrap();
            let status = denied(&answer).map_or(200, |(status, ..)| status);
            assert_eq!(status, expected, "{policy}: {number}");
        }
    }
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn plans_and_operations_of_the_file_decide() {
    let file = "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = \"192.0.2.0/24\" }\n\
        [policies.day]\nquota = \"1/day\"\nkey = \"client_ip\"\n\
        [policies.operations]\nkey = \"client_ip\"\noperation = { header = \"x-operation\" }\n\
        operations = { write = \"1/day\", other = \"9/day\" }\n\
        [plans.free]\nday = 1\n[plans.pro]\nday = 3\n";
    let envoy = Envoy::before(file).await;
    for (peer, headers, expected) in [
        ("192.0.2.1", &[("x-plan", "free")][..], 200),
        ("192.0.2.1", &[("x-plan", "free")], 429),
        (
            "192.0.2.2",
            &[("x-plan", "pro"), ("x-operation", "write")],
            200,
        ),
        (
            "192.0.2.2",
            &[("x-plan", "pro"), ("x-operation", "write")],
            429,
        ),
        (
            "192.0.2.2",
            &[("x-plan", "pro"), ("x-operation", "read")],
            200,
        ),
        // From elsewhere the header tells no plan.
        ("198.51.100.1", &[("x-plan", "pro")], 200),
        ("198.51.100.1", &[("x-plan", "pro")], 429),
    ] {
        let answer = envoy.ask(from(peer, joined(headers))).await.unwrap();
        let status = denied(&answer).map_or(200, |(status, ..)| status);
        assert_eq!(status, expected, "{peer} {headers:?}");
    }
}

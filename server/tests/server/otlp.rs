//! The spans of requests, as a collector of the test gets them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::RateLimitRequest;
use serde_json::{Value as Json, json};

use super::descriptors::calls::call;
use super::process::{HOST, Server, get_over};
use super::program::{File, failed};
use super::scene::LONG;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// Takes spans, and answers each batch with the next of these statuses, or with the last one.
struct Collector {
    address: SocketAddr,
    batches: Receiver<ExportTraceServiceRequest>,
}

impl Collector {
    fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, batches) = mpsc::channel();
        std::thread::spawn(move || {
            let mut statuses = statuses.iter();
            let mut status = statuses.next().unwrap();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                while let Some(batch) = batch(&mut stream) {
                    let answer = format!(
                        "HTTP/1.1 {status} status\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"
                    );
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                    status = statuses.next().unwrap_or(status);
                    if sender.send(batch).is_err() {
                        return;
                    }
                }
            }
        });
        Self { address, batches }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn batch(&self) -> ExportTraceServiceRequest {
        self.batches.recv_timeout(LONG).unwrap()
    }

    /// Returns this many spans, in the order of their ends.
    fn spans(&self, number: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        while spans.len() < number {
            let resources = self.batch().resource_spans.into_iter();
            let scopes = resources.flat_map(|resource| resource.scope_spans);
            spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        assert_eq!(spans.len(), number, "{spans:?}");
        spans
    }
}

fn batch(stream: &mut BufReader<TcpStream>) -> Option<ExportTraceServiceRequest> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("application/x-protobuf"), "{head}");
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split('\r').next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Some(ExportTraceServiceRequest::decode(&*body).unwrap())
}

/// A server with the variables of a collector, which waits for no load balancer.
fn server(variables: &[(&str, &str)], arguments: &[&str]) -> Server {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    program.env_clear().envs(variables.iter().copied());
    let common = ["--listen", "127.0.0.1:0", "--lame-duck", "0s"];
    let server = Server::run(program, &[&common, arguments].concat());
    server.wait_until_ready_is(200);
    server
}

fn get(server: &Server, path: &str, fields: &str) -> String {
    let stream = TcpStream::connect(&server.clients).unwrap();
    get_over(stream, path, &format!("{HOST}{fields}"))
}

/// Returns the header fields that have arrived at the sample.
fn arrived(answer: &str) -> Json {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Json>(body).unwrap()["headers"].clone()
}

/// Ends a server, and returns its log.
fn end(mut server: Server) -> String {
    server.signal("TERM");
    let mut log = String::new();
    let mut stderr = server.child.stderr.take().unwrap();
    stderr.read_to_string(&mut log).unwrap();
    assert_eq!(server.exit_code(), Some(0), "{log}");
    log
}

fn hex(id: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap();
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(digit);
    id.iter().flat_map(digits).collect()
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<&str, Json> {
    let value = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => json!(text),
        Value::BoolValue(truth) => json!(truth),
        Value::IntValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    let attributes = attributes.iter();
    attributes.map(|it| (&*it.key, value(it))).collect()
}

const LIMITS: &str = "[policies.token]\nquota = \"1/hour\"\nkey = { api_key = \"x-token\" }\n";

#[test]
fn a_span_stands_between_those_of_the_client_and_of_the_upstream() {
    let collector = Collector::start(&[200]);
    let limits = File::new("limits.toml", LIMITS);
    let url = collector.url();
    let server = server(
        &[("RATELIMITD_OTLP_ENDPOINT", &url)],
        &[limits.path(), "--sample"],
    );
    let parent = format!("traceparent: 00-{TRACE}-{CLIENT}-01\r\ntracestate: a=1\r\n");
    let token = "x-token: secret-token\r\n";
    let passed = get(&server, "/a?b=secret-query", &format!("{parent}{token}"));
    let refused = get(&server, "/a?b=secret-query", token);
    let unread = get(
        &server,
        "/",
        "traceparent: nothing\r\ntracestate: a=1\r\nx-token: other\r\n",
    );
    let log = end(server);
    assert!(!log.contains("span"), "{log}");
    let batch = collector.batch();
    let of_program = batch.resource_spans[0].resource.as_ref().unwrap();
    let of_program = attributes(&of_program.attributes);
    assert_eq!(of_program["service.name"], "ratelimitd");
    assert_eq!(of_program["service.version"], env!("CARGO_PKG_VERSION"));
    // The end of the program sends all of them.
    let text = format!("{batch:?}");
    for secret in ["secret-token", "secret-query", "127.0.0.1"] {
        assert!(!text.contains(secret), "{text}");
    }
    let spans = &batch.resource_spans[0].scope_spans[0].spans;
    let [first, second, third] = &spans[..] else {
        panic!("{spans:?}");
    };

    assert!(passed.starts_with("HTTP/1.1 200 "), "{passed}");
    assert_eq!((&*first.name, first.kind), ("GET", 2));
    assert_eq!(
        (hex(&first.trace_id), hex(&first.parent_span_id)),
        (TRACE.to_owned(), CLIENT.to_owned())
    );
    let own = hex(&first.span_id);
    let headers = arrived(&passed);
    assert_eq!(headers["traceparent"], format!("00-{TRACE}-{own}-01"));
    assert_eq!(headers["tracestate"], "a=1");
    assert_eq!(
        json!(attributes(&first.attributes)),
        json!({
            "http.request.method": "GET",
            "http.response.status_code": 200,
            "network.protocol.version": "1.1",
            "ratelimitd.limited": false,
            "url.path": "/a",
            "url.scheme": "http",
        })
    );
    assert!(first.start_time_unix_nano <= first.end_time_unix_nano);

    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    let of_refusal = attributes(&second.attributes);
    assert_eq!(of_refusal["http.response.status_code"], 429);
    assert_eq!(of_refusal["ratelimitd.limited"], true);
    assert_eq!(of_refusal["ratelimitd.policy"], "token");
    assert_eq!(second.parent_span_id, [0_u8; 0]);
    // The refusal is no error of the server.
    assert_eq!(second.status.as_ref().map_or(0, |status| status.code), 0);

    // What is no trace begins another one.
    let headers = arrived(&unread);
    let (trace, own) = (hex(&third.trace_id), hex(&third.span_id));
    assert_eq!(headers["traceparent"], format!("00-{trace}-{own}-01"));
    assert_eq!(headers["tracestate"], json!(null));
    assert_ne!(trace, TRACE);
}

#[test]
fn a_client_that_samples_nothing_has_no_span_and_the_upstream_is_told() {
    let collector = Collector::start(&[200]);
    let url = collector.url();
    let of_all = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*url);
    let named = ("OTEL_SERVICE_NAME", "shop");
    let server = server(&[of_all, named], &["--sample"]);
    let parent = format!("traceparent: 00-{TRACE}-{CLIENT}-00\r\n");
    let headers = arrived(&get(&server, "/unsampled", &parent));
    let parent = headers["traceparent"].as_str().unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"));
    assert!(!parent.contains(CLIENT), "{parent}");
    get(&server, "/sampled", "");
    end(server);
    let batch = collector.batch();
    let of_program = batch.resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(attributes(&of_program.attributes)["service.name"], "shop");
    let spans = &batch.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!(attributes(&spans[0].attributes)["url.path"], "/sampled");
}

#[test]
fn an_upstream_that_fails_makes_an_error_of_the_span() {
    let collector = Collector::start(&[200]);
    let (url, gone) = (collector.url(), TcpListener::bind("127.0.0.1:0").unwrap());
    let upstream = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let server = server(&[], &["--otlp-endpoint", &url, "--upstream", &upstream]);
    assert!(get(&server, "/", "").starts_with("HTTP/1.1 502 "));
    let log = end(server);
    let span = &collector.spans(1)[0];
    assert_eq!(attributes(&span.attributes)["error.type"], "502");
    assert_eq!(span.status.as_ref().unwrap().code, 2);
    // The line about it has the trace, although the client has sent none.
    assert!(log.contains(&hex(&span.trace_id)), "{log}");
}

#[tokio::test]
async fn a_call_of_envoy_has_a_span_with_the_name_of_its_limit() {
    let collector = Collector::start(&[200]);
    let limits = "[policies.tenants]\nquota = \"1/hour\"\nkey = \"global\"\n\
        [[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\nname = \"of tenants\"\nquota = \"1/hour\"\n";
    let limits = File::new("limits.toml", limits);
    let url = collector.url();
    let arguments = [
        limits.path(),
        "--grpc",
        "127.0.0.1:0",
        "--otlp-endpoint",
        &url,
    ];
    let mut server = server(&[], &arguments);
    let line = server.line();
    let address = line.trim_end().strip_prefix("Envoy: http://").unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let ask = |tenant: Option<&str>| {
        let entry = |tenant: &str| Entry {
            key: "tenant".to_owned(),
            value: tenant.into(),
        };
        let descriptor = |tenant| RateLimitDescriptor {
            entries: vec![entry(tenant)],
            ..RateLimitDescriptor::default()
        };
        let mut request = tonic::Request::new(RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: tenant.map(descriptor).into_iter().collect(),
            hits_addend: 0,
        });
        let parent = format!("00-{TRACE}-{CLIENT}-01").parse().unwrap();
        request.metadata_mut().insert("traceparent", parent);
        request
    };
    call(address, ask(Some("secret"))).await.unwrap();
    call(address, ask(Some("secret"))).await.unwrap();
    call(address, ask(None)).await.unwrap_err();
    // The connections of the calls close meanwhile.
    let ended = tokio::task::spawn_blocking(move || end(server));
    ended.await.unwrap();
    let spans = collector.spans(3);
    let of_call = |code, limited: Json, policy: Json| {
        let mut expected = json!({
            "rpc.method": "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            "rpc.response.status_code": code,
            "rpc.system.name": "grpc",
        });
        for (name, value) in [
            ("ratelimitd.limited", limited),
            ("ratelimitd.policy", policy),
        ] {
            if !value.is_null() {
                expected[name] = value;
            }
        }
        expected
    };
    let expected = [
        of_call("OK", json!(false), Json::Null),
        of_call("OK", json!(true), json!("of tenants")),
        of_call("INVALID_ARGUMENT", Json::Null, Json::Null),
    ];
    for (span, expected) in spans.iter().zip(expected) {
        assert_eq!(
            span.name,
            "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        );
        assert_eq!(hex(&span.parent_span_id), CLIENT);
        assert_eq!(json!(attributes(&span.attributes)), expected);
    }
}

#[test]
fn a_question_as_json_tells_the_limit_that_refuses() {
    let collector = Collector::start(&[200]);
    let limits = "[policies.tenants]\nquota = \"1/hour\"\nkey = \"global\"\n\
        [[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\nname = \"of tenants\"\nquota = \"1/hour\"\n";
    let limits = File::new("limits.toml", limits);
    let url = collector.url();
    let server = server(&[], &[limits.path(), "--otlp-endpoint", &url]);
    let body =
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"secret"}]}]}"#;
    let ask = || {
        let length = body.len();
        let mut stream = TcpStream::connect(&server.clients).unwrap();
        let head = format!(
            "POST /json HTTP/1.1\r\n{HOST}connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask().starts_with("HTTP/1.1 200 "));
    assert!(ask().starts_with("HTTP/1.1 429 "));
    end(server);
    let spans = collector.spans(2);
    let limited = spans.iter().map(|span| attributes(&span.attributes));
    let limited: Vec<_> = limited
        .map(|span| {
            (
                span["ratelimitd.limited"].clone(),
                span.get("ratelimitd.policy").cloned(),
            )
        })
        .collect();
    let expected = [
        (json!(false), None),
        (json!(true), Some(json!("of tenants"))),
    ];
    assert_eq!(limited, expected);
}

#[test]
fn a_collector_that_refuses_is_told_once_and_once_that_it_takes_spans_again() {
    let collector = Collector::start(&[400, 400, 200, 200]);
    let url = collector.url();
    let at_once = ("OTEL_BSP_SCHEDULE_DELAY", "1");
    let server = server(&[at_once], &["--sample", "--otlp-endpoint", &url]);
    for _ in 0..4 {
        get(&server, "/", "");
        collector.spans(1);
    }
    let log = end(server);
    for expected in [
        "the collector takes no spans, and they are lost: it answers 400",
        "the collector takes spans again",
    ] {
        assert_eq!(log.matches(expected).count(), 1, "{expected}: {log}");
    }
}

/// It accepts connections, as the system does for a listener that nobody reads, and answers nothing.
#[test]
fn a_collector_that_never_answers_holds_no_request_and_the_end_for_the_time_to_drain() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", mute.local_addr().unwrap());
    let few = [
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2"),
    ];
    let wide = File::new("limits.toml", super::scene::WIDE);
    let arguments = [
        wide.path(),
        "--sample",
        "--drain",
        "1s",
        "--otlp-endpoint",
        &url,
    ];
    let server = server(&few, &arguments);
    // More than may wait, in less than the ten seconds that a batch has.
    let begun = std::time::Instant::now();
    for _ in 0..50 {
        assert!(get(&server, "/", "").starts_with("HTTP/1.1 200 "));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
    let log = end(server);
    assert!(log.contains("the last spans were not sent"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn a_second_signal_waits_for_no_collector() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", mute.local_addr().unwrap());
    let mut server = server(&[], &["--sample", "--otlp-endpoint", &url]);
    get(&server, "/", "");
    let mut log = BufReader::new(server.child.stderr.take().unwrap()).lines();
    server.signal("TERM");
    let stopping = log.find(|line| line.as_ref().unwrap().contains("stopping"));
    assert!(stopping.is_some());
    let begun = std::time::Instant::now();
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(1));
    // The server has 30 seconds to drain, and the SDK would wait for 5.
    assert!(begun.elapsed() < std::time::Duration::from_secs(4));
}

#[test]
fn what_cannot_get_spans_is_told_and_nothing_starts() {
    let url = "http://127.0.0.1:1";
    let flag = |url| {
        vec![
            "serve",
            "--ops",
            "127.0.0.1:0",
            "--listen",
            "127.0.0.1:0",
            "--otlp-endpoint",
            url,
        ]
    };
    for (arguments, variables, expected) in [
        (
            flag("127.0.0.1:4318"),
            vec![],
            "--otlp-endpoint: \"127.0.0.1:4318/v1/traces\"",
        ),
        (
            flag("grpc://127.0.0.1:4317"),
            vec![],
            "is neither http nor https; write http://HOST:4318",
        ),
        (
            flag(url),
            vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            "OTEL_EXPORTER_OTLP_PROTOCOL: \"grpc\" is not spoken; set http/protobuf",
        ),
        (
            flag(url)[..5].to_vec(),
            vec![("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "nowhere")],
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: \"nowhere\"",
        ),
    ] {
        let (code, error) = failed(&arguments, &variables);
        assert_eq!(code, Some(1), "{arguments:?} {error}");
        assert!(error.contains(expected), "{error}");
    }
}

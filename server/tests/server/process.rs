//! The running program: its probes, what operators see, and how it stops.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tower_ratelimit_testing::servers::redis::Server as Redis;

use super::floods::{greeting, resets};
use super::program::File;

pub(crate) const HOST: &str = "host: localhost\r\n";

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) clients: String,
    operators: String,
    output: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        program.env_clear();
        let listen: &[_] = if arguments.contains(&"--listen") {
            &[]
        } else {
            &["--listen", "127.0.0.1:0"]
        };
        Self::run(program, &[listen, arguments].concat())
    }

    /// Runs this command, which gets arguments of the program.
    pub(crate) fn run(mut program: Command, arguments: &[&str]) -> Self {
        let mut child = program
            .args(["serve", "--ops", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let is_json = arguments.contains(&"json");
        let mut address = |before: &str| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(&line).is_ok(),
                is_json,
                "{line}"
            );
            // Another thing is before it in a line of JSON.
            let rest = line.split_once(before);
            let (_, rest) = rest.unwrap_or_else(|| panic!("{line}"));
            let url = rest.split([',', '\n', '"']).next().unwrap();
            let address = url.split("://").last().unwrap();
            address.trim_end_matches("/dashboard").to_owned()
        };
        let clients = address("listening on ");
        let operators = address("operators: ");
        Self {
            child,
            clients,
            operators,
            output,
        }
    }

    /// Returns the next line that the server prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn ops(&self, path: &str, fields: &str) -> String {
        get(&self.operators, path, fields)
    }

    /// Waits until the probe has this answer.
    pub(crate) fn wait_until_ready_is(&self, status: u16) {
        let begun = Instant::now();
        while !self
            .ops("/readyz", HOST)
            .starts_with(&format!("HTTP/1.1 {status} "))
        {
            assert!(begun.elapsed() < Duration::from_secs(60), "not {status}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    fn healthcheck(&self) -> (Option<i32>, String) {
        let ended = Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
            .args(["healthcheck", "--ops", &self.operators])
            .env_clear()
            .output()
            .unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        (ended.status.code(), error)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn get(address: &str, path: &str, fields: &str) -> String {
    get_over(TcpStream::connect(address).unwrap(), path, fields)
}

pub(crate) fn get_over(mut stream: impl Read + Write, path: &str, fields: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> &str {
    &answer["HTTP/1.1 ".len()..][..3]
}

#[test]
fn probes_metrics_status_and_the_page_are_there() {
    let server = Server::start(&["--sample"]);
    server.wait_until_ready_is(200);
    assert_eq!(server.healthcheck(), (Some(0), String::new()));
    assert_eq!(status(&get(&server.clients, "/", HOST)), "200");

    assert_eq!(
        status(&server.ops("/livez", "host: 10.0.0.7:3001\r\n")),
        "200"
    );
    let metrics = server.ops("/metrics", "host: 10.0.0.7:3001\r\n");
    assert!(metrics.contains("text/plain; version=0.0.4"), "{metrics}");
    assert!(
        metrics.contains("\n# TYPE ratelimit_decisions_total counter\n"),
        "{metrics}"
    );
    assert!(!metrics.contains("# EOF"), "{metrics}");
    let fields = format!("{HOST}accept: application/openmetrics-text;version=1.0.0\r\n");
    let metrics = server.ops("/metrics", &fields);
    assert!(
        metrics.contains("\n# TYPE ratelimit_decisions counter\n"),
        "{metrics}"
    );
    assert!(metrics.contains("# EOF\n"), "{metrics}");

    let shown = server.ops("/status", HOST);
    assert_eq!(status(&shown), "200");
    assert!(shown.contains("\"ready\":true"), "{shown}");
    let page = server.ops("/dashboard", HOST);
    assert!(page.contains("<html"), "{page}");
    let page = server.ops("/dashboard/", HOST);
    assert!(status(&page) == "200" && page.contains("<html"), "{page}");
    assert_eq!(status(&server.ops("/dashboard/snapshot", HOST)), "200");
    // A name that resolves to this machine, and a request that a proxy has passed on.
    for fields in [
        "host: evil.example\r\n",
        "host: localhost\r\nvia: 1.1 a\r\n",
    ] {
        for path in [
            "/status",
            "/dashboard",
            "/dashboard/",
            "/dashboard/snapshot",
        ] {
            assert_eq!(status(&server.ops(path, fields)), "403", "{path} {fields}");
        }
    }
}

#[test]
fn the_token_opens_what_is_for_operators() {
    let token = File::new("token", "0123456789abcdef\n");
    let arguments = [
        "--ops-token-file",
        token.path(),
        "--ops-hosts",
        "ops.example,b.example",
    ];
    let server = Server::start(&arguments);
    let from_away = "via: 1.1 a\r\n";
    let of = |host: &str, fields: &str| {
        let fields = format!("host: {host}\r\n{from_away}{fields}");
        ["/status", "/dashboard"].map(|path| status(&server.ops(path, &fields)).to_owned())
    };
    let bearer = "authorization: Bearer 0123456789abcdef\r\n";
    // `ann:0123456789abcdef`
    let basic = "authorization: Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY=\r\n";
    for host in ["ops.example", "b.example:3001", "localhost"] {
        assert_eq!(of(host, bearer), ["200", "200"], "{host}");
        assert_eq!(of(host, basic), ["200", "200"], "{host}");
        assert_eq!(of(host, ""), ["401", "401"], "{host}");
    }
    assert_eq!(of("evil.example", bearer), ["403", "403"]);
    let wrong = [
        "Bearer 0123456789abcdeg",
        "Bearer",
        "Basic 0123456789abcdef",
        "Basic YTow",
    ];
    for value in wrong {
        let fields = format!("authorization: {value}\r\n");
        assert_eq!(of("localhost", &fields), ["401", "401"], "{value}");
    }
    let answer = server.ops("/status", &format!("{HOST}{from_away}"));
    assert!(
        answer.contains("www-authenticate: Basic realm=\"ratelimitd\""),
        "{answer}"
    );
}

#[test]
fn a_store_that_is_away_at_the_start_makes_the_server_unready() {
    let limits = "[policies.address]\nquota = \"100/minute\"\nkey = \"client_ip\"\n\
        [store]\nredis = \"redis://127.0.0.1:1/\"\n";
    let file = File::new("limits.toml", limits);
    let server = Server::start(&[file.path()]);
    let (code, error) = server.healthcheck();
    assert_eq!(code, Some(1));
    assert_eq!(error, "not ready: the store has not answered yet\n");
    assert_eq!(status(&server.ops("/livez", HOST)), "200");
    assert!(server.ops("/status", HOST).contains("\"ready\":false"));

    let server = Server::start(&[file.path(), "--ready-without-store"]);
    assert_eq!(server.healthcheck().0, Some(0));
}

#[test]
fn a_store_that_comes_up_makes_the_server_ready_and_one_that_goes_away_does_not_unmake_it() {
    let mut redis = Redis::start(&[]);
    let limits = "[policies.address]\nquota = \"100/minute\"\nkey = \"client_ip\"\n";
    let text = format!("{limits}[store]\nredis = \"{}\"\n", redis.url());
    let file = File::new("limits.toml", &text);
    redis.kill();
    let server = Server::start(&[file.path(), "--sample"]);
    server.wait_until_ready_is(503);
    redis.restart();
    server.wait_until_ready_is(200);
    redis.kill();
    // The first of these find out that it is away.
    for _ in 0..10 {
        assert_eq!(status(&get(&server.clients, "/", HOST)), "200");
    }
    let metrics = server.ops("/metrics", HOST);
    assert!(
        metrics.contains("\nratelimit_store_up{store=\"redis\"} 0\n"),
        "{metrics}"
    );
    assert_eq!(status(&server.ops("/readyz", HOST)), "200");
}

#[test]
fn operators_change_limits_only_where_the_flag_lets_them() {
    let block = |server: &Server| {
        let body = "{\"key\":\"127.0.0.1\",\"seconds\":60}";
        let head = format!(
            "POST /dashboard/block HTTP/1.1\r\n{HOST}content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut operator = TcpStream::connect(&server.operators).unwrap();
        operator.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        operator.read_to_string(&mut answer).unwrap();
        status(&answer).to_owned()
    };
    let server = Server::start(&["--sample"]);
    assert_eq!(block(&server), "403");
    assert_eq!(status(&get(&server.clients, "/", HOST)), "200");
    let server = Server::start(&["--sample", "--ops-writable"]);
    assert_eq!(block(&server), "200");
    assert_eq!(status(&get(&server.clients, "/", HOST)), "429");
}

#[test]
fn the_metrics_have_the_concurrency_of_the_file() {
    let limits = "[policies.address]\nquota = \"100/minute\"\nkey = \"client_ip\"\n";
    let text = format!("{limits}[concurrency]\nstart = 7\nleast = 7\nmost = 7\n");
    let file = File::new("limits.toml", &text);
    let server = Server::start(&[file.path(), "--sample"]);
    let metrics = server.ops("/metrics", HOST);
    let limit = metrics
        .lines()
        .find(|line| line.starts_with("ratelimit_concurrency_limit{"));
    assert!(limit.is_some_and(|line| line.ends_with(" 7")), "{metrics}");
}

#[test]
fn the_store_of_descriptors_alone_makes_the_server_unready_too() {
    let limit = |quota: &str| {
        format!("[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\nquota = \"{quota}\"\n")
    };
    for limits in [limit("9/minute"), limit("unlimited")] {
        let text = format!("{limits}[store]\nredis = \"redis://127.0.0.1:1/\"\n");
        let file = File::new("limits.toml", &text);
        let server = Server::start(&[file.path()]);
        let (code, error) = server.healthcheck();
        assert_eq!(code, Some(1), "{limits}");
        assert_eq!(error, "not ready: the store has not answered yet\n");
    }
    let file = File::new("limits.toml", &limit("9/minute"));
    Server::start(&[file.path()]).wait_until_ready_is(200);
}

#[test]
fn the_signal_to_stop_makes_it_unready_and_then_ends_it() {
    let mut server = Server::start(&["--sample", "--lame-duck", "1h"]);
    server.wait_until_ready_is(200);
    let mut open = TcpStream::connect(&server.clients).unwrap();
    let mut ask = |wanted: &str| {
        open.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            open.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert_eq!(
            head.contains("connection: close\r\n"),
            wanted == "closes",
            "{head}"
        );
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        open.read_exact(&mut vec![0; length]).unwrap();
        assert_eq!(status(&head), "200");
    };
    ask("stays");
    server.signal("TERM");
    server.wait_until_ready_is(503);
    // It serves on, and sends clients elsewhere.
    ask("closes");
    assert_eq!(status(&get(&server.clients, "/", HOST)), "200");
    assert!(server.ops("/readyz", HOST).ends_with("the server stops\n"));
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(1));

    let mut server = Server::start(&["--sample", "--lame-duck", "0s"]);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
}

#[test]
fn a_signal_makes_it_read_its_file_again_and_the_log_is_json() {
    let limits = "[policies.address]\nquota = \"100/minute\"\nkey = \"client_ip\"\n";
    let file = File::new("limits.toml", limits);
    let mut server = Server::start(&[file.path(), "--log", "json"]);
    let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let mut next = |message: &str| {
        for line in &mut lines {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert!(
                event["timestamp"].is_string() && event["target"].is_string(),
                "{event}"
            );
            if event["message"].as_str().unwrap().starts_with(message) {
                return event;
            }
        }
        panic!("the log has ended");
    };
    server.signal("HUP");
    assert_eq!(next("the limits were read again")["level"], "INFO");
    std::fs::write(file.path(), "[policies.address]\n").unwrap();
    server.signal("HUP");
    assert_eq!(next("the limits stay as they were")["level"], "WARN");
    server.signal("TERM");
    next("stopping");
}

/// The warning of the file is for its reader: `ratelimitd check` has it.
#[test]
fn tenants_that_a_client_invents_are_logged_once() {
    let text = "[policies.a]\nquota = \"10/hour\"\nalgorithm = \"token-bucket\"\nkey = \"global\"\nfair = { header = \"x-tenant\" }\n";
    let file = File::new("limits.toml", text);
    let mut server = Server::start(&[file.path(), "--sample"]);
    server.child.kill().unwrap();
    let log = std::io::read_to_string(server.child.stderr.take().unwrap()).unwrap();
    let told: Vec<_> = log
        .lines()
        .filter(|line| line.contains("invents tenants"))
        .collect();
    assert!(
        matches!(told[..], [line] if line.contains("TRL041")),
        "{log}"
    );
}

#[test]
fn a_secret_of_the_store_that_was_rotated_does_not_stop_the_limits() {
    let secret = File::new("redis-url", "redis://127.0.0.1:1/\n");
    let limits = |quota: &str, secret: &str| {
        format!("[policies.a]\nquota = \"{quota}\"\nkey = \"global\"\n[store]\nredis = {secret}\n")
    };
    let by_file = format!("{{ file = {:?} }}", secret.path());
    let file = File::new("limits.toml", &limits("10/day", &by_file));
    let mut server = Server::start(&[file.path(), "--sample", "--log", "json"]);
    let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    // Returns the messages before this one.
    let mut until = |message: &str| {
        let events = lines
            .by_ref()
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let messages = events.map(|event| event["message"].as_str().unwrap().to_owned());
        let before = messages.take_while(|it| !it.contains(message));
        before.collect::<Vec<_>>()
    };
    let policy = |server: &Server, quota: u32| {
        let answer = get(&server.clients, "/", HOST);
        assert!(
            answer.contains(&format!("\"a\";q={quota};w=86400")),
            "{answer}"
        );
    };
    policy(&server, 10);
    let warning = "store: a value behind it has changed";
    // Another login on the same server, once.
    std::fs::write(secret.path(), "redis://:rotated@127.0.0.1:1/\n").unwrap();
    for renewed in [1, 0] {
        server.signal("HUP");
        let before = until("the limits were read again");
        let told = before
            .iter()
            .filter(|it| it.contains("new connections log in by it"));
        assert_eq!(told.count(), renewed, "{before:?}");
        assert!(!before.iter().any(|it| it.contains(warning)), "{before:?}");
        assert!(!server.ops("/status", HOST).contains(warning));
    }
    std::fs::write(secret.path(), "redis://:rotated@127.0.0.1:2/\n").unwrap();
    // The second time, too, the store is the one of the beginning. The log has the warning once, and the status as long as it holds.
    for (quota, warnings) in [(20, 1), (30, 0)] {
        std::fs::write(file.path(), limits(&format!("{quota}/day"), &by_file)).unwrap();
        server.signal("HUP");
        let before = until("the limits were read again");
        let told = before.iter().filter(|it| it.contains(warning));
        assert_eq!(told.count(), warnings, "{before:?}");
        policy(&server, quota);
        let status = server.ops("/status", HOST);
        assert!(status.contains(warning), "{status}");
        assert!(!status.contains("rotated"), "{status}");
    }
    // Another store in the file itself is refused, and told wherever operators look.
    let another = limits("40/day", "\"redis://127.0.0.1:3/\"");
    std::fs::write(file.path(), another).unwrap();
    server.signal("HUP");
    until("store: it cannot change without a restart");
    policy(&server, 30);
    assert!(
        server
            .ops("/status", HOST)
            .contains(":4:1: store: it cannot change")
    );
    assert!(
        server
            .ops("/metrics", HOST)
            .contains("\nratelimit_config_error 1\n")
    );
}

#[test]
fn a_token_that_was_rotated_opens_and_the_old_one_does_not() {
    let token = File::new("token", "0123456789abcdef\n");
    let mut server = Server::start(&["--ops-token-file", token.path()]);
    let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let mut next = |message: &str| {
        let mut lines = lines.by_ref().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(message)), "{message}");
    };
    let answers = |server: &Server, token: &str| {
        let fields = format!("{HOST}via: 1.1 a\r\nauthorization: Bearer {token}\r\n");
        status(&server.ops("/status", &fields)).to_owned()
    };
    std::fs::write(token.path(), "fedcba9876543210\n").unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(token.path(), all).unwrap();
    server.signal("HUP");
    next("--ops-token-file was read again");
    next("`chmod o-r`");
    let both = |server: &Server| {
        ["0123456789abcdef", "fedcba9876543210"].map(|token| answers(server, token))
    };
    assert_eq!(both(&server), ["401", "200"]);
    std::fs::write(token.path(), "short\n").unwrap();
    server.signal("HUP");
    next("the token stays as it was");
    assert_eq!(both(&server), ["401", "200"]);
}

#[test]
fn the_log_has_some_refusals_a_second_with_their_trace() {
    let limits = "[policies.address]\nquota = \"1/hour\"\nkey = \"client_ip\"\n";
    let file = File::new("limits.toml", limits);
    let mut server = Server::start(&[file.path(), "--sample", "--log", "json"]);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let fields = format!("{HOST}{parent}");
    let first = get(&server.clients, "/", &fields);
    assert!(first.contains(&parent[.."traceparent".len()]) && first.contains(trace));
    // The requests of one second, of which one has a line, and those of the next ones.
    let lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let refusals = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap())
        .filter(|event| event["message"] == "a request was refused");
    let asking = server.clients.clone();
    let is_told = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = is_told.clone();
    let client = std::thread::spawn(move || {
        let mut refused = 0_u64;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(status(&get(&asking, "/", &fields)), "429");
            refused += 1;
        }
        refused
    });
    let lines: Vec<_> = refusals.take(2).collect();
    is_told.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = client.join().unwrap();
    assert_eq!(lines[0]["policy"], "address");
    assert_eq!(
        (&lines[0]["status"], &lines[0]["trace_id"]),
        (&429.into(), &trace.into())
    );
    assert_eq!(lines[0]["suppressed"], 0);
    let suppressed = lines[1]["suppressed"].as_u64().unwrap();
    assert!(
        0 < suppressed && suppressed <= refused - 2,
        "{suppressed} of {refused}"
    );
    assert!(!lines[1].to_string().contains("127.0.0.1"), "{}", lines[1]);
}

#[test]
fn what_was_used_lasts_over_a_restart_and_a_damaged_file_is_set_aside() {
    let limits = "[policies.address]\nquota = \"3/day\"\nkey = \"client_ip\"\n";
    let (file, state) = (File::new("limits.toml", limits), File::new("state", ""));
    std::fs::remove_file(state.path()).unwrap();
    let arguments = [
        file.path(),
        "--sample",
        "--state",
        state.path(),
        "--lame-duck",
        "0s",
    ];
    let used = |requests: u32| {
        let mut server = Server::start(&arguments);
        let answers = (0..requests).map(|_| get(&server.clients, "/", HOST));
        let answers: Vec<_> = answers.map(|answer| status(&answer).to_owned()).collect();
        server.signal("TERM");
        assert_eq!(server.exit_code(), Some(0));
        let mut log = String::new();
        server
            .child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        (answers, log)
    };
    assert_eq!(used(2).0, ["200", "200"]);
    assert_eq!(used(2).0, ["200", "429"]);
    std::fs::write(state.path(), "no state").unwrap();
    let (answers, log) = used(1);
    assert_eq!(answers, ["200"]);
    let aside = format!("{}.broken", state.path());
    assert!(log.contains("--state: ") && log.contains(&aside), "{log}");
    assert_eq!(std::fs::read(&aside).unwrap(), b"no state");
    std::fs::remove_file(aside).unwrap();
    assert_eq!(used(3).0, ["200", "200", "429"]);
}

#[test]
fn a_flood_of_connections_is_no_flood_of_lines() {
    let mut server = Server::start(&["--sample", "--lame-duck", "0s"]);
    let mut flood = TcpStream::connect(&server.clients).unwrap();
    flood.write_all(&greeting()).unwrap();
    // The server may hang up meanwhile, and its farewell is the end.
    let _ = flood.write_all(&resets(10_000));
    let _ = flood.read_to_end(&mut Vec::new());
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let mut log = String::new();
    let mut lines = server.child.stderr.take().unwrap();
    lines.read_to_string(&mut log).unwrap();
    assert!(log.contains("stopping") && !log.contains("h2::"), "{log}");
}

#[test]
fn the_signals_of_the_file_are_read() {
    let text = "[policies.a]\nquota = \"100/minute\"\nkey = \"global\"\nadapt = true\n[adapt]\nsignals = [\"cpu\"]\n";
    let file = File::new("adapt.toml", text);
    let server = Server::start(&[file.path()]);
    let expected = "\nratelimit_adapt_signal_up{policy=\"a\",signal=\"cpu\"} 1\n";
    // The first reading comes at some time.
    let begun = Instant::now();
    while !server.ops("/metrics", HOST).contains(expected) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it was not read");
        std::thread::yield_now();
    }
}

//! What servers know and leave in Redis.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use tower_ratelimit_testing::servers::redis::{Server as Redis, text, until};

use super::descriptors::calls::post;
use super::floods::{GO_AWAY, request};
use super::process::{HOST, Server, get};
use super::program::File;

/// Returns a file of one policy over this server.
fn limits(policy: &str, redis: &Redis) -> File {
    let text = format!("{policy}[store]\nredis = \"{}\"\n", redis.url());
    File::new("limits.toml", &text)
}

/// Returns the same with leases, and with time for Redis: what is decided without it is not in its account.
fn leasing(policy: &str, redis: &Redis) -> File {
    let text = format!(
        "{policy}[store]\nredis = \"{}\"\nlease = \"1s\"\ndeadline = \"30s\"\n",
        redis.url()
    );
    File::new("limits.toml", &text)
}

/// Returns how much of a window is used, of the one state whose name matches.
fn used(redis: &Redis, state: &str) -> String {
    let script = "return redis.call('GET', redis.call('KEYS', ARGV[1])[1])";
    let state = text(&redis.ask(&["EVAL", script, "0", state]));
    // What leases keep is before the window and its count.
    let window = state.rsplit(';').next().unwrap();
    window.split(' ').nth(1).unwrap().to_owned()
}

/// Stops the server, and returns what it has logged.
fn stop(mut server: Server) -> String {
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let mut log = String::new();
    let mut lines = server.child.stderr.take().unwrap();
    lines.read_to_string(&mut log).unwrap();
    log
}

/// Returns the kinds of these frames of HTTP/2.
fn kinds(mut frames: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = frames {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        frames = rest.get(length..).unwrap_or_default();
    }
    kinds
}

#[test]
fn requests_that_the_drain_cuts_off_give_their_slots_back() {
    let redis = Redis::start(&[]);
    let slots = "[policies.slots]\nconcurrency = 9\nkey = \"global\"\n";
    let slots = limits(slots, &redis);
    // It accepts no connection, so it never answers.
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", upstream.local_addr().unwrap());
    let mut arguments = vec![slots.path(), "--upstream", &upstream];
    arguments.extend(["--lame-duck", "0s", "--drain", "100ms"]);
    let server = Server::start(&arguments);
    let ask = |request: &[u8]| {
        let mut client = TcpStream::connect(&server.clients).unwrap();
        client.write_all(request).unwrap();
        client
    };
    let get = format!("GET / HTTP/1.1\r\n{HOST}\r\n");
    let clients = [ask(get.as_bytes()), ask(get.as_bytes()), ask(&request())];
    let taken = || {
        let set = "ratelimit:1:{global}:slots:concurrency/second";
        format!("{:?}", redis.ask(&["ZCARD", set]))
    };
    until("each request holds a slot", || taken() == "int(3)");
    let log = stop(server);
    assert!(log.contains("requests have not ended in time"), "{log}");
    assert_eq!(taken(), "int(0)");
    // The client of HTTP/2 was told to go.
    let [_, _, mut client] = clients;
    let mut frames = Vec::new();
    let _ = client.read_to_end(&mut frames);
    assert!(kinds(&frames).contains(&GO_AWAY), "{:?}", kinds(&frames));
}

#[test]
fn units_that_no_request_has_spent_are_given_back() {
    let redis = Redis::start(&[]);
    let window = "algorithm = \"fixed-window\"\nquota = \"1000000/day\"\nkey = \"global\"\n";
    let window = leasing(&format!("[policies.units]\n{window}"), &redis);
    let server = Server::start(&[window.path(), "--sample", "--lame-duck", "0s"]);
    let used = || used(&redis, "ratelimit:1:{global}:units:fixed-window/day");
    let mut asked = 0;
    // Units are leased ahead of the requests, once there are many.
    while asked < 20 || used() == asked.to_string() {
        assert!(get(&server.clients, "/", HOST).starts_with("HTTP/1.1 200 "));
        asked += 1;
    }
    stop(server);
    assert_eq!(used(), asked.to_string());
}

#[test]
fn descriptors_as_json_are_a_question_alone_and_a_request_beside_an_upstream() {
    let file = File::new(
        "limits.toml",
        "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\nquota = \"1/day\"\n",
    );
    let question = "{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"tenant\",\"value\":\"a\"}]}]}";
    for (more, statuses) in [(None, [200, 429]), (Some("--sample"), [200, 200])] {
        let arguments: Vec<&str> = [file.path()].into_iter().chain(more).collect();
        let server = Server::start(&arguments);
        for status in statuses {
            let answer = post(&server.clients, "/json", question);
            assert_eq!(answer.0, status, "{more:?} {answer:?}");
        }
    }
}

#[test]
fn units_of_descriptors_that_no_question_has_spent_are_given_back() {
    let redis = Redis::start(&[]);
    let table = |entry: &str, more: &str| {
        let entries = format!("domain = \"shop\"\nentries = [\"{entry}\"]\n");
        let window = "algorithm = \"fixed-window\"\nquota = \"1000000/day\"\n";
        format!("[[envoy]]\n{entries}{window}{more}")
    };
    let tables = table("tenant", "") + &table("path", "lease = false\n");
    let file = leasing(&tables, &redis);
    let mut arguments = vec![file.path(), "--lame-duck", "0s"];
    arguments.extend(["--grpc-deadline", "30s"]);
    let server = Server::start(&arguments);
    let ask = |entry: &str| {
        let descriptor = format!("{{\"entries\":[{{\"key\":\"{entry}\",\"value\":\"a\"}}]}}");
        let question = format!("{{\"domain\":\"shop\",\"descriptors\":[{descriptor}]}}");
        assert_eq!(post(&server.clients, "/json", &question).0, 200);
    };
    let used = |entry: &str| used(&redis, &format!("*:shop/{entry}:fixed-window/day"));
    let mut asked = 0;
    while asked < 20 || used("tenant") == asked.to_string() {
        ask("tenant");
        ask("path");
        asked += 1;
        assert_eq!(used("path"), asked.to_string(), "it is not leased");
    }
    stop(server);
    assert_eq!(used("tenant"), asked.to_string());
}

#[test]
fn servers_that_are_counted_know_of_each_other_and_others_have_the_number_of_a_variable() {
    let redis = Redis::start(&[]);
    let url = File::new("redis-url", &format!("{}\n", redis.url()));
    let file = |nodes: &str| {
        let policy = "[policies.a]\nquota = \"8/day\"\nkey = \"global\"\n";
        let text = format!(
            "{policy}[store]\nredis = {{ file = {:?} }}\nnodes = {nodes}\n",
            url.path()
        );
        File::new("limits.toml", &text)
    };
    let counted = file("\"live\"");
    let servers = [(); 2].map(|()| Server::start(&[counted.path(), "--sample"]));
    let tells = |server: &Server, nodes: u32| {
        let line = format!("\nratelimit_store_nodes{{store=\"redis\"}} {nodes}\n");
        server.ops("/metrics", HOST).contains(&line)
    };
    for server in &servers {
        server.wait_until_ready_is(200);
        until("each knows of both", || tells(server, 2));
    }
    let fixed = file("{ env = \"REPLICAS\" }");
    let mut program = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    program.env_clear().env("REPLICAS", "4");
    let server = Server::run(
        program,
        &["--listen", "127.0.0.1:0", fixed.path(), "--sample"],
    );
    assert!(get(&server.clients, "/", HOST).contains("\"a\";q=8;"));
    assert!(tells(&server, 4));
    redis.kill();
    // A quarter of the limit.
    until("it decides by itself", || {
        get(&server.clients, "/", HOST).contains("\"a\";q=2;")
    });
}

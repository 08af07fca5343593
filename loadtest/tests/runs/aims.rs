//! The tester sends requests to this machine alone, unless an option names another host.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::routing::get;

use crate::server::{Run, Server, program, run};

#[test]
fn another_machine_is_not_asked() {
    let run = run(&["http://192.0.2.1/"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("--allow-remote 192.0.2.1"),
        "{}",
        run.stderr
    );
    assert_eq!(run.stdout, "");
}

#[test]
fn a_wrong_command_line_is_told() {
    for words in [
        &["https://127.0.0.1/"][..],
        &["http://127.0.0.1/", "--rate", "5", "--burst", "5/1s"],
        &["--check"],
    ] {
        assert_eq!(run(words).code, 2, "{words:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(run(&[&url]).code, 3);
}

#[test]
fn redirects_and_proxies_are_not_followed() {
    let redirect = || async { (StatusCode::FOUND, [(LOCATION, "http://192.0.2.1/")]) };
    let server = Server::of(Router::new().route("/", get(redirect)));
    let mut program = program();
    for variable in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        program.env(variable, "http://192.0.2.1:9/");
    }
    let output = program.args([&server.url, "--requests", "3", "--concurrency", "1"]);
    let run = Run::of(output.output().unwrap());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.number("Errors: "), 3);
    assert!(run.stdout.contains("3 status 302"), "{}", run.stdout);
}

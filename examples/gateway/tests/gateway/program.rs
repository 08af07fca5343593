//! The program itself: what it prints, and that it starts nothing that it was not told to.

use std::process::{Command, Output};

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn help_and_version_are_printed_and_nothing_starts() {
    for (argument, expected) in [("--help", "UPSTREAM"), ("--version", "gateway ")] {
        let ended = run(&[argument], &[]);
        assert!(ended.status.success(), "{ended:?}");
        let printed = String::from_utf8(ended.stdout).unwrap();
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn without_an_upstream_or_with_a_mistake_nothing_starts() {
    let upstream = ("UPSTREAM", "http://127.0.0.1:1");
    let cases = [
        (vec![], vec![], "UPSTREAM is not set"),
        (vec![], vec![upstream, ("UPSTRAEM", "x")], "write UPSTREAM,"),
        (vec!["--smaple"], vec![upstream], "--smaple"),
    ];
    for (arguments, variables, expected) in cases {
        let ended = run(&arguments, &variables);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(told.contains(expected), "{told}");
    }
}

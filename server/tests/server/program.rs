//! The program itself: what it prints, and that it starts nothing by itself.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Returns what a command prints that ends well.
pub(crate) fn printed(arguments: &[&str]) -> String {
    printed_with(arguments, &[])
}

pub(crate) fn printed_with(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let ended = run(arguments, variables);
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stdout).unwrap()
}

/// Returns the exit code, and what is printed as an error.
pub(crate) fn failed(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let ended = run(arguments, variables);
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "");
    (
        ended.status.code(),
        String::from_utf8(ended.stderr).unwrap(),
    )
}

/// A file that goes away with the test.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ratelimitd-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn help_version_schema_and_completions_are_printed() {
    for (arguments, expected) in [
        (&["--help"][..], "serve"),
        (&["--version"], "ratelimitd "),
        (&["serve", "--help"], "RATELIMITD_UPSTREAM"),
        (&["schema"], "\"policies\""),
        (&["import", "--help"], "ratelimit"),
        (&["completions", "bash"], "complete -F _ratelimitd "),
        (
            &["completions", "elvish"],
            "edit:completion:arg-completer[ratelimitd]",
        ),
        (&["completions", "fish"], "complete -c ratelimitd "),
        (
            &["completions", "powershell"],
            "Register-ArgumentCompleter -Native -CommandName 'ratelimitd'",
        ),
        (&["completions", "zsh"], "#compdef ratelimitd"),
    ] {
        let text = printed(arguments);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_mistake_in_the_command_line_or_in_a_variable_starts_nothing() {
    let url = "http://127.0.0.1:1";
    let both = ["serve", "--sample", "--upstream", url];
    let roots = ["serve", "--upstream-ca", "ca.pem"];
    for (arguments, variables, expected) in [
        (&["serve", "--smaple"][..], vec![], "--sample"),
        (&both, vec![], "cannot be used with"),
        (&roots, vec![], "--upstream <URL>"),
        (&["serve", "--upstream-timeout", "soon"], vec![], "250ms"),
        (&["serve", "--client-connections", "0"], vec![], "from 1"),
        (
            &["serve", "--sample"],
            vec![("RATELIMITD_UPSTREAM", url)],
            "cannot be used with",
        ),
        (
            &["serve"],
            vec![("RATELIMITD_UPSTRAEM", url)],
            "nearest is RATELIMITD_UPSTREAM:",
        ),
        (
            &["serve", "--upstream", url],
            vec![("RATELIMITD_SAMPLE", "true")],
            "cannot be used with",
        ),
        (
            &["suggest", "log", "--key", "client_ip"],
            vec![("RATELIMITD_HELP", "true")],
            "RATELIMITD_HELP is no variable of ratelimitd",
        ),
        (
            &["suggest", "log", "--key", "client_ip"],
            vec![("RATELIMITD_KEYS", "client_ip")],
            "nearest is RATELIMITD_KEY:",
        ),
        (&["check"], vec![], "<FILE>"),
        (&[], vec![], "Usage"),
    ] {
        let (code, error) = failed(arguments, &variables);
        assert_eq!(code, Some(2), "{arguments:?} {error}");
        assert!(error.contains(expected), "{arguments:?} {error}");
    }
}

#[test]
fn a_variable_may_be_empty_or_turn_a_switch_off() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let arguments = [
        "serve",
        "--upstream",
        "http://127.0.0.1:1",
        "--listen",
        &taken,
    ];
    for set in [
        ("RATELIMITD_SAMPLE", "false"),
        ("RATELIMITD_LIMITS", ""),
        ("RATELIMITD_OPS", ""),
    ] {
        let (code, error) = failed(&arguments, &[set]);
        // What is wrong is the port alone.
        assert_eq!(code, Some(1), "{set:?} {error}");
        assert!(error.starts_with("--listen: "), "{set:?} {error}");
    }
    let log = File::new(
        "log",
        "{\"t_us\":1700000000000000,\"key\":\"10.0.0.1\",\"cost\":1}\n",
    );
    let suggested = printed_with(&["suggest", log.path()], &[("RATELIMITD_KEY", "client_ip")]);
    assert!(suggested.contains("key = \"client_ip\""), "{suggested}");
}

#[test]
fn an_error_that_ends_the_server_is_an_object_where_the_log_is_json() {
    let file = File::new("bad.toml", "[policies.a]\nquota = \"a few\"\nkye = 1\n");
    let (code, error) = failed(&["serve", file.path(), "--log", "json"], &[]);
    assert_eq!(code, Some(1));
    let event: Value = serde_json::from_str(error.trim_end()).expect(&error);
    assert_eq!(event["level"], "ERROR");
    let message = event["message"].as_str().unwrap();
    assert!(
        message.contains(":2:9: ") && message.contains(":3:1: "),
        "{message}"
    );
}

#[test]
fn what_cannot_be_served_is_told_and_nothing_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let file = File::new("bad.toml", "[policies.a]\nquota = \"a few\"\n");
    let redis = "[policies.a]\nquota = \"1/hour\"\nkey = \"global\"\n[store]\nredis = \"redis://127.0.0.1:1/\"\n";
    let redis = File::new("redis.toml", redis);
    let memory = File::new(
        "memory.toml",
        "[policies.a]\nquota = \"1/hour\"\nkey = \"global\"\n",
    );
    let state = File::new("state", "");
    fs::remove_file(state.path()).unwrap();
    for (arguments, expected) in [
        (
            &["serve", redis.path(), "--state", state.path()][..],
            "has a table `store`",
        ),
        (
            &["serve", memory.path(), "--ready-without-store"],
            "--ready-without-store: the limits have their state in this process",
        ),
        (
            &["serve", "--ready-without-store"],
            "name LIMITS with a table `store`",
        ),
        (
            &["serve", "--state", "/no-such-folder/state"],
            "--state: /no-such-folder/state: ",
        ),
        (
            &["serve", "--ops", "none", "--listen", &taken],
            "--listen: ",
        ),
        (&["serve", "--listen", "none", "--ops", &taken], "--ops: "),
        (
            &["serve", "--listen", "none", "--ops", "none"],
            "nothing would be served",
        ),
        (&["serve", file.path()], ":2:9: "),
        (&["serve", "no-such-file.toml"], "no-such-file.toml"),
        (
            &[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--ops",
                "none",
                "--upstream",
                "ftp://a",
            ],
            "--upstream: \"ftp://a\" is neither http nor https",
        ),
        (
            &["serve", "--listen", "unix:"],
            "--listen: unix:: write the path, such as unix:/run/x",
        ),
        (
            &["serve", "--charge-refused"],
            "--charge-refused is about descriptors",
        ),
        (
            &["serve", "--shadow-descriptors"],
            "--shadow-descriptors is about descriptors",
        ),
        (
            &["serve", "--headers", "envoy"],
            "--headers is about descriptors",
        ),
        (
            &["serve", "--stats", "envoy"],
            "--stats is about descriptors",
        ),
        (
            &["serve", "--grpc-deadline", "1s"],
            "name LIMITS or --ratelimit-config, or leave out the flag",
        ),
        (
            &["serve", "--upstream-timeout", "5s"],
            "--upstream-timeout: nothing is forwarded; name the service by --upstream",
        ),
        (
            &[
                "serve",
                "--connections",
                "500",
                "--client-connections",
                "501",
            ],
            "--client-connections: 501 is more than the 500 of --connections",
        ),
        (
            &["serve", "--grpc-certificate", "a", "--grpc-key", "b"],
            "--grpc is none, so nothing speaks TLS there; give --grpc an address",
        ),
    ] {
        let (code, error) = failed(arguments, &[]);
        assert_eq!(code, Some(1), "{arguments:?} {error}");
        assert!(error.contains(expected), "{arguments:?} {error}");
    }
    assert!(!Path::new(state.path()).exists());
}

#[test]
fn flags_that_another_one_leaves_without_an_effect_are_refused() {
    for (arguments, expected) in [
        (
            &["serve", "--listen", "none", "--sample"][..],
            "--sample: --listen is none",
        ),
        (
            &["serve", "--listen", "none", "--upstream", "http://a"],
            "leave out --upstream",
        ),
        (
            &["serve", "--ops", "none", "--ops-token-file", "token"],
            "--ops-token-file: --ops is none",
        ),
        (
            &["serve", "--ops", "none", "--ops-hosts", "a"],
            "--ops-hosts: --ops is none",
        ),
        (
            &["serve", "--ops", "none", "--ops-writable"],
            "leave out --ops-writable",
        ),
        (
            &[
                "serve",
                "--upstream",
                "http://a",
                "--upstream-ca",
                "no-such-file",
            ],
            "--upstream-ca: the URL of --upstream is not one of https",
        ),
        (
            &["serve", "--ratelimit-config", ".", "--listen", "none"],
            "--ratelimit-config: nothing can ask",
        ),
        (
            &["serve", "--ratelimit-config", ".", "--sample"],
            "--ratelimit-config: nothing can ask",
        ),
        (
            &["serve", "no-such-file", "--charge-refused", "--sample"],
            "--charge-refused: nothing can ask about descriptors; give --grpc an address",
        ),
        (
            &[
                "serve",
                "no-such-file",
                "--stats",
                "envoy",
                "--listen",
                "none",
            ],
            "which has /json, or leave out --stats",
        ),
    ] {
        let (code, error) = failed(arguments, &[]);
        assert_eq!(code, Some(1), "{arguments:?} {error}");
        assert!(error.contains(expected), "{arguments:?} {error}");
    }
}

#[test]
fn credentials_in_the_url_of_the_upstream_are_refused_and_not_shown() {
    for url in [
        "http://ann:hunter2@a",
        "http://ann:hunter2@a/b",
        "ann:hunter2 @",
    ] {
        let arguments = ["serve", "--ops", "none", "--listen", "127.0.0.1:0"];
        let (code, error) = failed(&[&arguments[..], &["--upstream", url]].concat(), &[]);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.starts_with("--upstream: the URL has an @"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_token_that_other_users_may_read_is_told() {
    let token = File::new("token", "0123456789abcdef\n");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    for (mode, expected) in [(0o644, true), (0o640, false)] {
        fs::set_permissions(token.path(), PermissionsExt::from_mode(mode)).unwrap();
        let arguments = ["serve", "--listen", &address, "--ops-token-file"];
        let (code, error) = failed(&[&arguments[..], &[token.path()]].concat(), &[]);
        assert_eq!(code, Some(1), "{error}");
        let is_told = error.contains("--ops-token-file: ") && error.contains("`chmod o-r`");
        assert_eq!(is_told, expected, "{mode:o} {error}");
    }
}

#[test]
fn check_prints_all_mistakes_with_their_lines() {
    let text = "[policies.daily]\nquota = \"10k/day\"\nkye = \"client_ip\"\n\
        [policies.hourly]\nquota = \"10/hour\"\nkey = \"client_pi\"\n";
    let file = File::new("bad.toml", text);
    let (code, error) = failed(&["check", file.path()], &[]);
    assert_eq!(code, Some(1));
    for place in [":2:9: ", ":3:1: ", ":6:7: "] {
        assert!(error.contains(place), "{error}");
    }
    // Not for the misspelt field, whose value may be a secret.
    assert_eq!(error.matches("  ^").count(), 2, "{error}");
}

#[test]
fn the_file_takes_values_of_variables_and_credentials() {
    let credential = File::new("redis-url", "redis://127.0.0.1:1/\n");
    let (folder, name) = credential.path().rsplit_once('/').unwrap();
    let of = |nodes: &str| {
        let text = format!(
            "[policies.a]\nquota = \"9/day\"\nkey = \"global\"\n[store]\n\
             redis = {{ file = \"$CREDENTIALS_DIRECTORY/{name}\" }}\n{nodes}\n"
        );
        File::new("limits.toml", &text)
    };
    let by_variable = of("nodes = { env = \"REPLICAS\" }");
    let check = |file: &File, variables: &[(&str, &str)]| {
        let ended = run(&["check", file.path()], variables);
        (
            ended.status.code(),
            String::from_utf8(ended.stderr).unwrap(),
        )
    };
    let both = |replicas| [("CREDENTIALS_DIRECTORY", folder), ("REPLICAS", replicas)];
    assert_eq!(check(&by_variable, &both("3")).0, Some(0));
    for (nodes, variables, expected) in [
        (
            "nodes = { env = \"REPLICAS\" }",
            &both("many")[..],
            ":6:17: store.nodes.env: this environment variable is \"many\"; set it to a whole number",
        ),
        (
            "nodes = { env = \"REPLICAS\" }",
            &both("0"),
            ":6:17: store.nodes.env: 0 nodes serve no request; give 1 or more",
        ),
        (
            "nodes = { env = \"REPLICAS\" }",
            &both("3")[..1],
            ":6:17: store.nodes.env: this environment variable is not set; set it, or name another",
        ),
        (
            "nodes = 3\nnodes_at_least = 2",
            &both("3"),
            ":7:18: store.nodes_at_least: only a count has a least one; write nodes = \"live\", or leave it out",
        ),
        (
            "nodes = \"lively\"",
            &both("3"),
            ":6:9: store.nodes: \"lively\" is unknown; did you mean \"live\"?",
        ),
        (
            "nodes = \"live\"",
            &both("3")[1..],
            "$CREDENTIALS_DIRECTORY is not set; give the unit LoadCredential= or SetCredential=, or write the whole path",
        ),
    ] {
        let (code, error) = check(&of(nodes), variables);
        assert_eq!(code, Some(1), "{nodes}");
        assert!(error.contains(expected), "{error}");
    }
    let live = of("nodes = \"live\"\nnodes_at_least = 2");
    assert_eq!(check(&live, &both("3")).0, Some(0));
}

#[test]
fn check_prints_what_was_understood_and_warns_of_a_limit_that_never_binds() {
    let text = "[policies.a]\nquota = \"100/minute\"\nkey = \"global\"\n\
        [policies.b]\nquota = \"50/hour\"\nkey = \"global\"\n";
    let file = File::new("good.toml", text);
    let ended = run(&["check", file.path()], &[]);
    assert_eq!(ended.status.code(), Some(0));
    let table = String::from_utf8(ended.stdout).unwrap();
    let policies: Vec<_> = table
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(policies, ["a", "b"], "{table}");
    let warning = String::from_utf8(ended.stderr).unwrap();
    assert!(
        warning.contains(":2:9: ") && warning.contains("\"b\" (line 5)"),
        "{warning}"
    );
}

const PLANS: &str = "default_plan = \"free\"
plan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }
[policies.minute]
quota = \"100/minute\"
key = \"client_ip\"
[policies.night]
quota = \"100/hour\"
key = \"client_ip\"
[policies.night.hours]
zone = \"Europe/Berlin\"
limits = { \"22:00-06:00\" = \"1200/hour\" }
[plans.free]
minute = \"100/minute\"
night = \"100/hour\"
[plans.pro]
minute = \"1000/minute\"
night = \"500/hour\"
";

#[test]
fn explain_prints_the_limits_of_a_request_and_their_lines() {
    let file = File::new("plans.toml", PLANS);
    let row = |policy: &str, arguments: &[&str]| {
        let table = printed(&[&["explain", file.path(), "--key", "k"], arguments].concat());
        let row = table.lines().find(|line| line.starts_with(policy));
        let row = row.unwrap_or_else(|| panic!("{table}"));
        row.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")
    };
    // The clocks of that night skip from two to three.
    let skipped = [
        "--method",
        "GET",
        "--path",
        "/x",
        "--at",
        "2026-03-29T02:30",
    ];
    assert!(
        row("minute", &skipped).starts_with("100/minute")
            && row("minute", &skipped).ends_with("line 13")
    );
    let pro = row("minute", &[&skipped[..], &["--plan", "pro"]].concat());
    assert!(
        pro.starts_with("1000/minute") && pro.ends_with("line 16"),
        "{pro}"
    );
    // The interval gives the limit of a plan that repeats the policy's own, and has no part in that of another plan.
    let night = ["--at", "2026-03-29T23:30", "--plan"];
    let night = |plan| row("night", &[&night[..], &[plan]].concat());
    assert_eq!(night("free"), "1200/hour hours 22:00-06:00 line 11");
    assert_eq!(night("pro"), "500/hour plan pro line 17");

    let (code, error) = failed(&["explain", file.path(), "--plan", "prp"], &[]);
    let expected = "--plan: the file has no plan \"prp\"; its plans are: free, pro\n";
    assert_eq!((code, &*error), (Some(1), expected));

    let (code, error) = failed(&["explain", env!("CARGO_MANIFEST_DIR")], &[]);
    assert_eq!(code, Some(1));
    assert!(error.contains("with --domain and --entry"), "{error}");
}

#[test]
fn explain_reads_the_body_of_a_request() {
    let limits = "[policies.tools]\nkey = \"global\"\nquota = \"9/hour\"\noperation = { json = \"model\" }\n\
                  operations = { large = 1 }\ncost = { json = \"rows\", or = 7 }\n";
    let file = File::new("body.toml", limits);
    let explained = |arguments: &[&str]| printed(&[&["explain", file.path()], arguments].concat());
    for (body, expected) in [
        (
            r#"{"model":"large","rows":3}"#,
            "tools  anchored-window 1/hour, cost 3  operation large  line 5\n",
        ),
        (
            r#"{"model":"small"}"#,
            "tools  anchored-window 9/hour, cost 7  policy  line 3\n",
        ),
        (
            "[]",
            "refused, whatever the limits are: the body is not one JSON object\n",
        ),
    ] {
        assert_eq!(explained(&["--body", body]), expected);
    }
    let plain = ["--body", "{}", "--header", "content-type: text/plain"];
    assert!(explained(&plain).contains("the body is no JSON"));
    assert!(explained(&[]).contains("cost 7"));
}

/// A file with one policy, and what it makes of a log.
fn replayed(algorithm: &str, log: &str) -> Output {
    let text = format!("[policies.a]\nalgorithm = \"{algorithm}\"\nkey = \"api_key\"\n");
    let (file, log) = (File::new("limits.toml", &text), File::new("log.jsonl", log));
    let ended = run(&["replay", file.path(), log.path(), "--jsonl"], &[]);
    assert!(ended.status.success(), "{algorithm}: {ended:?}");
    ended
}

/// A thousand requests of three keys within one second, under 100 a second for each key.
#[test]
fn replay_admits_of_a_log_what_each_algorithm_admits() {
    let mut log = String::new();
    for i in 0..1000_u64 {
        let at = 1_700_000_000_000_000 + i * 1000;
        writeln!(log, "{{\"t_us\":{at},\"key\":\"k{}\"}}", i % 3).unwrap();
    }
    for (algorithm, expected) in [
        ("fixed-window 100/1s", 300),
        ("anchored-window 100/1s", 300),
        ("sliding-log 100/1s", 300),
        ("sliding-window 100/1s", 300),
        ("sliding-slots 100/1s", 300),
        ("token-bucket 100/1s", 597),
        ("token-bucket-interval 100/1s", 300),
        ("leaky-bucket 100/1s", 597),
        ("gcra 100/1s", 597),
        ("leaky-queue 100/1s places 99", 597),
    ] {
        let ended = replayed(algorithm, &log);
        let lines = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(
            lines.matches("\"allowed\":true").count(),
            expected,
            "{algorithm}"
        );
        let summary = String::from_utf8(ended.stderr).unwrap();
        assert!(
            summary.contains(&format!(" {expected} allowed\n")),
            "{summary}"
        );
    }
}

/// The resets in these logs are worked out by hand, over changes of the clocks.
#[test]
fn replay_tells_resets_as_they_are_worked_out_by_hand() {
    let logs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/laws/logs"));
    let mut files = 0;
    for log in fs::read_dir(logs).unwrap() {
        let by_hand = fs::read_to_string(log.unwrap().path()).unwrap();
        let ended = replayed("calendar-day 3 zone America/Sao_Paulo", &by_hand);
        let decided = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(decided.lines().count(), by_hand.lines().count());
        for (decided, by_hand) in decided.lines().zip(by_hand.lines()) {
            let decided: Value = serde_json::from_str(decided).unwrap();
            let by_hand: Value = serde_json::from_str(by_hand).unwrap();
            assert_eq!(decided["allowed"], by_hand["allowed"], "{by_hand}");
            let reset_at =
                decided["t_us"].as_u64().unwrap() + decided["reset_after_us"].as_u64().unwrap();
            assert_eq!(by_hand["reset_at_us"], reset_at, "{by_hand}");
        }
        files += 1;
    }
    assert!(files > 1);
}

#[test]
fn replay_tells_who_pays() {
    let text = "[policies.plan]\nquota = \"1/hour\"\nkey = \"api_key\"\n\
                [policies.pool]\nquota = \"2/hour\"\nkey = \"global\"\n[first_of]\nspend = [\"plan\", \"pool\"]\n";
    let requests = (0..4).fold(String::new(), |all, at| {
        all + &format!("{{\"t_us\":{at},\"key\":\"ann\"}}\n")
    });
    let (file, log) = (
        File::new("limits.toml", text),
        File::new("log.jsonl", &requests),
    );
    let ended = run(&["replay", file.path(), log.path(), "--jsonl"], &[]);
    let lines = String::from_utf8(ended.stdout).unwrap();
    let paid_by = lines.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["paid_by"]["spend"].as_str().map(str::to_owned)
    });
    let pool = || Some("pool".to_owned());
    assert_eq!(
        paid_by.collect::<Vec<_>>(),
        [Some("plan".to_owned()), pool(), pool(), None]
    );
    let summary = String::from_utf8(ended.stderr).unwrap();
    for expected in [" 1 of spend paid by plan\n", " 2 of spend paid by pool\n"] {
        assert!(summary.contains(expected), "{summary}");
    }
}

#[test]
fn replay_compares_two_files() {
    let limits = |limit: &str| {
        let text = format!("[policies.address]\nquota = \"{limit}/minute\"\nkey = \"client_ip\"\n");
        File::new("limits.toml", &text)
    };
    let mut requests = String::new();
    for second in 0..4 {
        let at = 1_700_000_000_000_000_u64 + second * 1_000_000;
        writeln!(requests, "{{\"t_us\":{at},\"key\":\"192.0.2.1\"}}").unwrap();
    }
    let (live, next) = (limits("3"), limits("2"));
    let log = File::new("log.jsonl", &requests);

    let one = printed(&["replay", live.path(), log.path()]);
    assert!(one.contains(" 3 allowed\n"), "{one}");
    let arguments = ["replay", live.path(), log.path(), "--versus", next.path()];
    let both = printed(&arguments);
    for expected in [
        " 3 allowed\n",
        " 2 allowed\n",
        " 1 refused in place of allowed\n",
        "line 3, 1700000002000000 µs, 192.0.2.1: refused, by address\n",
    ] {
        assert!(both.contains(expected), "{both}");
    }
    let lines = printed(&[&arguments[..], &["--jsonl"]].concat());
    let decided: Vec<_> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|it| [it["allowed"].clone(), it["versus"]["allowed"].clone()])
        .collect();
    let expected = [[true, true], [true, true], [true, false], [false, false]];
    assert_eq!(decided, expected.map(|it| it.map(Value::from)));

    // A mistake in a file is reported as `check` reports it.
    let wrong = limits("2k");
    let arguments = ["replay", live.path(), log.path(), "--versus", wrong.path()];
    let (code, error) = failed(&arguments, &[]);
    assert_eq!(code, Some(1));
    assert!(error.contains(":2:9: policies.address.quota"), "{error}");
    // And one in the log, with its line.
    let wrong = File::new("log.jsonl", "{\"t_us\":1,\"key\":\"a\"}\nno request\n");
    let ended = run(&["replay", live.path(), wrong.path()], &[]);
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(
        !ended.status.success() && error.starts_with("line 2: "),
        "{error}"
    );
}

/// A thousand addresses with up to five requests in a minute, of ten tenants, and one address with five hundred.
#[test]
fn suggest_prints_limits_that_let_nearly_all_keys_alone() {
    let mut log = String::new();
    let mut line = |at: u64, key: &str, tenant: u64| {
        let at = 1_700_000_040_000_000 + at;
        writeln!(
            log,
            "{{\"t_us\":{at},\"key\":\"{key}\",\"headers\":{{\"X-Tenant\":\"t{tenant}\"}}}}"
        )
        .unwrap();
    };
    for round in 0..5 {
        for key in 0..1000_u64 {
            if round <= key % 5 {
                line(
                    round * 10_000_000 + key,
                    &format!("10.0.{}.{}", key / 250, key % 250),
                    key % 10,
                );
            }
        }
        for request in 0..100 {
            line(round * 10_000_000 + 1_000 + request, "192.0.2.1", 0);
        }
    }
    let log = File::new("log.jsonl", &log);
    let text = printed(&[
        "suggest",
        log.path(),
        "--key",
        "client_ip",
        "--key",
        "x-tenant",
    ]);
    for expected in [
        "[policies.client_ip]\nmode = \"shadow\"\nalgorithm = \"sliding-window\"\nquota = \"8/minute\"\nkey = \"client_ip\"\n",
        "half of the keys had at most 3, 99.9 % at most 5, and the\n# busiest 500. This limit would have refused requests of 1 keys.\n",
        "[policies.x_tenant]\n",
        "key = { header = \"x-tenant\" }\n",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let file = File::new("suggested.toml", &text);
    printed(&["check", file.path()]);
    // In force, it refuses the one address.
    let enforced = text.replace("mode = \"shadow\"\n", "");
    let file = File::new("enforced.toml", &enforced);
    let decided = printed(&["replay", file.path(), log.path(), "--jsonl"]);
    let refused = decided
        .lines()
        .filter(|it| it.contains("\"allowed\":false"));
    let mut keys: Vec<_> = refused
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["key"].clone())
        .collect();
    assert_eq!(keys.len(), 492);
    keys.dedup();
    assert_eq!(keys, ["192.0.2.1"]);

    let (code, error) = failed(&["suggest", log.path(), "--key", "x-user"], &[]);
    assert_eq!(
        (code, &*error),
        (Some(1), "--key x-user: no request of the log has it\n")
    );
}

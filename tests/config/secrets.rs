//! No message shows a secret, whatever is wrong in the file: not the error, not the warnings, not the status that the
//! operator's page shows, and not the log.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use tower_ratelimit_config::{Config, FileError, Format};

use crate::folder::Folder;
use crate::support::log::Log;

/// Parts of all secrets of the files below.
const SECRETS: [&str; 2] = ["hunter2", "7719283746"];

const POLICY: &str = "[policies.a]\nkey = \"api_key\"\nquota = \"1/day\"\n";

/// What stands before the policy of a file, in TOML.
const BEFORE: &[&str] = &[
    "secret = hunter2hunter2hunter2",
    "secret = \"hunter2hunter2hunter2",
    "secret = 7719283746",
    "secret = 7719283746771928374677192837467719283746",
    "secret = 77192837460.5",
    "secret = \"hunter2\"",
    "secret = [\"hunter2hunter2hunter2\"]",
    "secret =\n\"hunter2hunter2hunter2\"",
    "secret = \"\"\"\nhunter2hunter2hunter2\n",
    "secret = \"\"\"\nhunter2hunter2hunter2\n\"\"\" 5",
    "secret = '''hunter2\nhunter2 = 5\n",
    "secert = \"hunter2hunter2hunter2\"",
    "secret = { value = \"hunter2hunter2hunter2\" }",
    "secret = { hunter2 = true }",
    "secret = { env = \"hunter2\" }",
    "secret = { env = [\"hunter2\"] }",
    "secret = { file = \"hunter2\" }",
    "secret = { file = \"/hunter2\" }",
    "secret = { file = \"$CREDENTIALS_DIRECTORY/hunter2\" }",
    "secret = { env = \"PATH\", file = \"/hunter2\" }",
    "secret.evn = \"hunter2hunter2hunter2\"",
    "secret: \"hunter2hunter2hunter2\"",
    "secret = \"hunter2hunter2hunter2\" quota = \"5/dya\"",
    "quota = \"5/dya\", secret: \"hunter2hunter2hunter2\"",
    "secret = \"hunter2hunter2hunter2\"; mode = \"of\"",
    "[secrt]\nvalue = \"hunter2\"",
    "password = 7719283746",
    "store = \"redis://:hunter2@localhost\"",
    "store = [\"redis://:hunter2@localhost\"]",
    "store = { redis = \"redis//:hunter2@localhost\", prefix = 5 }",
    "store = { redsi = \"redis://:hunter2@localhost\" }",
    "store = { url = 7719283746 }",
    "store = { cluster = [\"redis://:hunter2@a\", 7719283746, \"hunter2\"] }",
    "store = { cluster = [\n\"redis://:hunter2@a\"\n\"redis://:hunter2@b\"\n] }",
    "store = { sentinel = \"redis://:hunter2@a\" }",
    "store = { sentinel = { master = 7719283746, server = [\"redis://:hunter2@a\"] } }",
    "store = { sentinel = { master = \"redis://:hunter2@\", servers = \"hunter2\" } }",
    "store = { redis = \"redis://user:hunter2@host:port\" }",
    "store = { redis = \"redis://user:x@host/hunter2\" }",
    "store = { redis = \"redis://host:6379:hunter2\" }",
    "store = { redis = \"redis://:hunter2@a\", max_keys = 5 }",
    "plan_of = \"hunter2\"",
    "default_plan = \"free\"\nplan_of = { key = \"api_key\", plans = { hunter2 = \"fre\" } }\nplans.free.a = 5",
    "default_plan = \"free\"\nplan_of = { key = \"api_key\", plans = { free = \"hunter2\" } }\nplans.free.a = 5",
    "default_plan = \"free\"\nplan_of = { key = \"api_key\", plans = { hunter2 = 5 } }\nplans.free.a = 5",
    "default_plan = \"free\"\nplan_of = { key = \"api_key\", plan = { hunter2 = \"free\" } }\nplans.free.a = 5",
    "default_plan = \"free\"\nplan_of = { key = \"api_key\", hunter2 = \"free\" }\nplans.free.a = 5",
    "default_plan = \"free\"\nplan_of = { key = \"peer_ip\", plans = { hunter2 = \"free\" } }\nplans.free.a = 5",
    "lists = { deny = { header = { authorization = 7719283746 } } }",
    "lists = { deny = { header = { authorization = \"hunter2\\u0000\" } } }",
    "lists = { deny = { header = { \"authorization: hunter2\" = true } } }",
    "lists = { deny = { header = \"authorization: hunter2\" } }",
    "lists = { deny = { haeder = { authorization = \"hunter2\" } } }",
    "lists = { deny = [\"hunter2\"] }",
];

/// What stands in the policy of a file.
const WITHIN: &[&str] = &[
    "key_limits = { keys = { hunter2 = \"x\" } }",
    "key_limits = { keys = { \"hunter2 hunter2\" = -5 } }",
    "key_limits = { keys = { hunter2 = \"5/hour\" } }",
    "key_limits = { keys = { hunter2 = { limt = 5 } } }",
    "key_limits = { keys = [\"hunter2\"] }",
    "key_limits = { keys = \"hunter2\" }",
    "key_limits = { kyes = { hunter2 = 5 } }",
    "key_limits = { hunter2 = 5 }",
    "key_limits = { keys = { 7719283746x = 5 }, key_type = \"number\" }",
    "key_limits = { prefixes = { hunter2 = true } }",
    "key_limits = { prefixes = { hunter2 = 5 }, key_type = \"number\" }",
    "key_limits = \"hunter2\"",
    "key_limts = { keys = { hunter2 = 5 } }",
    "key_limits.keys.hunter2 = 5\nkey_limits.keys.hunter2 = 6",
    "[policies.a.key_limits.keys]\nhunter2 = 5 5\n",
    "[policies.a.key_limits.keys]\nhunter2 = 5\nhunter2 = 6\n",
    "[policies.a.key_limits.keys.hunter2]\nlimt = 5\n",
    "[policies.a.key_limts.keys.hunter2]\nlimit = 5\n",
    "when = { header = { x-api-key = [\"hunter2\", 7719283746] } }",
    "when = { header = { x-api-key = { is = \"hunter2\" } } }",
    "when = { not = { header = { x-api-key = 7719283746 } } }",
    "when = [{ header = { x-api-key = \"hunter2\" }, path = \"bulk\" }]",
    "when = \"x-api-key: hunter2\"",
    "low_priority = { header = { x-api-key = 7719283746 } }",
    "class = [{ class = \"sheddable\", when = { header = { x-api-key = 7719283746 } } }]",
];

const JSON: &[&str] = &[
    r#"{ "secret": "hunter2hunter2hunter2" "policies": {} }"#,
    r#"{ "secret": hunter2, "policies": {} }"#,
    r#"{ "secret": 7719283746, "policies": {} }"#,
    r#"{ "secret": { "hunter2": 5 }, "policies": {} }"#,
    r#"{ "secret": "hunter2hunter2hunter2", "policies": { "a": { "key_limits": { "keys": { "hunter2": null } } } } }"#,
    r#"{ "policies": { "a": { "key_limits": { "keys": { "hunter2": 5, "hunter2": 6 } } } } }"#,
    r#"{ "policies": { "a": { "key_limits": { "hunter2": 5 } } } }"#,
    r#"{ "policies": { "a": { "when": { "header": { "x-api-key": 7719283746 } } } } }"#,
    r#"{ "plan_of": { "key": "api_key", "plans": { "hunter2": "fre" } }, "plans": { "free": {} }, "policies": {} }"#,
    r#"{ "store": { "redis": ["redis://:hunter2@a"] }, "policies": {} }"#,
];

fn in_toml() -> impl Iterator<Item = String> {
    let before = BEFORE.iter().map(|text| format!("{text}\n{POLICY}"));
    let within = WITHIN.iter().map(|text| format!("{POLICY}{text}\n"));
    before.chain(within)
}

fn leaks(shown: &str) -> bool {
    SECRETS.iter().any(|secret| shown.contains(secret))
}

/// Returns all that an error and the status of a file show.
fn shown(read: &Result<Config, FileError>) -> String {
    let mut all = String::new();
    let mistakes = match read {
        Ok(config) => {
            write!(all, "{config:?}{:?}", config.understood()).unwrap();
            config.warnings()
        }
        Err(error) => {
            write!(all, "{error}{error:?}{error:#?}").unwrap();
            error.mistakes()
        }
    };
    for mistake in mistakes {
        let (path, message) = (mistake.path(), mistake.message());
        write!(all, "{mistake}{mistake:?}{path}{message}").unwrap();
    }
    all
}

#[test]
fn no_error_and_no_warning_shows_a_secret() {
    let of_json = JSON.iter().map(|text| (Format::Json, (*text).to_owned()));
    let all = in_toml().map(|text| (Format::Toml, text)).chain(of_json);
    let shown = all.map(|(format, text)| {
        let shown = shown(&Config::builder().parse(&text, format));
        (text, shown)
    });
    let leaky: Vec<_> = shown.filter(|(_, shown)| leaks(shown)).collect();
    assert!(leaky.is_empty(), "{} leak:\n{leaky:#?}", leaky.len());
}

#[test]
fn the_status_and_the_log_of_a_watched_file_show_no_secret() {
    let folder = Folder::new("secrets");
    fs::write(folder.file(), POLICY).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let mut leaky = Vec::new();
    for text in in_toml() {
        fs::write(folder.file(), &text).unwrap();
        let (_, lines) = Log::of_all(|| watched.reload());
        let status = watched.status();
        // The operator's page has it from the snapshot.
        let snapshot = watched.layer().monitor().snapshot();
        let shown = format!("{lines:?}{status}{status:?}{snapshot:?}");
        if leaks(&shown) {
            leaky.push(text);
        }
    }
    assert!(leaky.is_empty(), "{} leak:\n{leaky:#?}", leaky.len());
}

/// A secret from the environment, or one that stands once more elsewhere, such as in a comment.
#[test]
fn a_line_with_the_text_of_a_secret_is_not_shown() {
    let text = "secret = \"hunter2hunter2hunter2\"\n[policies.a]\nkey = \"global\"\nquota = 5 # hunter2hunter2hunter2\n";
    let error = text.parse::<Config>().unwrap_err().to_string();
    assert!(
        error.contains("<text>:4:9: policies.a.quota") && !leaks(&error),
        "{error}"
    );
}

/// A longer line is not searched for the text of a secret.
#[test]
fn beside_a_secret_a_line_of_a_thousand_bytes_is_shown_and_a_longer_one_is_not() {
    for (length, is_shown) in [(1_000, true), (1_001, false)] {
        let line = format!("{:x<length$}", "quota = 5 # ");
        let text =
            format!("secret = \"hunter2hunter2hunter2\"\n[policies.a]\nkey = \"global\"\n{line}\n");
        let error = text.parse::<Config>().unwrap_err().to_string();
        assert_eq!(error.contains("4 | quota = 5 # xxx"), is_shown, "{error}");
    }
}

#[test]
fn other_lines_and_values_are_shown_beside_secrets() {
    let text = "secret = \"hunter2hunter2hunter2\"\n[policies.a]\nkey = \"global\"\nqouta = \"5/dya\"\nlimit = \"10k\"\nper = \"day\"\n\
                when = { path = \"bulk\" }\n[policies.a.key_limits]\nkyes = { hunter2 = 5 }\n";
    let error = text.parse::<Config>().unwrap_err().to_string();
    for told in [
        "<text>:4:1: policies.a.qouta: field \"qouta\" is unknown; did you mean \"quota\"?",
        "<text>:5:9: policies.a.limit: \"10k\" is not a whole number; write 10_000\n 5 | limit = \"10k\"\n",
        "policies.a.when.path: \"bulk\" is not a path",
        "<text>:9:1: policies.a.key_limits[0]: this field is unknown; did you mean \"keys\"?",
    ] {
        assert!(error.contains(told), "{error}");
    }
    assert!(!leaks(&error), "{error}");
}

/// Returns what is told of a secret in this file.
fn told_of(path: &str) -> Vec<String> {
    let text = format!("secret = {{ file = {path:?} }}\n{POLICY}");
    match text.parse::<Config>() {
        Ok(config) => config.warnings().iter().map(ToString::to_string).collect(),
        Err(error) => error.mistakes().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_secret_comes_from_a_file_of_its_own() {
    let folder = Folder::new("secret-file");
    let path = folder.file().with_file_name("secret");
    let shown = path.to_str().unwrap();
    for (content, expected) in [
        (&b"0123456789abcdef\n"[..], None),
        (b"0123456789abcdef", None),
        (
            b"short\n",
            Some("`secret` cannot be this value, which is not shown"),
        ),
        (
            b"\xff0123456789abcdef",
            Some("this file is not text in UTF-8"),
        ),
        (
            &vec![b'a'; 65_537],
            Some("this file has more than 65536 bytes"),
        ),
    ] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let told = told_of(shown);
        match expected {
            None => assert!(told.is_empty(), "{told:?}"),
            Some(expected) => assert!(told[0].contains(expected), "{told:?}"),
        }
        assert!(!told.concat().contains(shown), "{told:?}");
    }
    fs::write(&path, "0123456789abcdef").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
    let expected = "<text>:1:19: secret.file: other users of this machine may read this file; take that right away, `chmod o-r`";
    assert_eq!(told_of(shown), [expected]);

    for (path, expected) in [
        (
            "secret",
            "this is no absolute path; write one from the root",
        ),
        ("/no-such-file", "this file cannot be read: "),
        ("/", "this is no file; name one that has the secret alone"),
    ] {
        let told = told_of(path).concat();
        assert!(told.starts_with("<text>:1:19: secret.file: "), "{told}");
        assert!(told.contains(expected), "{told}");
    }
    let both = format!("secret = {{ env = \"PATH\", file = {shown:?} }}\n{POLICY}");
    let error = both.parse::<Config>().unwrap_err().to_string();
    assert!(error.contains("`file` contradicts `env`"), "{error}");
    let none = format!("secret = {{}}\n{POLICY}").parse::<Config>();
    let error = none.unwrap_err().to_string();
    assert!(
        error.contains(
            "`env` is missing; name an environment variable, or give `file`, the path of a file"
        ),
        "{error}"
    );
}

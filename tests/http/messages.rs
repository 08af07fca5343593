//! The compiler's messages for wrong code, in the words of this crate.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const MANIFEST: &str = r#"
[package]
name = "messages"
edition = "2024"

[dependencies]
tower-ratelimit = { path = "{root}", default-features = false }
tower-layer = "0.3.3"

[workspace]
"#;

const PROGRAM: &str = r#"
use tower_layer::Layer;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{Algorithm, Policy, RateLimitLayer, TokenBucket, key::{self, Head, IntoKey}};

#[derive(Clone)]
pub struct User { id: u64 }

fn policy() -> Policy {
    Policy::new("a", TokenBucket::per_second(1))
}

fn keyed() -> Policy<Http> {
    policy().key(|head: &Head<'_>| head.header("x").map(IntoKey::into_key))
}

/// Like a router that takes a layer.
fn add<L: Layer<u32> + Clone + Send + Sync + 'static>(_: L)
where
    L::Service: Clone + Send + Sync + 'static,
{
}

fn main() {
    add(RateLimitLayer::builder().policy(keyed()).policies([keyed()]).build().unwrap());
    let _ = policy().key(key::header("x"));
    let _ = Policy::new("a", "token-bucket 5/second".parse::<Algorithm>().unwrap());
}

fn wrong() {
"#;

const USE_A_FUNCTION: &str = "use one of the functions of `tower_ratelimit::key`";
const RETURN_A_FIELD: &str = "return the field that tells clients apart, such as `user.id`";
const BUILD_IT: &str = "build it: `.layer(builder.build()?)`";
const NEEDS_A_KEY: &str = "add one: `Policy::new(…).key(key::client_ip())`";
const PARSE_IT: &str = "parse it: `\"token-bucket 5/second burst 10\".parse::<Algorithm>()?`";
const MAP_THE_EXTENSION: &str = "`key::extension::<User>().map(|user: &User| user.id)`";

/// Compiles a program that is right except for these statements, and returns the messages.
fn said_of(statements: &[&str]) -> (bool, String) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = MANIFEST.replace("{root}", &root.display().to_string());
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let program = format!("{PROGRAM}{}\n}}\n", statements.join("\n"));
    fs::write(folder.join("src/main.rs"), program).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline", "--color=never"])
        .arg("--target-dir")
        .arg(folder.join("target"))
        .env_remove("RUSTFLAGS")
        .current_dir(&folder)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), stderr)
}

/// Returns the errors of the compiler in each line of such a program, from the first statement on.
fn errors_of(said: &str, statement: usize) -> Vec<&str> {
    let line = PROGRAM.lines().count() + 1 + statement;
    let place = format!("--> src/main.rs:{line}:");
    let errors = said.split("\nerror").filter(|error| {
        let first = error.lines().find(|line| line.contains("--> "));
        first.is_some_and(|first| first.contains(&place))
    });
    errors.collect()
}

/// A builder that was not built, a policy without a key, and text for an algorithm gave errors about mismatched
/// types, without a hint at what was missing.
#[test]
fn each_mistake_is_answered_with_a_remedy() {
    let (compiles, said) = said_of(&[]);
    assert!(compiles, "{said}");

    let wrong = [
        (r#"let _ = policy().key("x-tenant");"#, USE_A_FUNCTION),
        ("let _ = policy().key(User { id: 1 });", USE_A_FUNCTION),
        (
            r#"let _ = key::client_ip().or("x-tenant");"#,
            USE_A_FUNCTION,
        ),
        (
            "let _ = policy().key(|_: &Head<'_>| User { id: 1 });",
            RETURN_A_FIELD,
        ),
        (
            "let _ = key::extension::<User>().map(User::clone);",
            RETURN_A_FIELD,
        ),
        (
            "let _ = key::from_fn(|_| Some(User { id: 1 }));",
            RETURN_A_FIELD,
        ),
        (
            "let _ = policy().key(key::extension::<User>());",
            MAP_THE_EXTENSION,
        ),
        (
            "let _ = key::header(\"x\").one_of([User { id: 1 }]);",
            RETURN_A_FIELD,
        ),
        ("add(RateLimitLayer::builder().policy(keyed()));", BUILD_IT),
        (
            "let _ = RateLimitLayer::builder().policy(policy());",
            NEEDS_A_KEY,
        ),
        (
            "let _ = RateLimitLayer::builder().policies([policy()]);",
            NEEDS_A_KEY,
        ),
        (
            r#"let _ = Policy::new("a", "token-bucket 5/second");"#,
            PARSE_IT,
        ),
        (
            r#"let _ = Policy::new("a", String::from("token-bucket 5/second"));"#,
            PARSE_IT,
        ),
        (
            r#"let _ = Policy::new("a", &String::from("token-bucket 5/second"));"#,
            PARSE_IT,
        ),
        (
            r#"let _ = RateLimitLayer::new(key::client_ip(), "token-bucket 5/second");"#,
            PARSE_IT,
        ),
    ];
    let (compiles, said) = said_of(&wrong.map(|(statement, _)| statement));
    assert!(!compiles);
    // All messages are checked, so that one run reports each missing message.
    let lost = wrong.iter().enumerate().filter_map(|(number, case)| {
        let (statement, expected) = case;
        let errors = errors_of(&said, number);
        // One mistake, one error.
        let is_told = matches!(&*errors, [error] if error.contains(expected));
        (!is_told).then(|| format!("{statement}\nlacks {expected:?}:\n{}\n", errors.concat()))
    });
    let lost: Vec<String> = lost.collect();
    assert!(lost.is_empty(), "{} lost\n{}", lost.len(), lost.concat());
}

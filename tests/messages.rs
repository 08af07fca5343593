//! What the compiler says of a key that cannot be one: our own words, whatever its own are.

#![cfg(feature = "http")]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const MANIFEST: &str = r#"
[package]
name = "messages"
edition = "2024"

[dependencies]
tower-ratelimit = { path = "{root}", default-features = false, features = ["http"] }

[workspace]
"#;

const PROGRAM: &str = r#"
use tower_ratelimit::{Policy, TokenBucket, key::{self, Head, IntoKey}};

#[derive(Clone)]
pub struct User { id: u64 }

fn main() {
    let policy = || Policy::new("a", TokenBucket::per_second(1));
    let _ = policy().key(|head: &Head<'_>| head.header("x").map(IntoKey::into_key));
    {statement}
}
"#;

const USE_A_FUNCTION: &str = "use one of the functions of `tower_ratelimit::key`";
const RETURN_A_FIELD: &str = "return the field that tells clients apart, such as `user.id`";
const MAP_THE_EXTENSION: &str = "`key::extension::<User>().map(|user: &User| user.id)`";

/// What the compiler says of this statement in a program that is right otherwise.
fn said_of(statement: &str) -> (bool, String) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
    fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = MANIFEST.replace("{root}", &root.display().to_string());
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let program = PROGRAM.replace("{statement}", statement);
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

// One test, since all statements are compiled in one folder.
#[test]
fn what_cannot_be_a_key_is_answered_with_what_to_do() {
    let (compiles, said) = said_of("let _ = policy().key(key::header(\"x\"));");
    assert!(compiles, "{said}");

    for (statement, expected) in [
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
    ] {
        let (compiles, said) = said_of(statement);
        assert!(!compiles, "{statement}");
        assert!(said.contains(expected), "{statement}\n{said}");
    }
}

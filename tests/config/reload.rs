//! Reload: a changed file comes into force as a whole, and a bad one changes nothing.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{MemoryStore, RateLimitLayer};
use tower_ratelimit_config::{Config, Watched};

use crate::folder::Folder;
use crate::scene::{get, now, send};

/// Returns a file whose policy has this limit.
pub(crate) fn limits(limit: u32) -> String {
    format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n")
}

fn watched(path: &Path) -> Watched {
    Config::read(path).unwrap().watch().unwrap()
}

/// Returns the `RateLimit-Policy` header that clients get.
pub(crate) fn sent_policy(watched: &Watched) -> String {
    send(&watched.layer(), get("/"))
        .policies
        .unwrap_or_default()
}

pub(crate) fn policy(limit: u32) -> String {
    format!("\"a\";q={limit};w=86400")
}

#[test]
fn a_layer_follows_its_file_when_it_is_told_to() {
    let folder = Folder::new("told");
    fs::write(folder.file(), limits(10)).unwrap();
    let watched = watched(&folder.file());
    let layer = watched.layer();
    assert_eq!(sent_policy(&watched), policy(10));
    let before = watched.status();
    assert_eq!((before.version(), before.error().is_some()), (1, false));
    assert_eq!(before.sha256().len(), 64);

    fs::write(folder.file(), limits(20)).unwrap();
    assert_eq!(sent_policy(&watched), policy(10));
    let after = watched.reload().unwrap();
    assert_eq!(after.version(), 2);
    assert_ne!(after.sha256(), before.sha256());
    assert!(after.since() >= before.since());
    // The layer that was made before follows too.
    assert_eq!(send(&layer, get("/")).policies.unwrap(), policy(20));
    // So does the limiter.
    let decision = now(watched.limiter().check("k", 1)).unwrap();
    assert_eq!(decision.binding().unwrap().1.limit(), 20);

    // The same bytes are no change.
    assert_eq!(watched.reload().unwrap().version(), 2);
}

#[test]
fn a_bad_file_changes_nothing_and_is_told() {
    let folder = Folder::new("bad");
    fs::write(folder.file(), limits(10)).unwrap();
    let watched = watched(&folder.file());
    for bad in ["", "[policies.a]\nquota = 5\n", "[policies.a"] {
        fs::write(folder.file(), bad).unwrap();
        let error = watched.reload().unwrap_err();
        let status = watched.status();
        assert_eq!(status.error(), Some(&error), "{bad:?}");
        assert_eq!(status.version(), 1, "{bad:?}");
        assert_eq!(sent_policy(&watched), policy(10), "{bad:?}");
    }
    fs::remove_file(folder.file()).unwrap();
    assert!(watched.reload().is_err());
    fs::write(folder.file(), limits(10)).unwrap();
    assert_eq!(watched.reload().unwrap().version(), 1);
    assert!(watched.status().error().is_none());
}

#[test]
fn usage_stays_under_an_unchanged_policy() {
    let folder = Folder::new("used");
    fs::write(folder.file(), limits(1)).unwrap();
    let watched = watched(&folder.file());
    assert_eq!(send(&watched.layer(), get("/")).status, 200);
    for round in 0..3 {
        fs::write(folder.file(), format!("{}# {round}", limits(1))).unwrap();
        assert_eq!(watched.reload().unwrap().version(), round + 2);
        assert_eq!(
            send(&watched.layer(), get("/")).status,
            429,
            "round {round}"
        );
    }
}

#[test]
fn a_reload_that_needs_a_restart_is_refused_as_a_whole() {
    let folder = Folder::new("fixed");
    let write = |secret: &str, store: &str, limit: u32| {
        let text = format!("secret = {secret}\n{}{store}\n", limits(limit));
        fs::write(folder.file(), text).unwrap();
    };
    let (secret, store) = ("\"0123456789abcdef\"", "[store]\nmax_keys = 5");
    write(secret, store, 10);
    let watched = watched(&folder.file());
    for (secret, store, places) in [
        (secret, "[store]\nmax_keys = 6", &["5:1: store"][..]),
        (secret, "", &[" store"]),
        ("\"another-0123456789\"", store, &["1:10: secret"]),
        ("{ env = \"PATH\" }", store, &["1:10: secret"]),
        ("\"another-0123456789\"", "", &[" store", "1:10: secret"]),
    ] {
        write(secret, store, 20);
        let error = watched.reload().unwrap_err();
        assert_eq!(error.mistakes().len(), places.len(), "{error}");
        let shown = error.to_string();
        for place in places {
            assert!(
                shown.contains(&format!("{place}: it cannot change")),
                "{shown}"
            );
        }
        assert!(!shown.contains("0123456789"), "{shown}");
        // The limit of the file is not in force either.
        assert_eq!(sent_policy(&watched), policy(10));
        assert_eq!(watched.status().version(), 1);
    }
    write(secret, store, 20);
    watched.reload().unwrap();
    assert_eq!(sent_policy(&watched), policy(20));
}

/// The warning about a secret in the file can be followed without a restart.
#[test]
fn a_secret_that_moves_into_the_environment_is_the_secret_that_it_was() {
    let folder = Folder::new("moves");
    let value = std::env::var("PATH").unwrap();
    let write = |secret: &str| {
        fs::write(folder.file(), format!("secret = {secret}\n{}", limits(10))).unwrap();
    };
    write(&format!("{value:?}"));
    let watched = watched(&folder.file());
    assert_eq!(watched.config().warnings().len(), 1);
    write("{ env = \"PATH\" }");
    watched.reload().unwrap();
    assert_eq!(watched.config().warnings().len(), 0);
}

/// Of two files with the same secret, each may get another one while the limits change.
#[test]
fn a_secret_that_was_rotated_does_not_stop_the_limits_and_keys_count_on() {
    let folder = Folder::new("rotated");
    let secret = |name: &str| folder.file().with_file_name(name);
    let rotate = |name: &str, to: &str| fs::write(secret(name), to).unwrap();
    let write = |name: &str, limit: u32| {
        let policy = format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"bearer_token\"\n");
        let text = format!("secret = {{ file = {:?} }}\n{policy}", secret(name));
        fs::write(folder.file(), text).unwrap();
    };
    rotate("one", "0123456789abcdef\n");
    rotate("two", "0123456789abcdef");
    let store = MemoryStore::new();
    let read = || {
        let builder = Config::builder().store(store.clone());
        builder.read(folder.file()).unwrap()
    };
    let request = || get("/").header("authorization", "Bearer k3y");
    let pass = |layer: &RateLimitLayer| {
        let answers = (0..2).map(|_| send(layer, request()).status);
        answers.filter(|status| *status == 200).count()
    };
    write("one", 1);
    let watched = read().watch().unwrap();
    assert_eq!(pass(&watched.layer()), 1);
    rotate("one", "another-0123456789");
    let mut limit = 1;
    for (name, warnings) in [("one", 1), ("one", 1), ("two", 0), ("two", 1)] {
        limit += 1;
        write(name, limit);
        watched.reload().unwrap();
        let config = watched.config();
        let told: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
        let told: Vec<_> = told.iter().filter(|it| it.contains("behind it")).collect();
        assert_eq!(told.len(), warnings, "{told:?}");
        for it in told {
            assert!(it.contains("1:10: secret: a value behind it has"), "{it}");
        }
        // One more than before: what the key has used counts on.
        assert_eq!(pass(&watched.layer()), 1, "{name} {limit}");
        if name == "two" {
            rotate("two", "yet-another-0123456789");
        }
    }
    // Another secret in the file itself is refused.
    let text = fs::read_to_string(folder.file()).unwrap();
    let (_, policy) = text.split_once('\n').unwrap();
    let text = format!("secret = \"yet-another-0123456789\"\n{policy}");
    fs::write(folder.file(), text).unwrap();
    let error = watched.reload().unwrap_err().to_string();
    assert!(error.contains("1:10: secret: it cannot change"), "{error}");
    // After a restart, it is another key.
    assert_eq!(pass(&read().layer().unwrap()), 2);
}

/// The file of limits stays the same meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_of_a_secret_is_followed() {
    let folder = Folder::new("followed-secret");
    let secret = folder.file().with_file_name("secret");
    fs::write(&secret, "0123456789abcdef\n").unwrap();
    let text = format!("secret = {{ file = {secret:?} }}\n{}", limits(1));
    fs::write(folder.file(), text).unwrap();
    let config = Config::read(folder.file()).unwrap();
    let watched = config.watch_every(Duration::from_millis(100)).unwrap();
    let warns = || {
        let config = watched.config();
        let mut warnings = config.warnings().iter().map(ToString::to_string);
        warnings.any(|it| it.contains("secret: a value behind it has changed"))
    };
    for (content, expected) in [("another-0123456789", true), ("0123456789abcdef", false)] {
        fs::write(&secret, content).unwrap();
        while warns() != expected {
            tokio::task::yield_now().await;
        }
        // One that cannot be read is a mistake of the file until it is there again.
        fs::remove_file(&secret).unwrap();
        while watched.status().error().is_none() {
            tokio::task::yield_now().await;
        }
        fs::write(&secret, content).unwrap();
        while watched.status().error().is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(warns(), expected);
    }
    assert_eq!(watched.status().version(), 1);
}

/// Returns a file whose policy has this name, and what else is said of it.
fn named(name: &str, more: &str) -> String {
    format!("[policies.{name}]\nquota = \"1/day\"\nkey = \"global\"\n{more}\n")
}

#[test]
fn a_policy_that_was_renamed_keeps_its_state() {
    let folder = Folder::new("renamed");
    fs::write(folder.file(), named("old", "")).unwrap();
    let watched = watched(&folder.file());
    assert_eq!(send(&watched.layer(), get("/")).status, 200);
    for name in ["new", "newer"] {
        fs::write(folder.file(), named(name, "renamed_from = \"old\"")).unwrap();
        watched.reload().unwrap();
        let refused = send(&watched.layer(), get("/"));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.policies.unwrap(), format!("\"{name}\";q=1;w=86400"));
    }
    // Another policy of the old name would count with it.
    let both = [named("new", "renamed_from = \"old\""), named("old", "")].concat();
    fs::write(folder.file(), both).unwrap();
    let error = watched.reload().unwrap_err().to_string();
    assert!(
        error.contains("limits.toml:4:16: policies.new.renamed_from"),
        "{error}"
    );
    // Without `renamed_from` it is another policy.
    fs::write(folder.file(), named("new", "")).unwrap();
    watched.reload().unwrap();
    assert_eq!(send(&watched.layer(), get("/")).status, 200);
}

#[test]
fn a_policy_that_comes_back_finds_what_it_has_used() {
    let folder = Folder::new("back");
    fs::write(folder.file(), limits(1)).unwrap();
    let watched = watched(&folder.file());
    assert_eq!(send(&watched.layer(), get("/")).status, 200);
    for round in 0..3 {
        // The layer before the present one is kept in any case.
        for name in ["other", "third"] {
            fs::write(folder.file(), named(&format!("{name}-{round}"), "")).unwrap();
            watched.reload().unwrap();
            assert_eq!(send(&watched.layer(), get("/")).status, 200, "{round}");
        }
        fs::write(folder.file(), limits(1)).unwrap();
        watched.reload().unwrap();
        assert_eq!(send(&watched.layer(), get("/")).status, 429, "{round}");
    }
}

/// The limit that a key has used is not that of the policy, which refuses all other keys.
#[test]
fn a_policy_that_comes_back_finds_what_a_key_has_used_under_a_limit_of_its_own() {
    let of_plan = "default_plan = \"free\"\nplan_of = { key = { header = \"x\" }, plans = { acme = \"free\" } }\n[plans.free]\na = 2\n";
    let allows = [
        ("key_limits = { keys = { acme = 2 } }", ""),
        ("key_limits = { other = 2 }", ""),
        ("operation = \"method\"\noperations = { GET = 2 }", ""),
        ("", of_plan),
    ];
    for (within, beside) in allows {
        let folder = Folder::new("own-limit");
        let deny = format!(
            "[policies.a]\nalgorithm = \"fixed-window\"\nquota = \"0/300 days\"\nkey = {{ header = \"x\" }}\n{within}\n"
        );
        let with = |plans: &str| fs::write(folder.file(), format!("{plans}{deny}")).unwrap();
        // A table of the root stands before that of the policy.
        with(beside);
        let watched = watched(&folder.file());
        let send = || send(&watched.layer(), get("/").header("x", "acme")).status;
        assert_eq!(
            [send(), send(), send()],
            [200, 200, 429],
            "{within}{beside}"
        );
        for name in ["other", "third"] {
            fs::write(folder.file(), named(name, "")).unwrap();
            watched.reload().unwrap();
        }
        with(beside);
        watched.reload().unwrap();
        assert_eq!(send(), 429, "{within}{beside}");
    }
}

/// A pipe without a writer blocks what opens it.
#[test]
fn a_pipe_in_place_of_the_file_blocks_nothing() {
    let folder = Folder::new("pipe");
    fs::write(folder.file(), limits(10)).unwrap();
    let config = Config::read(folder.file()).unwrap();
    let watched = config.watch().unwrap();
    fs::remove_file(folder.file()).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.file())
        .status();
    assert!(made.unwrap().success());
    let error = watched.reload().unwrap_err().to_string();
    assert!(error.contains("it is no regular file"), "{error}");
    assert_eq!(config.watch().unwrap_err().field(), "watch");
    fs::remove_file(folder.file()).unwrap();
    fs::write(folder.file(), limits(20)).unwrap();
    assert_eq!(watched.reload().unwrap().version(), 2);
}

#[test]
fn switches_survive_reloads() {
    let folder = Folder::new("switched");
    fs::write(folder.file(), limits(1)).unwrap();
    let watched = watched(&folder.file());
    watched.modes().set("a", Mode::Off).unwrap();
    for limit in [2, 3] {
        fs::write(folder.file(), limits(limit)).unwrap();
        watched.reload().unwrap();
        assert_eq!(sent_policy(&watched), "");
    }
    watched.modes().unset("a").unwrap();
    assert_eq!(sent_policy(&watched), policy(3));
}

/// The response of a request that is served while the file changes is that of one file, to the end of its body.
#[test]
fn a_request_sees_one_configuration_to_its_end() {
    let folder = Folder::new("one");
    fs::write(folder.file(), limits(10)).unwrap();
    let watched = watched(&folder.file());
    let reload = || {
        fs::write(folder.file(), limits(20)).unwrap();
        watched.reload().unwrap();
    };
    let service = service_fn(async |_: Request<()>| {
        reload();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let request = get("/").body(()).unwrap();
    let response = now(watched.layer().layer(service).oneshot(request)).unwrap();
    assert_eq!(watched.status().version(), 2);
    assert_eq!(response.headers()["ratelimit-policy"], policy(10));
    fs::write(folder.file(), limits(30)).unwrap();
    watched.reload().unwrap();
    let body = now(response.into_body().collect()).unwrap();
    assert_eq!(body.to_bytes(), "hello");
    assert_eq!(sent_policy(&watched), policy(30));
}

#[test]
fn a_text_cannot_be_watched() {
    let config: Config = limits(1).parse().unwrap();
    assert_eq!(config.watch().unwrap_err().field(), "watch");
}

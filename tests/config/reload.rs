//! Reload: a changed file comes into force as a whole, whatever way it is written, and a bad one changes nothing.

use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::config::{Config, Watched};
use tower_ratelimit::policy::Mode;

use crate::folder::Folder;
use crate::scene::{get, now, send};

/// A file whose policy has this limit.
fn limits(limit: u32) -> String {
    format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n")
}

fn watched(path: &Path) -> Watched {
    Config::read(path).unwrap().watch().unwrap()
}

/// The limit that clients are told.
fn told(watched: &Watched) -> String {
    send(&watched.layer(), get("/"))
        .policies
        .unwrap_or_default()
}

fn policy(limit: u32) -> String {
    format!("\"a\";q={limit};w=86400")
}

#[test]
fn a_layer_follows_its_file_when_it_is_told_to() {
    let folder = Folder::new("told");
    fs::write(folder.file(), limits(10)).unwrap();
    let watched = watched(&folder.file());
    let layer = watched.layer();
    assert_eq!(told(&watched), policy(10));
    let before = watched.status();
    assert_eq!((before.version(), before.error().is_some()), (1, false));
    assert_eq!(before.sha256().len(), 64);

    fs::write(folder.file(), limits(20)).unwrap();
    assert_eq!(told(&watched), policy(10));
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
        assert_eq!(told(&watched), policy(10), "{bad:?}");
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
        assert_eq!(told(&watched), policy(10));
        assert_eq!(watched.status().version(), 1);
    }
    write(secret, store, 20);
    watched.reload().unwrap();
    assert_eq!(told(&watched), policy(20));
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

/// A file whose policy has this name, and what else is said of it.
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
        fs::write(folder.file(), named(name, "was = \"old\"")).unwrap();
        watched.reload().unwrap();
        let refused = send(&watched.layer(), get("/"));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.policies.unwrap(), format!("\"{name}\";q=1;w=86400"));
    }
    // Another policy of the old name would count with it.
    let both = [named("new", "was = \"old\""), named("old", "")].concat();
    fs::write(folder.file(), both).unwrap();
    let error = watched.reload().unwrap_err().to_string();
    assert!(
        error.contains("limits.toml:4:7: policies.new.was"),
        "{error}"
    );
    // Without `was` it is another policy.
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
        assert_eq!(told(&watched), "");
    }
    watched.modes().unset("a").unwrap();
    assert_eq!(told(&watched), policy(3));
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
    assert_eq!(told(&watched), policy(30));
}

#[test]
fn a_text_cannot_be_watched() {
    let config: Config = limits(1).parse().unwrap();
    assert_eq!(config.watch().unwrap_err().field(), "watch");
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Waits until the layer has this limit.
#[track_caller]
fn await_limit(watched: &Watched, limit: u32) {
    await_that(watched, |watched| told(watched) == policy(limit));
}

/// The watch promises two seconds; a slow machine has more.
#[track_caller]
fn await_that(watched: &Watched, is_so: impl Fn(&Watched) -> bool) {
    let begun = Instant::now();
    while !is_so(watched) {
        let status = watched.status();
        assert!(begun.elapsed() < Duration::from_secs(60), "{status}");
        thread::yield_now();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Writes the file in each way, and sees it come into force by events alone: the next poll is too late.
fn follow(name: &str, write: impl Fn(&Folder, u32)) {
    let runtime = runtime();
    let folder = Folder::new(name);
    write(&folder, 10);
    let config = Config::read(folder.file()).unwrap();
    let watched = {
        let _entered = runtime.enter();
        config.watch_every(HOUR).unwrap()
    };
    for limit in [20, 30, 40] {
        write(&folder, limit);
        await_limit(&watched, limit);
    }
    assert_eq!(
        watched.status().version(),
        4,
        "a file in pieces was applied"
    );
}

#[test]
fn a_file_that_is_written_in_place_is_followed() {
    follow("place", |folder, limit| {
        fs::write(folder.file(), limits(limit)).unwrap();
    });
}

#[test]
fn a_file_that_is_moved_into_place_is_followed() {
    follow("moved", |folder, limit| {
        let new = folder.path().join("limits.toml.new");
        fs::write(&new, limits(limit)).unwrap();
        fs::rename(new, folder.file()).unwrap();
    });
}

#[test]
fn a_file_that_is_moved_away_and_written_anew_is_followed() {
    follow("backup", |folder, limit| {
        let _ = fs::rename(folder.file(), folder.path().join("limits.toml~"));
        fs::write(folder.file(), limits(limit)).unwrap();
    });
}

#[test]
fn a_file_that_is_removed_and_written_anew_is_followed() {
    follow("removed", |folder, limit| {
        let _ = fs::remove_file(folder.file());
        fs::write(folder.file(), limits(limit)).unwrap();
    });
}

/// A volume of Kubernetes: the file is a link through `..data`, which is swapped.
#[test]
fn a_link_that_is_swapped_is_followed() {
    follow("swapped", |folder, limit| {
        let data = format!("..{limit}");
        fs::create_dir_all(folder.path().join(&data)).unwrap();
        fs::write(folder.path().join(&data).join("limits.toml"), limits(limit)).unwrap();
        symlink(&data, folder.path().join("..data_tmp")).unwrap();
        fs::rename(
            folder.path().join("..data_tmp"),
            folder.path().join("..data"),
        )
        .unwrap();
        if !folder.file().exists() {
            symlink("..data/limits.toml", folder.file()).unwrap();
        }
    });
}

/// The directory that was watched first is not the one in which the file is now.
#[test]
fn a_file_behind_a_link_that_was_swapped_is_followed_in_its_new_place() {
    follow("behind", |folder, limit| {
        let data = folder.path().join(format!("data-{}", limit / 25));
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("limits.toml"), limits(limit)).unwrap();
        let link = folder.path().join("link");
        symlink(data.join("limits.toml"), &link).unwrap();
        fs::rename(link, folder.file()).unwrap();
    });
}

/// A link to the directory of the file is swapped where nothing is watched.
#[test]
fn a_change_without_an_event_is_found_by_the_poll() {
    let runtime = runtime();
    let folder = Folder::new("poll");
    let link = folder.path().join("current");
    let swap = |limit: u32| {
        let data = folder.path().join(format!("data-{limit}"));
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("limits.toml"), limits(limit)).unwrap();
        let _ = fs::remove_file(&link);
        symlink(data, &link).unwrap();
    };
    swap(10);
    let config = Config::read(link.join("limits.toml")).unwrap();
    let watched = {
        let _entered = runtime.enter();
        config.watch_every(Duration::from_millis(500)).unwrap()
    };
    for limit in [20, 30] {
        swap(limit);
        await_limit(&watched, limit);
    }
}

/// No beginning of the file is a file without a mistake, so that none can come into force.
fn write_in_pieces(path: &Path, text: &str) {
    let mut file = fs::File::create(path).unwrap();
    for piece in text.trim_end().as_bytes().chunks(7) {
        file.write_all(piece).unwrap();
        file.sync_data().unwrap();
    }
}

#[test]
fn a_file_that_is_written_in_pieces_is_followed() {
    follow("pieces", |folder, limit| {
        write_in_pieces(&folder.file(), &limits(limit));
    });
}

#[test]
fn a_file_that_is_away_for_a_moment_is_followed_when_it_is_back() {
    let runtime = runtime();
    let folder = Folder::new("away");
    fs::write(folder.file(), limits(10)).unwrap();
    let config = Config::read(folder.file()).unwrap();
    let watched = {
        let _entered = runtime.enter();
        config.watch_every(Duration::from_millis(500)).unwrap()
    };
    let away = folder.path().join("away.toml");
    fs::rename(folder.file(), &away).unwrap();
    watched.reload().unwrap_err();
    assert_eq!(told(&watched), policy(10));
    // The same file is back, and its error has ended.
    fs::rename(&away, folder.file()).unwrap();
    await_that(&watched, |watched| watched.status().error().is_none());
    assert_eq!(watched.status().version(), 1);
    fs::rename(folder.file(), &away).unwrap();
    fs::write(&away, limits(20)).unwrap();
    fs::rename(&away, folder.file()).unwrap();
    await_limit(&watched, 20);
}

/// A file of two policies that have the same limit: a response that tells two limits is one of two files.
fn pair(limit: u32) -> String {
    let a = limits(limit);
    format!("{a}{}", a.replace("policies.a", "policies.b"))
}

#[test]
fn requests_under_load_see_each_file_as_a_whole_while_it_is_rewritten_in_all_ways() {
    const REWRITES: u32 = 30;
    /// More than the threads can ask for, or they would be refused.
    const PLENTY: u32 = 4_000_000_000;
    let runtime = runtime();
    let folder = Folder::new("load");
    let data = |name: &str| folder.path().join(name);
    fs::create_dir(data("..0")).unwrap();
    fs::write(data("..0/limits.toml"), pair(PLENTY)).unwrap();
    symlink("..0", data("..data")).unwrap();
    symlink("..data/limits.toml", folder.file()).unwrap();
    let config = Config::read(folder.file()).unwrap();
    let watched = {
        let _entered = runtime.enter();
        config.watch_every(Duration::from_millis(500)).unwrap()
    };
    let (ended, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let answer = send(&watched.layer(), get("/"));
                    assert_eq!(answer.status, 200);
                    let told = answer.policies.unwrap();
                    let (a, b) = told.split_once(", ").unwrap();
                    assert_eq!(a.replace("\"a\"", "\"b\""), b);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let is_in_force = |limit: u32| {
            let policies = format!(
                "{}, {}",
                policy(limit),
                policy(limit).replace("\"a\"", "\"b\"")
            );
            await_that(&watched, |watched| told(watched) == policies);
        };
        for number in 1..=REWRITES {
            let limit = PLENTY + number;
            let text = match number % 3 {
                0 => pair(limit).replace("/day", "/dya"),
                _ => pair(limit),
            };
            match number % 5 {
                0 => fs::write(folder.file(), text).unwrap(),
                1 => write_in_pieces(&folder.file(), &text),
                2 => {
                    fs::write(data("new"), text).unwrap();
                    fs::rename(data("new"), folder.file()).unwrap();
                }
                3 => {
                    let _ = fs::remove_file(folder.file());
                    fs::write(folder.file(), text).unwrap();
                }
                _ => {
                    let name = format!("..{number}");
                    fs::create_dir(data(&name)).unwrap();
                    fs::write(data(&name).join("limits.toml"), text).unwrap();
                    symlink(&name, data("..data_tmp")).unwrap();
                    fs::rename(data("..data_tmp"), data("..data")).unwrap();
                    let _ = fs::remove_file(folder.file());
                    symlink("..data/limits.toml", folder.file()).unwrap();
                }
            }
            match number % 3 {
                0 => await_that(&watched, |watched| watched.status().error().is_some()),
                _ => is_in_force(limit),
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let good = u64::from(REWRITES - REWRITES / 3);
    assert_eq!(watched.status().version(), 1 + good);
    assert!(asked.into_inner() > good, "no load");
}

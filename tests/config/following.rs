//! A watched file comes into force when it changes, in whatever way it is written or replaced.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tower_ratelimit_config::{Config, Watched};

use crate::folder::Folder;
use crate::reload::{limits, policy, sent_policy};
use crate::scene::{get, send};

const HOUR: Duration = Duration::from_secs(3_600);

/// Waits until the layer has this limit.
#[track_caller]
fn await_limit(watched: &Watched, limit: u32) {
    await_that(watched, |watched| sent_policy(watched) == policy(limit));
}

/// The watch promises two seconds; a slow machine gets more time.
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

/// Writes the file in each way, and asserts that it comes into force by events alone, before the next poll.
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

/// No prefix of the file is valid, so that none can come into force.
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
    assert_eq!(sent_policy(&watched), policy(10));
    // The same file is back, and the error is gone.
    fs::rename(&away, folder.file()).unwrap();
    await_that(&watched, |watched| watched.status().error().is_none());
    assert_eq!(watched.status().version(), 1);
    fs::rename(folder.file(), &away).unwrap();
    fs::write(&away, limits(20)).unwrap();
    fs::rename(&away, folder.file()).unwrap();
    await_limit(&watched, 20);
}

/// Returns a file with two policies of the same limit. A response with two different limits would mix two files.
fn pair(limit: u32) -> String {
    let a = limits(limit);
    format!("{a}{}", a.replace("policies.a", "policies.b"))
}

#[test]
fn requests_under_load_see_each_file_as_a_whole_while_it_is_rewritten_in_all_ways() {
    const REWRITES: u32 = 30;
    /// More than the threads can use, so that no request is refused.
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
                    let policies = answer.policies.unwrap();
                    let (a, b) = policies.split_once(", ").unwrap();
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
            await_that(&watched, |watched| sent_policy(watched) == policies);
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

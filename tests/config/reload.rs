//! Reload: a changed file comes into force as a whole, whatever way it is written, and a bad one changes nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tower_ratelimit::config::{Config, Watched};

use crate::scene::{get, send};

/// A directory of its own, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reload-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("limits.toml")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

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
fn what_was_used_stays_used_under_a_policy_that_has_not_changed() {
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
fn what_cannot_change_without_a_restart_is_refused_as_a_whole() {
    let folder = Folder::new("store");
    fs::write(folder.file(), limits(10)).unwrap();
    let watched = watched(&folder.file());
    fs::write(
        folder.file(),
        format!("{}[store]\nmax_keys = 5\n", limits(20)),
    )
    .unwrap();
    let error = watched.reload().unwrap_err().to_string();
    assert!(
        error.contains("store: it cannot change without a restart"),
        "{error}"
    );
    assert_eq!(told(&watched), policy(10));
    fs::write(
        folder.file(),
        format!("secret = \"0123456789abcdef\"\n{}", limits(20)),
    )
    .unwrap();
    let error = watched.reload().unwrap_err().to_string();
    assert!(
        error.contains("limits.toml:1:10: secret: it cannot change"),
        "{error}"
    );
}

#[test]
fn a_text_cannot_be_watched() {
    let config: Config = limits(1).parse().unwrap();
    assert_eq!(config.watch().unwrap_err().field(), "watch");
}

/// Waits until the layer has this limit. The watch promises two seconds; a slow machine has more.
#[track_caller]
fn await_limit(watched: &Watched, limit: u32) {
    let begun = Instant::now();
    while told(watched) != policy(limit) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{limit} is not in force: {}",
            watched.status()
        );
        std::thread::yield_now();
    }
}

/// Writes the file in each way, and sees it come into force.
fn follow(name: &str, write: impl Fn(&Folder, u32)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let folder = Folder::new(name);
    write(&folder, 10);
    let config = Config::read(folder.file()).unwrap();
    let watched = {
        let _entered = runtime.enter();
        config.watch_every(Duration::from_millis(500)).unwrap()
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
        let new = folder.0.join("limits.toml.new");
        fs::write(&new, limits(limit)).unwrap();
        fs::rename(new, folder.file()).unwrap();
    });
}

#[test]
fn a_file_that_is_moved_away_and_written_anew_is_followed() {
    follow("backup", |folder, limit| {
        let _ = fs::rename(folder.file(), folder.0.join("limits.toml~"));
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
        fs::create_dir_all(folder.0.join(&data)).unwrap();
        fs::write(folder.0.join(&data).join("limits.toml"), limits(limit)).unwrap();
        symlink(&data, folder.0.join("..data_tmp")).unwrap();
        fs::rename(folder.0.join("..data_tmp"), folder.0.join("..data")).unwrap();
        if !folder.file().exists() {
            symlink("..data/limits.toml", folder.file()).unwrap();
        }
    });
}

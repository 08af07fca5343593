//! Reloads leave no memory behind.

use std::fmt::Write as _;
use std::fs;

use allocation_counter::measure;
use tower_ratelimit_config::{Config, Watched};

use crate::folder::Folder;
use crate::scene::{get, send};

/// The first reloads leave some memory for good: tables, and a record of the last 1,000 logged mistakes.
const WARM_UP: u32 = 1_050;

const RELOADS: u32 = 200;

/// Reads each of these files, sends a request under it, and returns the growth in bytes.
fn left_behind(name: &str, text: impl Fn(u32) -> String) -> i64 {
    let folder = Folder::new(name);
    fs::write(folder.file(), text(0)).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let mut next = 0;
    let mut reload = |times: u32| {
        for _ in 0..times {
            next += 1;
            rewrite(&watched, &folder, &text(next));
        }
    };
    reload(WARM_UP);
    measure(|| reload(RELOADS)).bytes_current
}

fn rewrite(watched: &Watched, folder: &Folder, text: &str) {
    fs::write(folder.file(), text).unwrap();
    let _ = watched.reload();
    let _ = watched.reload_shadow();
    assert_eq!(send(&watched.layer(), get("/")).status, 200);
}

/// Returns a file with this many policies, whose limits depend on its number.
fn policies(number: u32, many: u32) -> String {
    let mut text = String::new();
    for policy in 0..many {
        let limit = 4_000_000_000 + number;
        let _ = writeln!(
            text,
            "[policies.p{policy}]\nquota = \"{limit}/day\"\nkey = \"client_ip\""
        );
    }
    text
}

#[test]
fn changed_limits_leave_nothing_behind() {
    let left = left_behind("changed", |number| policies(number, 3));
    assert!(left < 1_000, "{left} bytes");
}

#[test]
fn bad_files_leave_nothing_behind() {
    let left = left_behind("bad-files", |number| {
        let text = policies(number, 3);
        match number {
            0 => text,
            _ => text.replace("/day", "/dya"),
        }
    });
    assert!(left < 1_000, "{left} bytes");
}

#[test]
fn limits_by_key_and_plans_and_lines_leave_nothing_behind() {
    let left = left_behind("tables", |number| {
        format!(
            "default_plan = \"free\"\nplan_of = {{ header = \"x-plan\", from = \"10.0.0.0/8\" }}\n{}wait_up_to = \"1ms\"\ntop_keys = 3\n\
             [policies.p0.key_limits]\nother = {}\n[plans.free]\np0 = {}\n\
             [policies.slots]\nconcurrency = {}\nkey = \"client_ip\"\nignore_plans = true\n",
            policies(number, 1),
            3_000_000_000_u32 + number,
            2_000_000_000 + number,
            1_000_000 + number,
        )
    });
    assert!(left < 1_000, "{left} bytes");
}

#[test]
fn files_in_shadow_leave_nothing_behind() {
    let folder = Folder::new("shadow-memory");
    fs::write(
        folder.file(),
        format!("shadow = \"next.toml\"\n{}", policies(0, 2)),
    )
    .unwrap();
    let next = folder.path().join("next.toml");
    fs::write(&next, policies(0, 2)).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let mut number = 0;
    let mut reload = |times: u32| {
        for _ in 0..times {
            number += 1;
            fs::write(&next, policies(number, 2)).unwrap();
            assert!(watched.reload_shadow().unwrap().error().is_none());
            assert_eq!(send(&watched.layer(), get("/")).status, 200);
        }
    };
    reload(WARM_UP);
    let left = measure(|| reload(RELOADS)).bytes_current;
    assert!(left < 1_000, "{left} bytes");
    assert_eq!(
        watched.shadow().unwrap().compared(),
        u64::from(WARM_UP + RELOADS)
    );
}

/// Snapshots have the counts from before reloads, though the counters are gone.
#[test]
fn counts_go_on_over_many_reloads_that_no_reader_has_seen() {
    let folder = Folder::new("counted");
    fs::write(folder.file(), policies(0, 1)).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let old = watched.limiter();
    for number in 1..=50 {
        rewrite(&watched, &folder, &policies(number, 1));
    }
    let counted = |snapshot: tower_ratelimit::observe::Snapshot| {
        (
            snapshot.requests.allowed,
            snapshot.policy("p0").unwrap().allowed,
        )
    };
    assert_eq!(counted(watched.layer().monitor().snapshot()), (50, 50));
    // A limiter that code has kept counts too.
    assert_eq!(counted(old.snapshot()), (50, 50));
}

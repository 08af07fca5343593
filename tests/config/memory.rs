//! What reloads leave behind: nothing.

use std::fmt::Write as _;
use std::fs;

use allocation_counter::measure;
use tower_ratelimit::config::{Config, Watched};

use crate::folder::Folder;
use crate::scene::{get, send};

/// What is left of the first reloads is kept for good: tables, and which of the last 1,000 mistakes were logged.
const WARM_UP: u32 = 1_050;

const RELOADS: u32 = 200;

/// Reads each of these files, sends a request under it, and returns how many bytes more there are at the end.
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

/// A file of so many policies, whose limits are those of its number.
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
    let left = left_behind("bad", |number| {
        let text = policies(number, 3);
        match number {
            0 => text,
            _ => text.replace("/day", "/dya"),
        }
    });
    assert!(left < 1_000, "{left} bytes");
}

//! Code that only Unix compiles: where it stands, and that a library has it under `#[cfg(unix)]`.
//!
//! The machine that runs these tests has no standard library of another system, so no compiler sees such code before the
//! workflows do.

use std::collections::BTreeSet;
use std::fs;

use super::{CRATES, PROGRAMS, root, sources};

/// What shows that code is for Unix, or for one system.
const SIGNS: [&str; 14] = [
    "cfg(unix)",
    "cfg(not(unix))",
    "cfg(all(unix",
    "cfg(any(unix",
    "cfg(windows)",
    "libc::",
    "nix::",
    "os::fd",
    "os::linux",
    "os::unix",
    "signal::unix",
    "target_family",
    "target_os",
    "tokio::net::unix",
];

/// Types that are there on Unix alone, wherever they are imported from.
const TYPES: [&str; 4] = [
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
    "UdsConnectInfo",
];

/// Packages that are built on Unix alone.
const PACKAGES: [&str; 5] = ["inotify", "libc", "nix", "rustix", "signal-hook"];

/// The files that may have it, and what for.
const MAY: [(&str, &str); 12] = [
    ("crates/config/src/elsewhere.rs", "who may read a secret"),
    (
        "server/src/ratelimit/mod.rs",
        "a test of the links that Kubernetes changes",
    ),
    (
        "crates/config/src/following.rs",
        "a test of events of Linux",
    ),
    (
        "crates/config/src/reading.rs",
        "a pipe in the place of a file",
    ),
    (
        "crates/redis/src/connection.rs",
        "a server at a Unix socket",
    ),
    ("server/src/certificate.rs", "who may read a key"),
    (
        "server/src/command/healthcheck.rs",
        "a listener at a Unix socket",
    ),
    (
        "server/src/command/signals.rs",
        "the signals that end a server",
    ),
    (
        "server/src/command/systemd.rs",
        "listeners that systemd has opened",
    ),
    ("server/src/socket.rs", "a listener at a Unix socket"),
    (
        "src/key/extract/tonic/connection.rs",
        "a peer at a Unix socket",
    ),
    (
        "tests/limiter/restart.rs",
        "a program that is stopped and started, on Unix alone",
    ),
];

/// The folders of tests that the workflows build elsewhere too.
const TESTS: [&str; 5] = [
    "crates/adapt/tests/unit",
    "crates/redis/tests/unit",
    "tests/laws",
    "tests/limiter",
    "tests/support",
];

/// Whether a line that is no comment shows such code.
fn is_of_unix(line: &str) -> bool {
    let line = line.trim_start();
    let shows = |signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
    !line.starts_with("//") && (shows(&SIGNS) || shows(&TYPES))
}

/// Whether the attribute leaves out the item below it elsewhere.
fn is_guard(line: &str) -> bool {
    let line = line.trim();
    line == "#[cfg(unix)]" || line == "#[cfg(target_os = \"linux\")]" || line == "#[cfg(not(unix))]"
}

/// The lines of such code that another system would compile too. An item ends where its brackets are closed, with `;`, `,` or a
/// bracket, as rustfmt writes it.
fn unguarded(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    // The open brackets of the item below a guard.
    let mut guarded: Option<i32> = None;
    for line in text.lines() {
        if guarded.is_none() {
            if is_guard(line) {
                guarded = Some(0);
            } else if is_of_unix(line) {
                found.push(line.trim());
            }
            continue;
        }
        let line = line.trim();
        if line.starts_with("//") || line.starts_with("#[") {
            continue;
        }
        let count = |brackets: &[char]| i32::try_from(line.matches(brackets).count()).unwrap();
        let open = guarded.unwrap_or(0) + count(&['(', '[', '{']) - count(&[')', ']', '}']);
        let is_end = open == 0 && line.ends_with([';', ',', '}']);
        guarded = (!is_end).then_some(open);
    }
    found
}

#[test]
fn code_for_unix_stands_where_it_may() {
    let mut found = BTreeSet::new();
    for folder in CRATES.iter().chain(&PROGRAMS).chain(&TESTS) {
        for (file, text) in sources(&root().join(folder)) {
            if text.lines().any(is_of_unix) {
                found.insert(format!("{folder}/{file}"));
            }
        }
    }
    let may: BTreeSet<String> = MAY.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, may);
}

#[test]
fn a_library_has_code_for_unix_under_a_guard() {
    for folder in CRATES {
        for (file, text) in sources(&root().join(folder)) {
            let found = unguarded(&text);
            assert!(found.is_empty(), "{folder}/{file}: {found:#?}");
        }
    }
}

#[test]
fn a_library_depends_on_packages_of_unix_on_unix_alone() {
    for folder in CRATES {
        let manifest = root().join(folder).join("../Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let name = line.split([' ', '.', '=']).next().unwrap_or_default();
            if PACKAGES.contains(&name) {
                assert_eq!(
                    section, "[target.'cfg(unix)'.dependencies]",
                    "{folder}: {line}"
                );
            }
        }
    }
}

#[test]
fn code_without_a_guard_is_found() {
    let guarded = "\
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;

fn open(options: &mut OpenOptions) {
    // Not `libc::O_NONBLOCK` elsewhere.
    #[cfg(unix)]
    options
        .custom_flags(libc::O_NONBLOCK);
    #[cfg(unix)]
    if connected::<UnixStream>() {
        again::<UnixStream>();
    }
    match address {
        #[cfg(unix)]
        Address::Unix(path) => {
            UnixStream::connect(path)
        }
        _ => {}
    }
}
";
    assert_eq!(unguarded(guarded), [""; 0]);
    let open = guarded.replace("#[cfg(unix)]", "#[inline]");
    assert_eq!(unguarded(&open).len(), 5);
    let after = format!("{guarded}impl Socket for UnixStream {{}}\n");
    assert_eq!(unguarded(&after), ["impl Socket for UnixStream {}"]);
}

//! A process that is killed with signal 9, and the one that follows it.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use tower_ratelimit::store::RestoreStatus;
use tower_ratelimit::{Algorithm, Limiter, LocalLimiter, MemoryStore, Policy};

const NAME: &str = "restart::after_kill_9_every_exhausted_and_every_blocked_key_is_still_refused";
const PART: &str = "TOWER_RATELIMIT_RESTART_PART";
const FILE: &str = "TOWER_RATELIMIT_RESTART_FILE";
const WRITTEN: &str = "the snapshot is written";
const KEYS: u32 = 500;

/// A key that is used up is refused for a day at least, whenever the test runs. A window that begins
/// by the calendar would be whole again if it began between the two processes.
const ALGORITHMS: [&str; 8] = [
    "anchored-window 5/366d",
    "sliding-window 5/366d",
    "sliding-slots 5/366d",
    "sliding-log 5/366d",
    "token-bucket 1/day burst 5",
    "token-bucket-interval 1/day burst 5",
    "leaky-bucket 1/day capacity 5",
    // Of this the state takes several words.
    "gcra 7/366d burst 4000000000",
];

#[test]
fn after_kill_9_every_exhausted_and_every_blocked_key_is_still_refused() {
    // This program is also those that it starts.
    match env::var(PART).as_deref() {
        Ok("first") => exhaust_and_wait_to_be_killed(),
        Ok("second") => find_all_refused(),
        _ => kill_the_first_and_start_the_second(),
    }
}

fn kill_the_first_and_start_the_second() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("restart");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{}.snapshot", std::process::id()));

    let mut first = start("first", &file);
    let mut said = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(
        said.any(|line| line.unwrap().contains(WRITTEN)),
        "the first process ended: {:?}",
        first.wait()
    );
    first.kill().unwrap();
    assert_eq!(first.wait().unwrap().signal(), Some(9));

    let mut second = start("second", &file);
    let mut said = String::new();
    let mut stdout = second.stdout.take().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    let status = second.wait().unwrap();
    fs::remove_file(&file).unwrap();
    assert!(status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn start(part: &str, file: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(PART, part)
        .env(FILE, file)
        // Held open until this process drops the child.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn limiter(store: &MemoryStore, algorithm: &str) -> LocalLimiter {
    let rule: Algorithm = algorithm.parse().unwrap();
    let policy = Policy::new(algorithm, rule);
    let builder = Limiter::builder().policy(policy).store(store.clone());
    builder.build_local().unwrap()
}

fn limiters(store: &MemoryStore) -> Vec<LocalLimiter> {
    let limiters = ALGORITHMS.iter();
    limiters
        .map(|algorithm| limiter(store, algorithm))
        .collect()
}

fn exhaust_and_wait_to_be_killed() {
    let store = MemoryStore::new();
    let limiters = limiters(&store);
    for limiter in &limiters {
        let limit = limiter
            .check("who asks", 1)
            .now()
            .policies()
            .next()
            .unwrap()
            .1
            .limit();
        for key in 0..KEYS {
            assert!(limiter.admit(key, limit).now());
            assert!(!limiter.admit(key, limit).now());
        }
        for key in 0..KEYS {
            limiter
                .block(("blocked", key), Duration::from_secs(86_400))
                .now();
        }
    }
    // Others come while the snapshot is taken, and until the end.
    for limiter in limiters {
        thread::spawn(move || {
            for key in KEYS.. {
                let _ = limiter.admit(key, 1).now();
            }
        });
    }
    fs::write(env::var_os(FILE).unwrap(), store.snapshot()).unwrap();
    println!("{WRITTEN}");
    // The other end says nothing, and is closed if no process is left to kill this.
    let _ = std::io::stdin().read(&mut [0]);
}

fn find_all_refused() {
    let snapshot = fs::read(env::var_os(FILE).unwrap()).unwrap();
    let fresh = MemoryStore::new();
    let restored = fresh.restore(&snapshot).unwrap();
    for (before, after) in limiters(&fresh).iter().zip(limiters(&restored)) {
        for key in 0..KEYS {
            assert!(before.admit(key, 1).now(), "nothing else refuses key {key}");
            let decision = after.check(key, 1).now();
            assert!(!decision.is_allowed(), "key {key}: {decision:?}");
            let decision = after.check(("blocked", key), 1).now();
            let is_blocked = decision.binding().unwrap().1.is_blocked();
            assert!(is_blocked, "blocked key {key}: {decision:?}");
            let was_not = before.check(("blocked", key), 1).now();
            assert!(was_not.is_allowed(), "nothing else blocks key {key}");
        }
    }
    for policy in restored.restored() {
        assert!(
            matches!(policy.status(), RestoreStatus::Restored { left_out: 0, .. }),
            "{policy:?}"
        );
    }
}

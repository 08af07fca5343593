//! The content of a snapshot, its restoration, and damaged snapshots.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sha2::{Digest, Sha256};
use tower_ratelimit::error::RestoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::store::RestoreStatus;
use tower_ratelimit::{
    Algorithm, Decision, FixedWindow, LeakyQueue, Limiter, LocalLimiter, ManualClock, MemoryStore,
    Policy, Quota, TokenBucket,
};

const KINDS: [&str; 10] = [
    "fixed-window",
    "anchored-window",
    "sliding-log",
    "sliding-window",
    "sliding-slots",
    "token-bucket",
    "token-bucket-interval",
    "leaky-bucket",
    "gcra",
    "leaky-queue",
];

fn limiter(store: &MemoryStore, name: &str, algorithm: &str) -> LocalLimiter {
    let algorithm: Algorithm = algorithm.parse().unwrap();
    let builder = Limiter::builder().policy(Policy::new(name, algorithm));
    builder.store(store.clone()).build_local().unwrap()
}

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    (MemoryStore::new().clock(clock.clone()), clock)
}

fn restart(store: &MemoryStore) -> MemoryStore {
    store.restore(&store.snapshot()).unwrap()
}

fn statuses(store: &MemoryStore) -> Vec<(String, RestoreStatus)> {
    let restored = store.restored().into_iter();
    restored
        .map(|one| (one.policy().to_owned(), one.status()))
        .collect()
}

fn quota(kind: &str, limit: u32) -> String {
    match kind {
        "leaky-queue" => format!("{kind} {limit}/hour places {}", limit - 1),
        _ => format!("{kind} {limit}/hour"),
    }
}

fn remaining(limiter: &LocalLimiter, key: &str) -> u32 {
    limiter.check(key, 0).now().binding().unwrap().1.remaining()
}

#[test]
fn usage_stays_under_another_limit() {
    for kind in KINDS {
        for (then, used, now) in [
            (10, 7, 5),
            (10, 7, 7),
            (10, 7, 8),
            (10, 7, 20),
            (300, 300, 1),
        ] {
            let (store, clock) = store();
            let before = limiter(&store, "a", &quota(kind, then));
            assert!(before.admit("ann", used).now());
            let store = restart(&store);
            let after = limiter(&store, "a", &quota(kind, now));
            let left = now.saturating_sub(used);
            assert_eq!(remaining(&after, "ann"), left, "{kind} {then} {used} {now}");
            assert_eq!(after.admit("ann", left.max(1)).now(), left > 0, "{kind}");
            assert_eq!(remaining(&after, "bob"), now);
            clock.advance(Duration::from_secs(2 * 3_600 + 1_000));
            assert_eq!(remaining(&after, "ann"), now, "{kind}");
        }
    }
}

#[test]
fn an_estimate_weighs_what_a_larger_limit_has_left() {
    let (store, clock) = store();
    let before = limiter(&store, "a", "sliding-window 100/hour");
    assert!(before.admit("ann", 100).now());
    let store = restart(&store);
    let after = limiter(&store, "a", "sliding-window 10/hour");
    // Ten of the hundred count when nine tenths of the next hour are over. If they were cut to ten, one would
    // count.
    clock.advance(Duration::from_secs(3_600 + 3_240));
    assert!(!after.admit("ann", 1).now());
}

#[test]
fn a_policy_that_counts_in_another_way_starts_empty_and_that_is_told() {
    for (then, now) in [
        ("gcra 5/hour", "token-bucket 5/hour"),
        ("gcra 5/hour", "gcra 5/minute"),
        ("sliding-slots 5/hour", "sliding-slots 5/hour slots 60"),
        ("fixed-window 5/hour", "fixed-window 5/day"),
        ("token-bucket 5/hour", "token-bucket-interval 5/hour"),
        ("fixed-window 5/hour", "unlimited"),
    ] {
        let (store, _) = store();
        let before = limiter(&store, "a", then);
        assert!(before.admit("ann", 5).now());
        let store = restart(&store);
        assert_eq!(statuses(&store), [("a".to_owned(), RestoreStatus::Waiting)]);
        let other_name = limiter(&store, "b", then);
        assert!(other_name.admit("ann", 5).now());
        assert_eq!(statuses(&store), [("a".to_owned(), RestoreStatus::Waiting)]);
        let after = limiter(&store, "a", now);
        assert!(after.admit("ann", 1).now(), "{now}");
        assert_eq!(
            statuses(&store),
            [("a".to_owned(), RestoreStatus::Mismatch)]
        );
        // The limit changes back.
        let store = restart(&store);
        assert!(!limiter(&store, "a", then).admit("ann", 1).now(), "{then}");
    }
}

#[test]
fn a_policy_that_is_not_opened_is_in_the_next_snapshot_until_its_keys_are_new() {
    let (store, clock) = store();
    let before = limiter(&store, "a", "fixed-window 5/hour");
    assert!(before.admit("ann", 5).now());
    let store = restart(&restart(&store).max_keys(10));
    clock.advance(Duration::from_secs(1_000));
    let store = restart(&store);
    let refuses = limiter(&store, "a", "fixed-window 5/hour");
    assert!(!refuses.admit("ann", 1).now());
    let status = |keys| RestoreStatus::Restored { keys, left_out: 0 };
    assert_eq!(statuses(&store), [("a".to_owned(), status(1))]);
    // A state is restored once only.
    drop(refuses);
    let again = limiter(&store, "a", "fixed-window 5/hour");
    assert!(again.admit("ann", 5).now());

    let late = restart(&store);
    clock.advance(Duration::from_secs(3_600));
    let len = late.snapshot().len();
    let late = restart(&late);
    assert_eq!(late.snapshot().len(), len);
    let admits = limiter(&late, "a", "fixed-window 5/hour");
    assert!(admits.admit("ann", 5).now());
    assert_eq!(statuses(&late), [("a".to_owned(), status(0))]);
}

#[test]
fn a_block_outlives_a_restart_in_which_its_policy_is_not_opened() {
    let (store, _) = store();
    let before = limiter(&store, "a", "fixed-window 5/hour");
    before.block("ann", MINUTE).now();
    let after = limiter(&restart(&restart(&store)), "a", "fixed-window 5/hour");
    assert!(!after.admit("ann", 1).now());
    assert!(after.admit("bob", 1).now());
}

#[test]
fn keys_that_are_as_good_as_new_are_left_out() {
    let (store, clock) = store();
    let limiter = limiter(&store, "a", "fixed-window 5/hour");
    let empty = store.snapshot().len();
    for key in 0..100_u32 {
        assert!(limiter.admit(key, 1).now());
    }
    assert_eq!(store.snapshot().len(), empty + 100 * (8 + 4 + 16));
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(store.snapshot().len(), empty);
}

/// Blocks and limits that had ended stayed in every later snapshot, as long as the policy was not open.
#[test]
fn states_that_have_ended_are_left_out() {
    let (store, clock) = store();
    let before = limiter(&store, "a", "fixed-window 5/hour");
    let empty = store.snapshot().len();
    let minute = Duration::from_secs(60);
    before.block("ann", minute).now();
    let more = FixedWindow::per_hour(9);
    for key in ["bob", "cyd"] {
        before
            .override_limit("a", key, more, minute)
            .unwrap()
            .now()
            .unwrap();
    }
    assert!(before.admit("bob", 7).now());
    let waiting = restart(&store);
    for store in [&store, &waiting] {
        assert!(store.snapshot().len() > empty + 3 * 24);
    }
    clock.advance(minute);
    for store in [&store, &waiting] {
        // Usage under the ended limit still counts.
        assert_eq!(store.snapshot().len(), empty + 8 + 4 + 16);
    }
    let after = limiter(&restart(&waiting), "a", "fixed-window 10/hour");
    assert_eq!(remaining(&after, "bob"), 3);
    clock.advance(Duration::from_secs(3_600));
    for store in [&store, &waiting] {
        assert_eq!(store.snapshot().len(), empty);
    }
}

#[test]
fn a_smaller_store_keeps_the_keys_that_used_the_most() {
    for kind in KINDS {
        let (store, _) = store();
        let before = limiter(&store, "a", &quota(kind, 5));
        for key in 0..1_000_u32 {
            assert!(before.admit(key, 1 + key % 5).now());
        }
        let snapshot = store.snapshot();
        let store = store.max_keys(200).restore(&snapshot).unwrap();
        let after = limiter(&store, "a", &quota(kind, 5));
        let refused = (0..1_000_u32).filter(|key| key % 5 == 4);
        for key in refused {
            assert!(!after.admit(key, 1).now(), "{kind}: {key}");
        }
        assert_eq!(store.usage()[0].keys, 200);
    }
}

#[test]
fn keys_that_share_a_state_share_it_after_a_restart() {
    let (store, _) = store();
    let store = store.max_keys(1);
    let before = limiter(&store, "a", "gcra 1/day burst 2");
    assert!(before.admit("ann", 2).now());
    assert!(before.admit("bob", 2).now());
    let after = limiter(&restart(&store), "a", "gcra 1/day burst 2");
    let decision = after.check("cyd", 1).now();
    assert!(!decision.is_allowed());
    // A store with more room keeps further keys.
    let wider = restart(&store).max_keys(2);
    let after = limiter(&wider, "a", "gcra 1/day burst 2");
    assert!(!after.admit("ann", 1).now());
    assert!(after.admit("bob", 2).now());
    assert!(!after.admit("cyd", 1).now());
}

/// Teams of an organisation, each of which is guaranteed 3 of its 10 an hour.
fn tree(store: &MemoryStore, algorithm: &str) -> LocalLimiter {
    let algorithm: Algorithm = algorithm.parse().unwrap();
    let low = Policy::new("team", FixedWindow::per_hour(8)).below("org");
    let low = low.guaranteed(Quota::per_hour(3));
    let builder = Limiter::builder().policies([Policy::new("org", algorithm), low]);
    builder.store(store.clone()).build_local().unwrap()
}

fn ask(limiter: &LocalLimiter, org: u8, team: u8, cost: u32) -> Decision {
    let team = Key::branch(u64::from(org), &[u64::from(team).into_key()]);
    let charges = [("org", team.root(), cost), ("team", team, cost)];
    limiter.named(charges).unwrap().check().now()
}

fn take(limiter: &LocalLimiter, team: u8) -> u32 {
    let mut taken = 0;
    while ask(limiter, 0, team, 1).is_allowed() {
        taken += 1;
    }
    taken
}

#[test]
fn what_keys_have_left_of_their_guarantees_is_restored() {
    let (store, clock) = store();
    let limiter = tree(&store, "fixed-window 10/hour");
    assert!(ask(&limiter, 0, 1, 1).is_allowed());
    assert!(ask(&limiter, 0, 2, 5).is_allowed());
    let snapshot = store.snapshot();
    let after = || tree(&store.restore(&snapshot).unwrap(), "fixed-window 10/hour");
    let restarted = after();
    assert_eq!((take(&restarted, 2), take(&restarted, 1)), (2, 2));

    // As long as no limiter has opened the policies, they are in the next snapshot.
    let twice = restart(&restart(&store));
    let restarted = tree(&twice, "fixed-window 10/hour");
    assert_eq!(take(&restarted, 2), 2);
    // Under another limit as well.
    let larger = tree(&restart(&store), "fixed-window 12/hour");
    assert_eq!(take(&larger, 2), 3, "it is its own limit");

    clock.advance(HOUR);
    assert_eq!(take(&after(), 2), 8, "nobody has asked lately");
}

/// Of an older program, whose snapshots have no children.
#[test]
fn without_what_is_left_of_them_guarantees_begin_anew() {
    let (store, _) = store();
    let limiter = tree(&store, "fixed-window 10/hour");
    assert!(ask(&limiter, 0, 1, 1).is_allowed());
    assert!(ask(&limiter, 0, 2, 1).is_allowed());
    let mut older = unsealed(&store.snapshot());
    let name = b"\x08\0\0\0children";
    let mut places = older.windows(name.len());
    let place = places.position(|bytes| bytes == name).unwrap();
    older[place + 4] = b'C';
    let restarted = store.restore(&sealed(older)).unwrap();
    let limiter = tree(&restarted, "fixed-window 10/hour");
    assert_eq!(take(&limiter, 2), 7);
}

proptest! {
    #![proptest_config(config())]

    /// One of two stores is restarted now and then, and decides as the other one does.
    #[test]
    fn a_restart_changes_no_guarantee(
        is_window: bool,
        steps in prop::collection::vec((0..3_u8, 0..5_u8, 0..5_u32, 0..900_u64, prop::bool::weighted(0.1)), 1..80),
    ) {
        let algorithm = if is_window { "fixed-window 10/hour" } else { "token-bucket 10/hour" };
        let (store, clock) = store();
        let steady = tree(&store, algorithm);
        let mut other = MemoryStore::new().clock(clock.clone());
        let mut restarted = tree(&other, algorithm);
        for (org, team, cost, seconds, restarts) in steps {
            clock.advance(Duration::from_secs(seconds));
            if restarts {
                other = other.restore(&other.snapshot()).unwrap();
                restarted = tree(&other, algorithm);
            }
            let [expected, told] = [&steady, &restarted].map(|limiter| ask(limiter, org, team, cost));
            prop_assert_eq!(format!("{:?}", told), format!("{:?}", expected));
        }
    }
}

/// A limit of 10 a second that tenants share.
fn divided(store: &MemoryStore, algorithm: Algorithm) -> LocalLimiter {
    let policy = Policy::new("upstream", algorithm).fair(Fair::new());
    let builder = Limiter::builder().policy(policy);
    builder.store(store.clone()).build_local().unwrap()
}

fn share_taken(limiter: &LocalLimiter, tenant: &str) -> u32 {
    let tenant = Key::branch(Key::GLOBAL, &[tenant.into_key()]);
    let mut taken = 0;
    while limiter.admit(tenant, 1).now() {
        taken += 1;
    }
    taken
}

/// Of a bucket, and of the places of a queue.
#[test]
fn the_shares_of_tenants_are_restored() {
    let bucket = TokenBucket::per_second(10).into();
    let queue = LeakyQueue::per_second(10).places(9).into();
    for algorithm in [bucket, queue] {
        let (store, clock) = store();
        let limiter = divided(&store, algorithm);
        let ann = Key::branch(Key::GLOBAL, &["ann".into_key()]);
        assert!(limiter.admit(ann, 1).now());
        assert_eq!(share_taken(&limiter, "hog"), 9, "{algorithm}");
        clock.advance(Duration::from_millis(400));
        let again = |store: &MemoryStore| {
            let limiter = divided(store, algorithm);
            (share_taken(&limiter, "hog"), share_taken(&limiter, "ann"))
        };
        let restarted = again(&restart(&restart(&store)));
        assert_eq!(restarted, again(&store), "as without a restart");
        assert!(restarted.1 > 0, "{algorithm}: {restarted:?}");
    }
}

/// Returns a snapshot of several policies, some of whose states are long.
fn sample() -> (MemoryStore, Vec<LocalLimiter>, Vec<u8>) {
    let (store, _) = store();
    let limiters = ["gcra 5/day", "sliding-log 50/day", "sliding-window 5/day"];
    let limiters: Vec<LocalLimiter> = limiters
        .iter()
        .map(|algorithm| limiter(&store, algorithm, algorithm))
        .collect();
    for limiter in &limiters {
        for key in 0..7_u32 {
            assert!(limiter.admit(key, 5).now());
        }
    }
    let snapshot = store.snapshot();
    (store, limiters, snapshot)
}

fn kind_of(snapshot: &[u8]) -> Option<RestoreErrorKind> {
    let (store, _) = store();
    store.restore(snapshot).err().map(|error| error.kind())
}

/// Returns the bytes with a correct checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

fn unsealed(snapshot: &[u8]) -> Vec<u8> {
    snapshot[..snapshot.len() - 32].to_vec()
}

#[test]
fn each_kind_of_error_says_what_is_wrong() {
    let (_, _, snapshot) = sample();
    assert_eq!(kind_of(&snapshot), None);
    assert_eq!(kind_of(b""), Some(RestoreErrorKind::NotASnapshot));
    assert_eq!(kind_of(b"{}"), Some(RestoreErrorKind::NotASnapshot));
    assert_eq!(kind_of(&snapshot[..8]), Some(RestoreErrorKind::Damaged));
    assert_eq!(kind_of(&snapshot[..40]), Some(RestoreErrorKind::Damaged));

    let mut later = snapshot.clone();
    later[8..12].copy_from_slice(&7_u32.to_le_bytes());
    assert_eq!(kind_of(&later), Some(RestoreErrorKind::AnotherVersion(7)));
    let (store, _) = store();
    assert_eq!(
        store.restore(&later).unwrap_err().to_string(),
        "nothing was restored: the snapshot has version 7, which this program does not read",
    );

    // The first of the words that key the fingerprints.
    let mut otherwise = unsealed(&snapshot);
    otherwise[12 + 8 + 8] ^= 1;
    assert_eq!(
        kind_of(&sealed(otherwise)),
        Some(RestoreErrorKind::AnotherBuild)
    );
}

#[test]
fn a_section_of_another_name_is_skipped() {
    let (_, _, snapshot) = sample();
    let mut more = unsealed(&snapshot);
    more.extend(6_u32.to_le_bytes());
    more.extend(b"future");
    more.extend(3_u64.to_le_bytes());
    more.extend(b"???");
    let (store, _) = store();
    let store = store.restore(&sealed(more)).unwrap();
    assert!(
        !limiter(&store, "gcra 5/day", "gcra 5/day")
            .admit(3_u32, 1)
            .now()
    );
}

/// A snapshot of [`use_each_kind`] by the program that introduced the first version of the format. It stays as it is: a format that this
/// test cannot read any more needs another version, whose snapshot stands beside this one.
const FIRST: &[u8] = include_bytes!("snapshots/1.snapshot");

const MINUTE: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(3_600);

/// Uses 7 of 10 under each algorithm, blocks a key, and overrides the limit of another.
fn use_each_kind(store: &MemoryStore) -> Vec<LocalLimiter> {
    let each = kinds_of_the_first_snapshot();
    let mut limiters: Vec<_> = each
        .iter()
        .map(|(kind, algorithm)| limiter(store, kind, algorithm))
        .collect();
    for limiter in &limiters {
        assert!(limiter.admit("ann", 7).now());
    }
    let marked = limiter(store, "marked", "token-bucket 10/hour");
    marked.block("bob", MINUTE).now();
    let more = marked.override_limit("marked", "cyd", TokenBucket::per_hour(20), 2 * MINUTE);
    more.unwrap().now().unwrap();
    assert!(marked.admit("cyd", 15).now());
    limiters.push(marked);
    limiters
}

fn kinds_of_the_first_snapshot() -> Vec<(&'static str, String)> {
    let mut kinds: Vec<_> = KINDS.iter().map(|kind| (*kind, quota(kind, 10))).collect();
    if cfg!(feature = "calendar") {
        kinds.push(("calendar-window", "calendar-day 10 zone UTC".to_owned()));
    }
    kinds
}

#[test]
fn a_snapshot_of_the_first_version_is_read() {
    let (today, _) = store();
    let _in_use = use_each_kind(&today);
    if cfg!(feature = "calendar") {
        assert_eq!(today.snapshot().len(), FIRST.len());
    }

    let (store, clock) = store();
    let store = match store.restore(FIRST) {
        Ok(store) => store,
        // The fingerprints of keys are by instructions that a processor may have.
        Err(error) if cfg!(target_feature = "aes") => {
            assert_eq!(error.kind(), RestoreErrorKind::AnotherBuild);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    clock.advance(Duration::from_secs(10));
    for (kind, algorithm) in kinds_of_the_first_snapshot() {
        let limiter = limiter(&store, kind, &algorithm);
        assert_eq!(remaining(&limiter, "ann"), 3, "{kind}");
        assert!(!limiter.admit("ann", 4).now(), "{kind}");
        assert!(limiter.admit("ann", 3).now(), "{kind}");
    }
    let marked = limiter(&store, "marked", "token-bucket 10/hour");
    assert!(!marked.admit("bob", 1).now());
    assert_eq!(remaining(&marked, "cyd"), 5);
    clock.advance(MINUTE);
    assert!(marked.admit("bob", 1).now());
    assert!(marked.admit("cyd", 5).now());
    clock.advance(MINUTE);
    // The limit of its policy is in force again.
    assert_eq!(remaining(&marked, "cyd"), 0);
    for restored in store.restored() {
        let is_known = cfg!(feature = "calendar") || restored.policy() != "calendar-window";
        let status = restored.status();
        let is_whole = matches!(status, RestoreStatus::Restored { left_out: 0, .. });
        assert_eq!(is_whole, is_known, "{}: {status:?}", restored.policy());
    }
}

/// Restores and uses what a snapshot contains, which may be anything.
fn use_up(snapshot: &[u8], after: Duration) -> Result<(), TestCaseError> {
    let (store, clock) = store();
    clock.advance(after);
    let store = store.max_keys(20);
    match store.restore(snapshot) {
        Err(error) => prop_assert!(!error.to_string().is_empty()),
        Ok(store) => {
            for restored in store.restored() {
                let Ok(algorithm) = restored.algorithm().parse::<Algorithm>() else {
                    continue;
                };
                let policy = Policy::new(restored.policy(), algorithm);
                let limiter = Limiter::builder().policy(policy).store(store.clone());
                let Ok(limiter) = limiter.build_local() else {
                    continue;
                };
                for key in 0..10_u32 {
                    for cost in [0, 1, 5, u32::MAX] {
                        let _ = limiter.check(key, cost).now();
                    }
                    limiter.refund(key, 3).now();
                    clock.advance(Duration::from_secs(5_000));
                }
            }
            prop_assert!(store.restore(&store.snapshot()).is_ok());
        }
    }
    Ok(())
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/snapshots.txt"
        )))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 3_000;
    }
    config
}

/// The place from which the samples do not detect a changed byte.
const BEHIND_THE_SEED: usize = 12 + 16 + 72;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes_are_no_snapshot(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        begins_well in any::<bool>(),
        ends_well in any::<bool>(),
    ) {
        let (_, _, snapshot) = sample();
        let mut all = if begins_well { snapshot[..12].to_vec() } else { Vec::new() };
        all.extend(bytes);
        let all = if ends_well { sealed(all) } else { all };
        prop_assert!(kind_of(&all).is_some());
    }

    #[test]
    fn a_snapshot_that_was_changed_or_cut_short_is_damaged(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..4),
        length in any::<prop::sample::Index>(),
    ) {
        let (_, _, snapshot) = sample();
        let mut flipped = snapshot.clone();
        for (place, bit) in flips {
            flipped[place.index(snapshot.len())] ^= 1 << bit;
        }
        if flipped != snapshot {
            prop_assert!(kind_of(&flipped).is_some());
        }
        prop_assert!(kind_of(&snapshot[..length.index(snapshot.len())]).is_some());
    }

    /// An attacker who changes a snapshot can recompute its checksum.
    #[test]
    fn whatever_stands_in_a_snapshot_nothing_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        words in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![
            0, 1, u64::MAX, 1 << 53, 1_704_067_200_000_000,
        ])), 0..4),
        after in 0..400_000_u64,
    ) {
        let (_, _, snapshot) = sample();
        let mut bytes = unsealed(&snapshot);
        let len = bytes.len();
        for (place, change) in changes {
            bytes[BEHIND_THE_SEED + place.index(len - BEHIND_THE_SEED)] = change;
        }
        for (place, word) in words {
            let at = BEHIND_THE_SEED + place.index(len - BEHIND_THE_SEED - 8);
            bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
        }
        use_up(&sealed(bytes), Duration::from_secs(after))?;
    }
}

//! Stores and backends that are used in ways in which the layer does not use them.

use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Backend, Charge, Charged, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, Limiter, ManualClock, MemoryStore, Micros, Policy,
};

fn policy(name: &str) -> Policy {
    Policy::new(name, FixedWindow::per_day(5))
}

#[test]
fn a_list_that_names_a_policy_twice_is_refused() {
    let error = MemoryStore::new()
        .open(&[policy("a").into(), policy("A").into()])
        .unwrap_err();
    assert_eq!((error.field(), error.value()), ("name", "\"A\""));
}

/// Its keys, which may be secret, are not shown.
#[test]
fn a_store_shows_its_name_alone() {
    assert_eq!(format!("{:?}", MemoryStore::new()), "MemoryStore { .. }");
}

#[test]
fn a_store_forgets_a_policy_with_the_last_limiter_that_uses_it() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let limiter = || {
        let builder = Limiter::builder().policy(policy("a"));
        builder.store(store.clone()).build_local().unwrap()
    };
    let (one, other) = (limiter(), limiter());
    assert!(one.check("ann", 5).now().is_allowed());
    drop(one);
    assert!(!other.check("ann", 1).now().is_allowed());
    drop(other);
    assert!(limiter().check("ann", 5).now().is_allowed());
}

/// Answers about its first policy alone, or twice about it.
#[derive(Clone, Copy, Debug)]
struct Forgetful {
    answers: usize,
}

impl Sealed for Forgetful {}

impl Store for Forgetful {
    type Backend = Self;

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(*self)
    }
}

impl Backend for Forgetful {
    fn charge(&self, charges: &[Charge], _: Wanted, outcomes: &mut Outcomes) -> Charged {
        let backend = MemoryStore::new().open(&[policy("a").into()]).unwrap();
        assert_eq!(charges.len(), 2);
        let first = backend.charge_now(&charges[..1]);
        let mut told = first.clone();
        for (policy, outcome) in first.iter().cycle().take(self.answers - 1) {
            told.push(policy, *outcome);
        }
        Charged::now(charges, Ok(told), outcomes)
    }
}

#[tokio::test]
async fn an_answer_that_leaves_out_a_policy_does_not_mean_that_it_allows() {
    for answers in [1, 2, 3] {
        let limiter = Limiter::builder()
            .policies([policy("a"), policy("b")])
            .store(Forgetful { answers })
            .build()
            .unwrap();
        let error = limiter.check("ann", 1).await.unwrap_err();
        assert!(!error.is_transient());
    }
}

/// The policy that only asks moves nothing back, and once held up the other for ever.
#[test]
fn a_clock_that_steps_back_does_not_hold_up_a_policy_beside_one_that_only_asks() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let backend = store
        .open(&[policy("a").into(), policy("b").into()])
        .unwrap();
    let key = "ann".into_key();
    let charge = |costs: [u32; 2]| {
        let charges = [Charge::new(0, key, costs[0]), Charge::new(1, key, costs[1])];
        let outcomes = backend.charge_now(&charges);
        let used: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome.used()).collect();
        used
    };
    assert_eq!(charge([1, 1]), [1, 1]);
    clock.set_micros(Micros::new(1));
    assert_eq!(charge([1, 0]), [2, 1]);
    assert_eq!(charge([0, 1]), [2, 2]);
}

#[test]
fn a_charge_to_an_unopened_policy_has_no_outcome_and_charges_nothing() {
    let backend = MemoryStore::new().open(&[policy("a").into()]).unwrap();
    let key = "ann".into_key();
    let (opened, unknown) = (Charge::new(0, key, 1), Charge::new(7, key, 1));
    for charges in [&[unknown][..], &[opened, unknown]] {
        assert_eq!(backend.charge_now(charges).iter().len(), 0);
        assert!(!backend.admit_now(charges));
    }
    let outcomes = backend.charge_now(&[opened]);
    assert_eq!(outcomes.iter().next().unwrap().1.used(), 1);
}

/// What the documentation of the store says, within a tenth.
#[test]
fn memory_is_what_the_documentation_says() {
    let said = [
        ("gcra 100/hour", 1_u32, 56_000_usize),
        ("gcra 100/hour", 10_000, 350_000),
        ("gcra 100/hour", 100_000, 2_600_000),
        // A rate that does not fit a word, and a log.
        ("gcra 999983/day", 100_000, 4_800_000),
        ("sliding-log 100/hour", 100_000, 7_000_000),
    ];
    for (algorithm, keys, bytes) in said {
        let store = MemoryStore::new().clock(ManualClock::new());
        let algorithm: tower_ratelimit::Algorithm = algorithm.parse().unwrap();
        let limiter = Limiter::builder()
            .policy(Policy::new("a", algorithm))
            .store(store.clone())
            .build_local()
            .unwrap();
        for key in 0..keys {
            assert!(limiter.admit(key, 1).now());
        }
        let usage = &store.usage()[0];
        assert_eq!(usage.keys, usize::try_from(keys).unwrap());
        let taken = usage.bytes;
        let tenth = bytes / 10;
        assert!(
            taken.abs_diff(bytes) <= tenth,
            "{algorithm}: {taken}, not {bytes}"
        );
    }
}

#[test]
fn a_charge_says_what_it_was_made_of() {
    let charge = Charge::new(3, "ann".into_key(), 7);
    assert_eq!(
        (charge.policy(), charge.key(), charge.cost()),
        (3, "ann".into_key(), 7)
    );
}

#[test]
fn windows_hold_at_the_end_of_time() {
    for algorithm in ["anchored-window", "sliding-slots", "sliding-log", "gcra"] {
        let clock = ManualClock::at(Micros::new(u64::MAX));
        let algorithm: tower_ratelimit::Algorithm =
            format!("{algorithm} 2/minute").parse().unwrap();
        let limiter = Limiter::builder()
            .policy(Policy::new("a", algorithm))
            .store(MemoryStore::new().clock(clock))
            .build_local()
            .unwrap();
        let allowed = [(); 3].map(|()| limiter.check("ann", 1).now().is_allowed());
        assert_eq!(allowed, [true, true, false], "{algorithm}");
    }
}

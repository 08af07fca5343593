//! Stores that each break one law.

use std::time::Duration;

use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{
    Amendment, Backend, Change, Changed, Charge, Charged, Items, MemoryBackend, Payers, Reply,
    SharedStore, Store, Wanted,
};
use tower_ratelimit::{ConfigError, ManualClock, MemoryStore, Micros, StoreError};
use tower_ratelimit_testing::Conformance;

use crate::conformance::scratch::Scratch;
use crate::support::items::Map;

#[track_caller]
fn assert_breaks(ran: Result<(), tower_ratelimit_testing::Broken>, law: &str) {
    let broken = ran.expect_err("it conforms");
    println!("{broken}");
    assert!(broken.law().contains(law), "{broken}");
}

async fn of_items(items: impl Items) -> Result<(), tower_ratelimit_testing::Broken> {
    Conformance::of_items(items).run().await
}

/// Reads and then writes, so that other changes can come between.
#[derive(Clone, Debug)]
struct NotAtomic(Scratch);

impl Items for NotAtomic {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let found = self.0.read(&change);
        let changed = Scratch::apply(&change, &found);
        self.0.write(&change, &changed);
        Reply::Now(Ok(changed))
    }
}

#[tokio::test]
async fn a_place_that_writes_over_what_changed_is_found() {
    assert_breaks(of_items(NotAtomic(Scratch::new())).await, "is read again");
}

/// The same over what is a network elsewhere.
#[derive(Clone, Debug)]
struct NotAtomicLater(Scratch);

impl Items for NotAtomicLater {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let items = self.0.clone();
        Reply::later(async move {
            let found = items.read(&change);
            tokio::task::yield_now().await;
            let changed = Scratch::apply(&change, &found);
            items.write(&change, &changed);
            Ok(changed)
        })
    }
}

#[tokio::test]
async fn a_store_that_admits_a_crowd_is_found() {
    let store = SharedStore::new(NotAtomicLater(Scratch::new()));
    assert_breaks(
        Conformance::of(store).run().await,
        "of many requests at once",
    );
}

/// Starts again, and returns the result of the first attempt.
#[derive(Clone, Debug)]
struct AnswersTheFirst(Scratch);

impl Items for AnswersTheFirst {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let first = Scratch::apply(&change, &self.0.read(&change));
        self.0.update(change).wait_now();
        Reply::Now(Ok(first))
    }
}

trait WaitNow {
    fn wait_now(self);
}

impl<T> WaitNow for Reply<T> {
    fn wait_now(self) {
        assert!(matches!(self, Self::Now(_)));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_what_was_written_is_found() {
    let items = AnswersTheFirst(Scratch::new());
    assert_breaks(of_items(items).await, "decides as its step does");
}

#[tokio::test]
async fn a_place_that_applies_a_change_twice_is_found() {
    let items = Scratch {
        applications: 2,
        ..Scratch::new()
    };
    assert_breaks(of_items(items).await, "decides as its step does");
}

#[tokio::test]
async fn a_place_that_forgets_an_item_of_several_is_found() {
    let items = Scratch {
        writes: |writes| &writes[..writes.len().min(1)],
        ..Scratch::new()
    };
    assert_breaks(of_items(items).await, "all policies");
}

#[tokio::test]
async fn names_that_are_made_one_are_found() {
    let one: [fn(&str) -> String; 6] = [
        str::to_ascii_lowercase,
        |name| name.replace("%20", ""),
        |name| name.replace([',', ':'], ""),
        |name| name.replace('%', ""),
        |name| {
            name.trim_start_matches("trl1:")
                .trim_start_matches(['t', 'b', ':'])
                .to_owned()
        },
        |name| name.chars().take(24).collect(),
    ];
    for name in one {
        let items = Scratch {
            name,
            ..Scratch::new()
        };
        assert_breaks(of_items(items).await, "different keys");
    }
}

#[tokio::test]
async fn a_place_that_forgets_too_early_is_found() {
    let items = Scratch {
        keep: |ttl| match ttl.as_secs() {
            0 => ttl,
            seconds => Duration::from_secs(seconds),
        },
        ..Scratch::new()
    };
    assert_breaks(of_items(items).await, "no state is forgotten before");
}

#[tokio::test]
async fn a_place_that_never_forgets_is_found() {
    let items = Scratch {
        keep: |_| Duration::from_secs(3_600),
        ..Scratch::new()
    };
    assert_breaks(of_items(items).await, "once it has expired");
}

#[tokio::test]
async fn a_clock_that_was_not_given_is_said() {
    let store = SharedStore::new(Map::new(&ManualClock::new()));
    let ran = Conformance::of(store).run().await;
    assert_breaks(ran, "no state is forgotten before");
}

/// A store in memory with one deviation.
#[derive(Clone, Debug)]
struct Otherwise {
    store: MemoryStore,
    clock: ManualClock,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    EachOpensItsOwn,
    ChargesOneAfterAnother,
    DeniesWithSoft,
    RefundsNothing,
    RefundsAll,
    SaysItIsNotDone,
    ResetsBlocks,
    BlocksForever,
    PeekCharges,
    UnblocksNothing,
    SaysAllWereBlocked,
    SaysNoneWasBlocked,
    SettlesNothing,
    TakesHalf,
    TakesAtOnceOrNot,
    SettlesAllOfTheFirst,
    RefundsAllOfTheFirst,
    OverridesNothing,
    OverridesForever,
    EndsNoOverride,
    ResetsOverrides,
    PassesTheFirstOver,
    ChargesAnotherMember,
}

#[derive(Debug)]
struct OtherwiseBackend {
    backend: MemoryBackend,
    what: What,
}

impl Sealed for Otherwise {}

impl Store for Otherwise {
    type Backend = OtherwiseBackend;

    fn open(&self, policies: &[Rule]) -> Result<OtherwiseBackend, ConfigError> {
        let own = MemoryStore::new().clock(self.clock.clone());
        let store = match self.what {
            What::EachOpensItsOwn => &own,
            _ => &self.store,
        };
        Ok(OtherwiseBackend {
            backend: store.open(policies)?,
            what: self.what,
        })
    }

    fn chooses_payers(&self) -> Payers {
        Payers::OfAnyKeys
    }
}

/// Changes both policies of the first key by the first amount, whatever the call names.
fn all_of_the_first(charges: &[Charge]) -> Vec<Charge> {
    let first = charges[0];
    let all = (0..2).map(|policy| Charge::new(policy, first.key(), first.cost()));
    all.collect()
}

impl Sealed for OtherwiseBackend {}

impl Backend for OtherwiseBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let hard: Vec<_> = charges
            .iter()
            .map(|charge| Charge::new(charge.policy(), charge.key(), charge.cost()))
            .collect();
        match self.what {
            What::ChargesOneAfterAnother => {
                let told = self.backend.peek_now(charges);
                for charge in charges {
                    let _ = self.backend.charge_now(&[*charge]);
                }
                Charged::now(charges, Ok(told), outcomes)
            }
            What::DeniesWithSoft => self.backend.charge(&hard, wanted, outcomes),
            What::PassesTheFirstOver => {
                let is_one_of_several = |charge: &&Charge| charge.alternative().is_some();
                let members = charges.iter().filter(is_one_of_several).count();
                // The first one is left out.
                let skipped = usize::from(members > 0);
                self.backend.charge(&charges[skipped..], wanted, outcomes)
            }
            What::ChargesAnotherMember => {
                let answer = self.backend.charge(charges, wanted, outcomes);
                for charge in charges {
                    let is_told = outcomes.iter().any(|(policy, _)| policy == charge.policy());
                    if outcomes.is_allowed() && !is_told {
                        let _ = self.backend.amend_now(&[*charge], Amendment::Settle);
                    }
                }
                answer
            }
            _ => self.backend.charge(charges, wanted, outcomes),
        }
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        let half = |charge: &Charge| {
            let half = Charge::new(charge.policy(), charge.key(), charge.cost().div_ceil(2));
            if charge.is_soft() { half.soft() } else { half }
        };
        match self.what {
            What::TakesHalf => {
                let halves: Vec<_> = charges.iter().map(half).collect();
                self.backend.acquire_up_to(&halves)
            }
            What::TakesAtOnceOrNot => {
                let outcomes = self.backend.charge_now(charges);
                let most = charges.iter().map(Charge::cost).max().unwrap_or(0);
                let units = if outcomes.is_allowed() { most } else { 0 };
                Reply::Now(Ok((units, outcomes)))
            }
            _ => self.backend.acquire_up_to(charges),
        }
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        if self.what == What::PeekCharges {
            return self.decide(charges);
        }
        self.backend.peek(charges)
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        let all = all_of_the_first(charges);
        let instead = match (self.what, amendment) {
            (What::RefundsNothing, Amendment::Refund)
            | (What::SettlesNothing, Amendment::Settle)
            | (What::OverridesNothing, Amendment::Override(..))
            | (What::EndsNoOverride, Amendment::EndOverride)
            | (What::UnblocksNothing, Amendment::Unblock) => return Reply::Now(Ok(true)),
            (What::SaysItIsNotDone, Amendment::Refund) => return Reply::Now(Ok(false)),
            (What::SaysAllWereBlocked, Amendment::Unblock) => {
                self.backend.amend_now(charges, amendment).unwrap();
                return Reply::Now(Ok(true));
            }
            (What::SaysNoneWasBlocked, Amendment::Unblock) => {
                self.backend.amend_now(charges, amendment).unwrap();
                return Reply::Now(Ok(false));
            }
            (What::RefundsAll, Amendment::Refund) => Amendment::Reset,
            (What::RefundsAllOfTheFirst, Amendment::Refund)
            | (What::SettlesAllOfTheFirst, Amendment::Settle) => {
                return self.backend.amend(&all, amendment);
            }
            (What::OverridesForever, Amendment::Override(limit, _)) => {
                Amendment::Override(limit, Micros::LONGEST)
            }
            (What::BlocksForever, Amendment::Block(_)) => Amendment::Block(Micros::LONGEST),
            (What::ResetsBlocks, Amendment::Reset) => {
                self.backend.amend_now(charges, Amendment::Unblock).unwrap();
                amendment
            }
            (What::ResetsOverrides, Amendment::Reset) => {
                let ended = self.backend.amend_now(charges, Amendment::EndOverride);
                ended.unwrap();
                amendment
            }
            _ => amendment,
        };
        self.backend.amend(charges, instead)
    }
}

#[tokio::test]
async fn each_mistake_of_a_backend_is_found() {
    for (what, law) in [
        (What::EachOpensItsOwn, "share its state"),
        (What::ChargesOneAfterAnother, "all policies"),
        (What::DeniesWithSoft, "all policies"),
        (What::RefundsNothing, "refunded"),
        (What::RefundsAll, "refunded"),
        (What::SaysItIsNotDone, "refunded"),
        (What::ResetsBlocks, "reset"),
        (What::BlocksForever, "blocked"),
        (What::PeekCharges, "decides as its step does"),
        (What::UnblocksNothing, "unblocked"),
        (What::SaysAllWereBlocked, "unblocked"),
        (What::SaysNoneWasBlocked, "unblocked"),
        (What::SettlesNothing, "settled"),
        (What::TakesHalf, "taken"),
        (What::TakesAtOnceOrNot, "taken"),
        (What::SettlesAllOfTheFirst, "settled"),
        (What::RefundsAllOfTheFirst, "refunded"),
        (What::OverridesNothing, "has an override"),
        (What::OverridesForever, "has an override"),
        (What::EndsNoOverride, "has an override"),
        (What::ResetsOverrides, "has an override"),
        (What::PassesTheFirstOver, "the first that has room"),
        (What::ChargesAnotherMember, "the others are left alone"),
    ] {
        println!("{what:?}");
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        let otherwise = Otherwise {
            store,
            clock: clock.clone(),
            what,
        };
        let ran = Conformance::of(otherwise).clock(clock).run().await;
        assert_breaks(ran, law);
    }
}

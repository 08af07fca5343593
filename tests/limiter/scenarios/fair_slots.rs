//! Fair shares of slots: how a limit on concurrency is divided among tenants.
//!
//! Time is that of a test, and who asks when, and for how long, is drawn from a seed.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times and counts are small"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Fair, Mode};
use tower_ratelimit::{
    Concurrency, FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
};

use super::draw::Draw;

fn tenant(name: impl IntoKey) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

fn policy(slots: u32) -> Policy {
    Policy::new("upstream", Concurrency::of(slots)).fair(Fair::new())
}

fn built(policies: impl IntoIterator<Item = Policy>) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policies(policies)
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    (limiter, clock)
}

/// Takes slots, which are given back when the answer is dropped.
fn take(limiter: &LocalLimiter, name: impl IntoKey, slots: u32) -> Option<Reservation> {
    let reservation = limiter.reserve(tenant(name), slots).now();
    reservation.is_allowed().then_some(reservation)
}

fn take_all(limiter: &LocalLimiter, name: &str) -> Vec<Reservation> {
    std::iter::from_fn(|| take(limiter, name, 1)).collect()
}

fn remaining(limiter: &LocalLimiter, name: &str) -> u32 {
    let decision = limiter.peek(tenant(name), 0).now();
    decision.binding().unwrap().1.remaining()
}

/// A tenant that asks so often in a second, from one second to another, and holds its slots for so many seconds.
#[derive(Clone, Copy, Debug)]
struct Asker {
    per_second: f64,
    holds_for: f64,
    slots: u32,
    plan: &'static str,
    from: f64,
    to: f64,
}

fn asker(per_second: f64, holds_for: f64) -> Asker {
    Asker {
        per_second,
        holds_for,
        slots: 1,
        plan: "free",
        from: 0.0,
        to: f64::MAX,
    }
}

/// One that asks a hundred times as often as some others, and comes first.
fn hog_and(others: usize, holds_for: f64) -> Vec<Asker> {
    let other = asker(20.0 / holds_for, holds_for);
    let mut askers = vec![
        Asker {
            from: holds_for,
            ..other
        };
        others
    ];
    askers.insert(0, asker(2_000.0 / holds_for, holds_for));
    askers
}

/// Asks for the slots of this one of the tenants.
fn ask(limiter: &LocalLimiter, askers: &[Asker], place: usize) -> Reservation {
    let asker = askers[place];
    let limiter = limiter.plan(asker.plan);
    limiter.reserve(tenant(place as u64), asker.slots).now()
}

/// Lets the tenants ask and hold slots, at gaps and for times of half to one and a half of the mean. Returns the slots that each has held
/// in the span of these seconds, on average.
fn play(
    (limiter, clock): &(LocalLimiter, ManualClock),
    askers: &[Asker],
    span: (f64, f64),
) -> Vec<f64> {
    let ask = |place, _, _: &[u32]| ask(limiter, askers, place);
    play_by(clock, askers, span, 0x9e37_79b9_7f4a_7c15, ask)
}

/// Plays with numbers from this seed. Who asks, and when, is told with the slots that each tenant holds.
fn play_by(
    clock: &ManualClock,
    askers: &[Asker],
    (since, until): (f64, f64),
    seed: u64,
    mut ask: impl FnMut(usize, f64, &[u32]) -> Reservation,
) -> Vec<f64> {
    let mut draw = Draw::seeded(seed);
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let mut next = BinaryHeap::new();
    for (place, asker) in askers.iter().enumerate() {
        let at = micros(asker.from + draw.next() / asker.per_second);
        next.push(Reverse((at, place, None)));
    }
    let mut held: Vec<Option<Reservation>> = Vec::new();
    let mut holds = vec![0; askers.len()];
    let mut had = vec![0.0; askers.len()];
    let mut now = 0;
    while let Some(Reverse((at, place, ends))) = next.pop() {
        if at >= micros(until) {
            break;
        }
        clock.advance(Duration::from_micros(at - now));
        now = at;
        let asker = askers[place];
        if let Some(number) = ends {
            held[number] = None;
            holds[place] -= asker.slots;
            continue;
        }
        let reservation = ask(place, at as f64 / 1e6, &holds);
        if reservation.is_allowed() {
            let ends = at + micros((0.5 + draw.next()) * asker.holds_for);
            let from = at.max(micros(since));
            let counted = ends.min(micros(until)).saturating_sub(from);
            had[place] += f64::from(asker.slots) * counted as f64 / 1e6 / (until - since);
            holds[place] += asker.slots;
            next.push(Reverse((ends, place, Some(held.len()))));
            held.push(Some(reservation));
        }
        let gap = micros((0.5 + draw.next()) / asker.per_second).max(1);
        if ((at + gap) as f64) < asker.to * 1e6 {
            next.push(Reverse((at + gap, place, None)));
        }
    }
    had
}

fn play_under(slots: u32, askers: &[Asker], span: (f64, f64)) -> Vec<f64> {
    play(&built_with_plans(slots), askers, span)
}

fn built_with_plans(slots: u32) -> (LocalLimiter, ManualClock) {
    let clock = ManualClock::new();
    let fair = Fair::new().weight("pro", 4);
    let limiter = Limiter::builder()
        .policy(Policy::new("upstream", Concurrency::of(slots)).fair(fair))
        .plans_by_name(Plans::new([Plan::new("free"), Plan::new("pro")]))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    (limiter, clock)
}

/// Jain's index: 1 if all have the same, 1/n if one of n has all.
fn jain(had: &[f64]) -> f64 {
    let sum: f64 = had.iter().sum();
    let squares: f64 = had.iter().map(|one| one * one).sum();
    sum * sum / (had.len() as f64 * squares)
}

#[test]
fn who_asks_a_hundred_times_as_often_and_comes_first_has_no_more() {
    for (slots, others) in [(10, 1), (20, 9), (40, 14), (3, 1), (7, 3), (100, 9)] {
        for holds_for in [0.1, 2.0] {
            let from = 1.2 + 3.0 * holds_for;
            let span = (from, from + 25.0 * holds_for + 2.0);
            let had = play_under(slots, &hog_and(others, holds_for), span);
            let of = format!("{slots} slots, {others} others, {holds_for} s: {had:?}");
            let all: f64 = had.iter().sum();
            assert!(jain(&had) >= 0.98, "{of}");
            // Less one slot.
            let least = 0.95 / had.len() as f64 * f64::from(slots) - 1.0;
            assert!(least > 0.3, "{of}");
            assert!(had.iter().all(|one| *one >= least), "{of}");
            assert!(all >= 0.9 * f64::from(slots), "{of}");
        }
    }
}

#[test]
fn tenants_whose_share_is_less_than_a_slot_take_turns() {
    for (slots, others) in [(10, 14), (1, 3)] {
        let had = play_under(slots, &hog_and(others, 0.1), (1.5, 31.5));
        let all: f64 = had.iter().sum();
        let least = 0.9 * all / had.len() as f64;
        assert!(all >= 0.9 * f64::from(slots), "{slots}: {all}");
        assert!(had.iter().all(|one| *one >= least), "{slots}: {had:?}");
    }
}

#[test]
fn a_thousand_tenants_take_turns() {
    for (slots, until) in [(10, 90.0), (100, 40.0)] {
        let mut askers = vec![asker(4.0, 0.05); 1_000];
        askers[0] = asker(400.0, 0.05);
        let had = play_under(slots, &askers, (10.0, until));
        let all: f64 = had.iter().sum();
        assert!(jain(&had) >= 0.98, "{}", jain(&had));
        assert!(all >= 0.98 * f64::from(slots), "{all}");
        assert!(had[0] < 1.2 * f64::from(slots) / 1_000.0, "{}", had[0]);
    }
}

#[test]
fn one_alone_has_all_of_it() {
    for slots in [1, 10, 100] {
        let alone = play_under(slots, &[asker(4_000.0, 0.05)], (1.0, 6.0));
        assert!(alone[0] >= 0.98 * f64::from(slots), "{alone:?}");
    }
    // A hundred were there before, and have gone.
    let mut askers = vec![
        Asker {
            to: 3.0,
            ..asker(20.0, 0.1)
        };
        100
    ];
    askers[0] = asker(2_000.0, 0.1);
    let had = play_under(10, &askers, (5.0, 15.0));
    assert!(had[0] >= 9.8, "{}", had[0]);
}

#[test]
fn what_one_leaves_goes_to_those_that_ask_for_more() {
    // It holds one slot, now and then two.
    let askers = [asker(2_000.0, 0.1), asker(400.0, 0.1), asker(5.0, 0.1)];
    let had = play_under(20, &askers, (5.0, 65.0));
    assert!((0.46..0.54).contains(&had[2]), "{had:?}");
    for one in &had[..2] {
        assert!((8.3..10.0).contains(one), "{had:?}");
    }
}

#[test]
fn plans_have_weights() {
    let pro = Asker {
        plan: "pro",
        ..asker(200.0, 0.1)
    };
    let had = play_under(10, &[asker(2_000.0, 0.1), pro], (3.0, 33.0));
    assert!((1.9..2.1).contains(&had[0]), "{had:?}");
    assert!((7.5..8.1).contains(&had[1]), "{had:?}");
}

#[test]
fn requests_of_several_slots_have_their_share_beside_small_ones() {
    for slots in [2, 3, 5, 10] {
        let mut askers = vec![asker(100.0, 0.1); 5];
        askers[0].slots = slots;
        let had = play_under(10, &askers, (5.0, 65.0));
        assert!((1.85..2.15).contains(&had[0]), "{slots}: {had:?}");
        assert!(jain(&had[1..]) >= 0.98, "{slots}: {had:?}");
        // While room is kept for all slots at once, those that are free before lie idle, and the others have them no more.
        let least = if slots == 10 { 0.95 } else { 0.98 };
        assert!(jain(&had) >= least, "{slots}: {had:?}");
    }
}

/// Requests of all slots, which cannot pass while one of them is held for long, keep others out for no more than their tenant's share.
#[test]
fn what_is_kept_in_vain_is_kept_in_the_time_of_the_tenant() {
    let (limiter, clock) = built([policy(10)]);
    // Her stream goes on, and she asks for no more.
    let _held = take(&limiter, "ann", 1).unwrap();
    let (mut held, mut had) = (Vec::new(), 0.0);
    for step in 0..12_000_u32 {
        clock.advance(Duration::from_millis(10));
        if step % 50 == 0 {
            assert!(take(&limiter, "mallory", 10).is_none());
        }
        if step % 10 == 0 {
            held.clear();
            held.extend((0..9).map_while(|_| take(&limiter, "bob", 1)));
        }
        had += held.len() as f64 / 12_000.0;
    }
    // A half of nine.
    assert!((4.0..=5.0).contains(&had), "{had}");
}

/// A limit that a reload lowers below what is held leaves nothing to share, and a claim that ends then is not held against its tenant for ever.
#[test]
fn a_claim_that_ends_under_a_lower_limit_is_made_again() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let made = |slots: u32| {
        let builder = Limiter::builder().policy(policy(slots));
        builder.store(store.clone()).build_local().unwrap()
    };
    let (high, low) = (made(10), made(4));
    // Her stream goes on, and she asks for no more.
    let held = take(&high, "ann", 5).unwrap();
    for _ in 0..51 {
        assert!(take(&high, "mallory", 10).is_none());
        clock.advance(Duration::from_millis(100));
    }
    assert!(take(&low, "bob", 1).is_none());
    drop(held);
    clock.advance(Duration::from_secs(60));
    let one = take(&high, "bob", 1).unwrap();
    assert!(take(&high, "mallory", 10).is_none());
    assert!(take(&high, "bob", 1).is_none(), "nine are kept for mallory");
    drop(one);
    assert!(take(&high, "mallory", 10).is_some());
}

/// Slots that are held for long come back one after the other, and are kept until they are enough.
#[test]
fn what_is_given_back_now_and_then_is_kept() {
    let mut askers = vec![asker(10.0, 8.0); 5];
    askers[0].slots = 5;
    let had = play_under(10, &askers, (60.0, 1_260.0));
    assert!((1.7..2.3).contains(&had[0]), "{had:?}");
}

/// Who is refused finds all slots taken, or what is left kept for tenants that are active and below their share.
#[test]
fn nobody_is_refused_without_a_reason() {
    let (limiter, clock) = built([policy(12)]);
    let mut draw = Draw::seeded(5);
    let mut held: Vec<(u64, Reservation)> = Vec::new();
    let mut asked = [f64::MIN; 5];
    let (mut now, mut refused) = (0.0, 0);
    for _ in 0..40_000 {
        let gap = draw.next() * 0.02;
        now += gap;
        clock.advance(Duration::from_secs_f64(gap));
        while !held.is_empty() && draw.next() < 0.4 {
            let one = (draw.next() * held.len() as f64) as usize;
            drop(held.swap_remove(one));
        }
        let name = (draw.next() * draw.next() * 5.0) as u64;
        asked[name as usize] = now;
        if let Some(reservation) = take(&limiter, name, 1) {
            held.push((name, reservation));
        } else {
            refused += 1;
            let of = |name: u64| held.iter().filter(|(it, _)| *it == name).count();
            let active: Vec<u64> = (0..5)
                .filter(|name| now - asked[*name as usize] <= 1.001)
                .collect();
            let share = 12.0 / active.len() as f64;
            let others = active.iter().filter(|it| **it != name);
            let below = others.map(|it| (share - of(*it) as f64).max(0.0));
            let free = 12 - held.len();
            let is_kept = below.sum::<f64>() > free as f64 - 1.0;
            assert!(is_kept, "{free} left, {name} of {active:?} refused");
        }
        assert!(held.len() <= 12);
    }
    assert!(refused > 1_000, "{refused}");
}

/// By requests of all costs, guards and threads, no more slots are held than there are.
#[test]
fn threads_never_hold_more_than_there_is() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let (limiter, clock) = built([policy(7)]);
    let (barrier, in_flight) = (Barrier::new(4), AtomicU32::new(0));
    thread::scope(|scope| {
        for name in [1_u64, 2, 3, 3] {
            let (limiter, barrier, in_flight) = (&limiter, &barrier, &in_flight);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..3_000_u32 {
                    let slots = 1 + round % 3;
                    if let Some(_held) = take(limiter, name, slots) {
                        let all = in_flight.fetch_add(slots, Ordering::SeqCst) + slots;
                        assert!(all <= 7, "{all}");
                        in_flight.fetch_sub(slots, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    clock.advance(Duration::from_secs(5));
    assert_eq!(take_all(&limiter, "alone").len(), 7, "all are given back");
}

#[test]
fn a_hog_gives_way_as_its_requests_end() {
    let (limiter, _) = built([policy(6)]);
    let mut hog = take_all(&limiter, "hog");
    assert_eq!(hog.len(), 6);
    assert!(take(&limiter, "ann", 1).is_none(), "all are taken");
    let mut ann = Vec::new();
    for _ in 0..3 {
        hog.pop();
        assert!(take(&limiter, "hog", 1).is_none(), "it is hers");
        ann.push(take(&limiter, "ann", 1).unwrap());
    }
    hog.pop();
    assert!(take(&limiter, "ann", 1).is_none(), "she has a half");
    assert!(take(&limiter, "hog", 1).is_some());
}

#[test]
fn what_remains_would_pass() {
    let (limiter, clock) = built([policy(9)]);
    let mut draw = Draw::seeded(3);
    let mut held = Vec::new();
    for _ in 0..2_000 {
        clock.advance(Duration::from_micros((draw.next() * 50_000.0) as u64));
        while !held.is_empty() && draw.next() < 0.4 {
            let one = (draw.next() * held.len() as f64) as usize;
            drop(held.swap_remove(one));
        }
        let name = (draw.next() * 4.0) as u64;
        let reservation = limiter.reserve(tenant(name), 1).now();
        let (_, outcome) = reservation.decision().binding().unwrap();
        let left = outcome.remaining();
        if reservation.is_allowed() {
            held.push(reservation);
        } else {
            assert_eq!(left, 0);
        }
        let peeked = limiter.peek(tenant(name), 1).now();
        assert_eq!(peeked.is_allowed(), left > 0, "{left} {peeked:?}");
        if draw.next() < 0.3 {
            let more: Vec<_> = (0..left).map(|_| take(&limiter, name, 1)).collect();
            assert!(more.iter().all(Option::is_some), "{left}");
        }
    }
}

#[test]
fn to_ask_without_an_end_takes_nothing_and_makes_nobody_active() {
    let (limiter, _) = built([policy(4)]);
    let ann = take(&limiter, "ann", 1).unwrap();
    for name in 0..100_u64 {
        assert!(limiter.peek(tenant(name), 1).now().is_allowed());
        assert!(limiter.check(tenant(name), 1).now().is_allowed());
        let inspection = limiter.inspect(tenant(name)).now();
        assert!(inspection.policies().next().is_some());
    }
    assert_eq!(remaining(&limiter, "ann"), 3);
    assert_eq!(take_all(&limiter, "ann").len(), 3, "she is alone");
    drop(ann);
}

#[test]
fn a_request_that_a_rate_denies_keeps_no_slot_for_its_tenant() {
    let day = Policy::new("own", FixedWindow::per_day(1));
    let (limiter, _) = built([policy(4), day]);
    drop(take(&limiter, "ann", 1).unwrap());
    for _ in 0..50 {
        assert!(take(&limiter, "ann", 1).is_none());
    }
    drop(take(&limiter, "bob", 1).unwrap());
    let decision = limiter.peek(tenant("cid"), 0).now();
    let (_, outcome) = decision.policies().next().unwrap();
    // Each of the two has held one at once.
    assert_eq!(outcome.remaining(), 2);
}

/// Nothing but a look ends the wait of a tenant that has gone.
#[test]
fn to_look_sees_that_tenants_have_gone() {
    let (limiter, clock) = built([policy(4)]);
    let held = take(&limiter, "bob", 2);
    assert!(take(&limiter, "ann", 3).is_none());
    drop(held);
    let looks = || limiter.check(tenant("carol"), 2).now().is_allowed();
    assert!(!looks(), "three are kept for ann");
    clock.advance(Duration::from_secs(600));
    assert!(looks());
    assert_eq!(remaining(&limiter, "carol"), 4);
}

/// What is kept for another tenant is over the limit, as it is refused where the limit is enforced.
#[test]
fn a_soft_and_a_silent_limit_are_divided_as_well() {
    let policies = [policy(4), policy(4).soft(), policy(4).mode(Mode::Shadow)];
    let first_over = policies.map(|policy| {
        let (limiter, _) = built([policy]);
        drop(take(&limiter, "ann", 1).unwrap());
        let mut held = Vec::new();
        (0..5).position(|_| {
            let taken = take(&limiter, "hog", 1);
            let over = taken.as_ref().is_none_or(|taken| {
                let decision = taken.decision();
                decision.over_limit().count() + decision.would_refuse().count() > 0
            });
            held.extend(taken);
            over
        })
    });
    assert_eq!(first_over, [Some(3); 3]);
}

#[test]
fn a_block_is_of_one_tenant() {
    let (limiter, _) = built([policy(4)]);
    limiter.block(tenant("ann"), super::HOUR).now();
    assert!(take(&limiter, "ann", 1).is_none());
    assert_eq!(take_all(&limiter, "bob").len(), 4);
}

#[test]
fn more_tenants_than_are_told_apart_share_one_place() {
    let clock = ManualClock::new();
    let fair = Fair::new().most_tenants(2);
    let limiter = Limiter::builder()
        .policy(Policy::new("upstream", Concurrency::of(9)).fair(fair))
        .plans_by_name(Plans::new([Plan::new("free")]))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap();
    let both = (limiter, clock);
    let had = play(&both, &[asker(400.0, 0.1); 6], (3.0, 33.0));
    let own = had.iter().filter(|one| **one > 2.7).count();
    assert_eq!(own, 2, "{had:?}");
    let all: f64 = had.iter().sum();
    assert!(all > 8.5, "{had:?}");
    // What the others held is given back.
    both.1.advance(Duration::from_secs(5));
    assert_eq!(take_all(&both.0, "alone").len(), 9);
}

/// An attacker that invents tenants, or shared keys, does not grow the memory, and does not end the limit.
#[test]
fn invented_tenants_take_no_room() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().max_keys(64).clock(clock.clone());
    let limiter = Limiter::builder()
        .policy(policy(5))
        .store(store)
        .build_local()
        .unwrap();
    for number in 0..20_000_u64 {
        let key = Key::branch(number % 1_000, &[number.into_key()]);
        let held: Vec<_> = (0..6).map(|_| limiter.reserve(key, 1).now()).collect();
        let allowed = held.iter().filter(|it| it.is_allowed()).count();
        assert!((1..=5).contains(&allowed), "{allowed}");
        clock.advance(Duration::from_micros(1_500));
    }
    assert_eq!(take_all(&limiter, "alone").len(), 5);
}

#[test]
fn a_clock_that_steps_back_divides_on() {
    let both = built_with_plans(10);
    both.1
        .set_micros(tower_ratelimit::Micros::new(1_800_000_000_000_000));
    let before = play(&both, &hog_and(4, 0.1), (1.0, 5.0));
    both.1
        .set_micros(tower_ratelimit::Micros::new(1_790_000_000_000_000));
    let after = play(&both, &hog_and(4, 0.1), (2.0, 12.0));
    assert!(jain(&before) >= 0.98, "{before:?}");
    assert!(jain(&after) >= 0.98, "{after:?}");
}

/// Slots that requests held before a reload that divides them stay taken.
#[test]
fn a_reload_finds_what_is_held() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let made = |policy: Policy| {
        Limiter::builder()
            .policy(policy)
            .store(store.clone())
            .build_local()
            .unwrap()
    };
    let before = made(Policy::new("upstream", Concurrency::of(4)));
    let held = [(); 3].map(|()| before.reserve(Key::GLOBAL, 1).now());
    let after = made(policy(4));
    assert_eq!(take_all(&after, "ann").len(), 1);
    drop(held);
    let ann = take_all(&after, "ann");
    assert_eq!(ann.len(), 4);
    drop(after);
    let again = made(policy(6));
    assert_eq!(take_all(&again, "ann").len(), 2);
    drop(ann);
    clock.advance(Duration::from_secs(5));
    assert_eq!(take_all(&again, "bob").len(), 6);
}

#[test]
fn what_does_not_go_with_it_is_refused_with_a_remedy() {
    let fair = |slots| Policy::new("upstream", Concurrency::of(slots)).fair(Fair::new());
    let cases = [
        (fair(0), "at least 1 slot"),
        (fair(5).wait_up_to(Duration::from_secs(1)), "wait_up_to"),
        (fair(5).fair(Fair::new().most_tenants(1)), "2 to 1024"),
        (fair(5).limit_by(|_| None::<Concurrency>), "one limit"),
    ];
    for (policy, remedy) in cases {
        let built = Limiter::builder().policy(policy).build();
        let error = built.unwrap_err().to_string();
        assert!(error.contains(remedy), "{remedy}: {error}");
    }
}

/// Slots, and tenants that hold them for times of their own. Some always ask, and others come and go.
#[derive(Clone, Debug)]
struct Case {
    slots: u32,
    askers: Vec<Asker>,
    seed: u64,
}

impl Case {
    fn longest(&self) -> f64 {
        let each = self.askers.iter().map(|asker| asker.holds_for);
        1.5 * each.fold(0.0, f64::max)
    }

    /// When the second period begins, in which all slots have been given back that were taken in the first one, and when it ends.
    fn span(&self) -> (f64, f64) {
        let since = 2.0 * (1.0 + self.longest());
        (since, since + 10.0 * self.longest())
    }
}

fn weight(asker: &Asker) -> f64 {
    if asker.plan == "pro" { 4.0 } else { 1.0 }
}

/// Returns the share of this one of the tenants among those that are active, in slots.
fn share(case: &Case, place: usize, is_active: impl Fn(usize) -> bool) -> f64 {
    let active = (0..case.askers.len()).filter(|it| is_active(*it));
    let all: f64 = active.map(|it| weight(&case.askers[it])).sum();
    f64::from(case.slots) * weight(&case.askers[place]) / all
}

fn cases() -> impl Strategy<Value = Case> {
    let plan = prop_oneof![2 => Just("free"), 1 => Just("pro")];
    let slots = prop_oneof![2 => Just(1_u32), 1 => 1..=3_u32];
    let always = (8.0..20.0_f64).prop_map(|often| (often, None));
    let at_times = (0.1..20.0_f64, 0.0..0.9_f64, 0.05..1.0_f64)
        .prop_map(|(often, from, time)| (often, Some((from, from + time))));
    let when = prop_oneof![2 => always, 1 => at_times];
    let drawn = (plan, slots, 0.1..0.8_f64, when);
    let all = prop::collection::vec(drawn, 2..=6);
    (4..40_u32, all, 1..u64::MAX).prop_map(|(slots, drawn, seed)| {
        let made = drawn.iter().map(|&(plan, its, holds_for, _)| Asker {
            plan,
            slots: its,
            ..asker(0.0, holds_for)
        });
        let mut case = Case {
            slots,
            askers: made.collect(),
            seed,
        };
        let until = case.span().1;
        for (place, &(.., (often, span))) in drawn.iter().enumerate() {
            let in_turn = share(&case, place, |_| true) / f64::from(case.askers[place].slots);
            let asker = &mut case.askers[place];
            asker.per_second = often * in_turn.max(1.0) / asker.holds_for;
            if let Some((from, to)) = span {
                (asker.from, asker.to) = (from * until, to * until);
            }
        }
        case
    })
}

/// Lets all tenants ask, and looks at each decision and at what each tenant holds.
fn keep_the_laws(case: &Case) -> TestCaseResult {
    let (limiter, clock) = built_with_plans(case.slots);
    let askers = &case.askers;
    // When each tenant has last asked, and whether it was refused then.
    let mut asked = vec![(f64::MIN, false); askers.len()];
    let mut result = Ok(());
    let had = play_by(
        &clock,
        askers,
        case.span(),
        case.seed,
        |place, now, holds| {
            asked[place].0 = now;
            let free = case.slots - holds.iter().sum::<u32>();
            let cost = askers[place].slots;
            let mut reservation = ask(&limiter, askers, place);
            // Each request visits two other tenants, so that all are known then that have lapsed.
            let mut again = 0..if free < cost { 0 } else { holds.len() / 2 };
            while !reservation.is_allowed() && again.next().is_some() {
                reservation = ask(&limiter, askers, place);
            }
            asked[place].1 = !reservation.is_allowed();
            let is_active = |it: usize| now - asked[it].0 <= 1.001;
            let others = || (0..holds.len()).filter(|it| *it != place && is_active(*it));
            let below =
                others().map(|it| (share(case, it, is_active) - f64::from(holds[it])).max(0.0));
            // Slots are kept for one request of several slots.
            let claims = others()
                .filter(|it| asked[*it].1)
                .map(|it| askers[it].slots);
            let claim = claims.filter(|slots| *slots > 1).max().unwrap_or(0);
            let kept = below.sum::<f64>() + f64::from(claim);
            let holds_the_law = if reservation.is_allowed() {
                free >= cost
            } else {
                free < cost || f64::from(free - cost) < kept
            };
            if !holds_the_law {
                let told = format!(
                    "{place} asks for {cost} at {now}: {free} are left, and {kept} belong to others"
                );
                result = Err(TestCaseError::fail(told));
            }
            reservation
        },
    );
    result?;
    let all: f64 = had.iter().sum();
    for (place, (asker, had)) in askers.iter().zip(&had).enumerate() {
        let part = share(case, place, |_| true) / f64::from(case.slots);
        let least = 0.95 * part * all - 1.0;
        let has = *had >= least || asker.to < f64::MAX;
        prop_assert!(has, "{place} holds {had} of {all}, and not {least}");
    }
    Ok(())
}

proptest! {
    /// - No more slots are held than there are.
    /// - A request is refused only if all slots are taken, or if those that are left are kept for active tenants below their share, or
    ///   for one request of several slots that waits for its turn.
    /// - From the second period on, each tenant that always asks holds 0.95 of its part of what is held, less one slot, on average.
    #[test]
    fn tenants_hold_what_the_laws_say(case in cases()) {
        keep_the_laws(&case)?;
    }
}

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

use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Fair, Mode};
use tower_ratelimit::{
    Concurrency, FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
};

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
#[derive(Clone, Copy)]
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

/// Numbers from 0 to 1, drawn by xorshift.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Lets the tenants ask and hold slots, at gaps and for times of half to one and a half of the mean. Returns the slots that each has held
/// in the span of these seconds, on average.
fn play(
    (limiter, clock): &(LocalLimiter, ManualClock),
    askers: &[Asker],
    (since, until): (f64, f64),
) -> Vec<f64> {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let mut next = BinaryHeap::new();
    for (place, asker) in askers.iter().enumerate() {
        let at = micros(asker.from + draw.next() / asker.per_second);
        next.push(Reverse((at, place, None)));
    }
    let mut held: Vec<Option<Reservation>> = Vec::new();
    let mut had = vec![0.0; askers.len()];
    let mut now = 0;
    while let Some(Reverse((at, place, ends))) = next.pop() {
        if at >= micros(until) {
            break;
        }
        clock.advance(Duration::from_micros(at - now));
        now = at;
        if let Some(number) = ends {
            held[number] = None;
            continue;
        }
        let asker = askers[place];
        let key = tenant(place as u64);
        let reservation = limiter.plan(asker.plan).reserve(key, asker.slots).now();
        if reservation.is_allowed() {
            let ends = at + micros((0.5 + draw.next()) * asker.holds_for);
            let from = at.max(micros(since));
            let counted = ends.min(micros(until)).saturating_sub(from);
            had[place] += f64::from(asker.slots) * counted as f64 / 1e6 / (until - since);
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
    for (slots, others) in [(10, 1), (10, 9), (10, 14), (3, 1), (1, 3), (100, 9)] {
        for holds_for in [0.1, 2.0] {
            let from = 1.2 + 3.0 * holds_for;
            let span = (from, from + 25.0 * holds_for + 2.0);
            let had = play_under(slots, &hog_and(others, holds_for), span);
            let of = format!("{slots} slots, {others} others, {holds_for} s: {had:?}");
            let all: f64 = had.iter().sum();
            assert!(jain(&had) >= 0.98, "{of}");
            // Less one slot.
            let least = 0.95 / had.len() as f64 * f64::from(slots) - 1.0;
            assert!(had.iter().all(|one| *one >= least), "{of}");
            assert!(all >= 0.9 * f64::from(slots), "{of}");
        }
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
    let mut draw = Draw(5);
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
    let mut draw = Draw(3);
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

#[test]
fn a_soft_and_a_silent_limit_are_divided_as_well() {
    let soft = Policy::new("soft", Concurrency::of(2))
        .fair(Fair::new())
        .soft();
    let shadow = Policy::new("shadow", Concurrency::of(2))
        .fair(Fair::new())
        .mode(Mode::Shadow);
    let (limiter, _) = built([soft, shadow]);
    let held = [(); 3].map(|()| take(&limiter, "hog", 1).unwrap());
    let decision = held[2].decision();
    assert_eq!(
        decision.over_limit().count() + decision.would_refuse().count(),
        2
    );
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

//! The laws that hold for one request after another.
//!
//! A law is a function that builds a [`Scene`], makes random requests, and lets the scene compare each answer
//! with the reference. The name of the law is a constant beside it, and completes the sentence "the store
//! breaks the law that …".

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::scene::Scene;
use super::{Broken, Stage};
use tower_ratelimit_core::algorithm::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limit, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::key::{IntoKey, Key};
use tower_ratelimit_core::store::{Backend, Charge, Store};

const STEPS: usize = 60;

const HOUR: Micros = Micros::from_secs(3_600);

/// Every algorithm, and the least and the largest numbers.
fn algorithms() -> Vec<Algorithm> {
    let algorithms = vec![
        FixedWindow::per_day(5).into(),
        AnchoredWindow::per_day(5).into(),
        SlidingLog::per_day(5).into(),
        SlidingWindow::per_day(5).into(),
        SlidingSlots::per_day(5).into(),
        TokenBucket::per_day(5).burst(3).into(),
        TokenBucket::per_day(3).burst(5).by_interval().into(),
        LeakyBucket::per_day(5).into(),
        Gcra::per_day(7).burst(4).into(),
        LeakyQueue::per_day(7).places(4).into(),
        FixedWindow::per_day(0).into(),
        FixedWindow::per_day(u32::MAX).into(),
        Gcra::per_day(999_983).into(),
    ];
    #[cfg(feature = "calendar")]
    let algorithms = {
        let windows = [
            FixedWindow::per_calendar_day(5).into(),
            FixedWindow::per_calendar_month(5).into(),
        ];
        algorithms.into_iter().chain(windows).collect()
    };
    algorithms
}

pub(super) const DECIDES: &str = "every algorithm decides as its step does";

pub(super) async fn decides<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    for algorithm in algorithms() {
        let mut scene = stage.scene(DECIDES, &[algorithm])?;
        let keys = stage.keys("decides", 2);
        for _ in 0..STEPS {
            scene.let_time_pass();
            let charges = [Charge::new(
                0,
                *scene.random.one_of(&keys),
                cost(&mut scene, algorithm),
            )];
            if scene.random.below(4) == 0 {
                let _ = scene.peek(&charges).await?;
            }
            let _ = scene.charge(&charges).await?;
        }
    }
    Ok(())
}

fn cost<L: Backend>(scene: &mut Scene<L>, algorithm: Algorithm) -> u32 {
    let limit = algorithm.limit().unwrap_or(1);
    match scene.random.below(8) {
        0 => 0,
        1 => 2,
        2 => limit,
        3 => limit.saturating_add(1),
        _ => 1,
    }
}

pub(super) const ALL_OR_NOTHING: &str = "all policies of a request are charged, or none";

pub(super) async fn all_or_nothing<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    let all = algorithms();
    let several = stage.counts_several_keys().await?;
    for (place, first) in all.iter().enumerate() {
        let second = all[(place + 1) % all.len()];
        // Often scarcer than the first policy, so that the last policy denies.
        let third = FixedWindow::per_day(2).into();
        let mut scene = stage.scene(ALL_OR_NOTHING, &[*first, second, third])?;
        let keys = stage.keys("all-or-nothing", 2);
        for _ in 0..STEPS {
            scene.let_time_pass();
            let same = *scene.random.one_of(&keys);
            let mut charges = Vec::new();
            for policy in 0..3 {
                let own = *scene.random.one_of(&keys);
                let key = if several { own } else { same };
                let cost = cost(&mut scene, *first).min(3);
                let charge = Charge::new(policy, key, cost);
                match scene.random.below(7) {
                    // Some requests concern only some policies.
                    0 => {}
                    1 => charges.push(charge.soft()),
                    2 => charges.push(charge.shadow()),
                    _ => charges.push(charge),
                }
            }
            if !charges.is_empty() {
                let _ = scene.charge(&charges).await?;
            }
        }
    }
    Ok(())
}

pub(super) const VERBS: &str = "what there is is taken, and a key is refunded, settled, reset, blocked and unblocked as it was asked for, under the policies that were named";

pub(super) async fn verbs<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    let several = stage.counts_several_keys().await?;
    for algorithm in algorithms() {
        let second = TokenBucket::per_day(9).into();
        let mut scene = stage.scene(VERBS, &[algorithm, second])?;
        // Under other algorithms the moment of a settlement matters, and no answer shows it.
        let settles = stage.clock.is_some()
            || matches!(
                algorithm,
                Algorithm::FixedWindow(_)
                    | Algorithm::SlidingWindow(_)
                    | Algorithm::SlidingSlots(_)
            );
        let keys = stage.keys("verbs", 2);
        let both = [0, 1].map(|policy| Charge::new(policy, keys[0], 1));
        let _ = scene.charge(&both).await?;
        scene.block(&both, HOUR.saturating_add(HOUR)).await?;
        scene.reset(&both).await?;
        scene.block(&both, HOUR).await?;
        let _ = scene.charge(&both).await?;
        scene.unblock(&both[1..]).await?;
        let _ = scene.charge(&both).await?;
        scene.unblock(&both).await?;
        for _ in 0..STEPS {
            scene.let_time_pass();
            let key = *scene.random.one_of(&keys);
            let cost = cost(&mut scene, algorithm);
            // Each policy has a key and an amount of its own.
            let own = *scene.random.one_of(&keys);
            let other = if several { own } else { key };
            let both = [
                Charge::new(0, key, cost),
                Charge::new(1, other, cost.min(2)),
            ];
            // Sometimes one policy alone.
            let charges = match scene.random.below(6) {
                0 => &both[..1],
                1 => &both[1..],
                _ => &both[..],
            };
            let alike = [Charge::new(0, key, cost), Charge::new(1, key, cost)];
            match scene.random.below(17) {
                0 | 1 => scene.refund(charges).await?,
                2 => scene.reset(charges).await?,
                3 => {
                    let length = HOUR.saturating_add(Micros::new(scene.random.below(HOUR.get())));
                    scene.block(charges, length).await?;
                }
                4 => scene.unblock(charges).await?,
                5 if stage.clock.is_some() => scene.settle(charges).await?,
                5 if settles => scene.settle(&both[..1]).await?,
                6 => scene.acquire_up_to(&alike).await?,
                7 => scene.acquire_up_to(&[alike[0], alike[1].soft()]).await?,
                8 => scene.acquire_up_to(&[alike[0].soft(), alike[1]]).await?,
                9 => scene.acquire_up_to(&[alike[0].shadow(), alike[1]]).await?,
                10 => {
                    let _ = scene.charge(&[alike[0].shadow(), alike[1]]).await?;
                }
                11 => {
                    let _ = scene.charge(&[alike[0], alike[1].shadow()]).await?;
                }
                _ => {
                    let _ = scene.charge(charges).await?;
                }
            }
        }
    }
    Ok(())
}

pub(super) const OWN: &str =
    "a key has an override for as long as was asked for, and what was used stays used";

pub(super) async fn limits_of_their_own<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    for algorithm in algorithms() {
        let second = TokenBucket::per_day(9).into();
        let mut scene = stage.scene(OWN, &[algorithm, second])?;
        let keys = stage.keys("own", 2);
        let both = [0, 1].map(|policy| Charge::new(policy, keys[0], 1));
        let others = [0, 1].map(|policy| Charge::new(policy, keys[1], 1));
        let [two, other, more] = limits_for(&algorithm);
        // A bucket keeps its rate, so the moment does not matter.
        scene.override_limit(both[0], two, HOUR).await?;
        for _ in 0..3 {
            let _ = scene.charge(&both).await?;
        }
        let _ = scene.charge(&others).await?;
        scene.reset(&both).await?;
        let _ = scene.charge(&both).await?;
        scene.end_override(both[0]).await?;
        let _ = scene.charge(&both).await?;
        if stage.clock.is_none() {
            continue;
        }
        for _ in 0..STEPS {
            scene.let_time_pass();
            let key = *scene.random.one_of(&keys);
            let cost = cost(&mut scene, algorithm);
            let charges = [Charge::new(0, key, cost), Charge::new(1, key, cost.min(2))];
            match scene.random.below(12) {
                0 | 1 => {
                    let limit = *scene.random.one_of(&[two, other, more]);
                    let length = Micros::new(1 + scene.random.below(8 * HOUR.get()));
                    scene.override_limit(charges[0], limit, length).await?;
                }
                2 => scene.end_override(charges[0]).await?,
                3 => scene.refund(&charges).await?,
                4 => scene.settle(&charges[..1]).await?,
                5 => scene.reset(&charges).await?,
                _ => {
                    let _ = scene.charge(&charges).await?;
                }
            }
        }
    }
    Ok(())
}

/// Limits for an override: two requests at one instant, for a bucket at the rate of the policy; four, at
/// another rate; and more than the policy in both.
fn limits_for(policy: &Algorithm) -> [Algorithm; 3] {
    let Some(own) = policy.limits() else {
        return [*policy; 3];
    };
    let rate = match policy {
        Algorithm::Gcra(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::LeakyQueue(_)
        | Algorithm::TokenBucket(_) => own.quota(),
        _ => 2,
    };
    let more = |number: u32| number.saturating_add(3);
    let limits = [
        Limit::new(rate, 2),
        Limit::new(more(own.quota() / 2), 4),
        Limit::new(more(own.quota()), more(own.size())),
    ];
    limits.map(|limit| policy.under(limit).unwrap_or(*policy))
}

pub(super) const KEYS: &str = "different keys have different states";

/// Values that a careless store confuses with each other, or with names of its own.
const HOSTILE: &[&str] = &[
    "",
    "a",
    "A",
    "a ",
    " a",
    "a  ",
    "á",
    "a\u{301}",
    "ab",
    "a:b",
    "a,b",
    "a/b",
    "a%b",
    "a20b",
    "a%20b",
    "a b",
    "{a}",
    "{b}",
    "{}",
    "a\0b",
    "a\r\nset b 0 0 1",
    "*",
    "?",
    "a*",
    "'; DROP TABLE states; --",
    "\"a\"",
    "\\a",
    "a\\",
    "%",
    "_",
    "missing",
    "global",
    "trl1:a",
    "t:a",
    "p:t:a,t:b",
    "203.0.113.7",
];

pub(super) async fn keys_are_apart<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    let mut scene = stage.scene(KEYS, &[FixedWindow::per_day(1).into()])?;
    let number = stage.run;
    let run = format!("{number:08x}");
    let run = run.as_str();
    let mut keys: Vec<Key> = Vec::new();
    for text in HOSTILE {
        let before = format!("{text}{run}");
        let behind = format!("{run}{text}");
        keys.extend([before.as_str().into_key(), behind.as_str().into_key()]);
        keys.push(behind.as_bytes().into_key());
        keys.push(behind.repeat(100_000 / behind.len()).into_key());
        keys.extend([(*text, run).into_key(), (run, *text).into_key()]);
        keys.extend([
            ((run, *text), "b").into_key(),
            (run, (*text, "b")).into_key(),
        ]);
        // Levels of a tree, and keys that have one as a part.
        let (text, run) = (text.into_key(), run.into_key());
        let (team, user) = (Key::branch(run, &[text]), Key::branch(run, &[text, text]));
        keys.extend([team, user, Key::branch(text, &[run])]);
        keys.extend([(team, text).into_key(), (text, user).into_key()]);
    }
    keys.extend([
        number.into_key(),
        number.to_string().into_key(),
        (-1 - i128::from(number)).into_key(),
    ]);
    keys.extend(
        [1_u128, 1 << 64, 1 << 65].map(|high| (high << 60 | u128::from(number)).into_key()),
    );
    let networks =
        [0x2001_0db8_u128, 0x3fff].map(|network| network << 96 | u128::from(number) << 64);
    keys.extend(networks.map(|network| Ipv6Addr::from_bits(network).into_key()));
    keys.push(Ipv4Addr::from_bits(number).into_key());
    let mut known = HashSet::new();
    keys.retain(|key| known.insert(*key));
    for cost in [1, 1] {
        for key in &keys {
            let _ = scene.charge(&[Charge::new(0, *key, cost)]).await?;
        }
    }
    Ok(())
}

pub(super) const NODES: &str = "all nodes that open the store for a policy share its state";

pub(super) async fn nodes_agree<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    let algorithms = [
        FixedWindow::per_day(5).into(),
        TokenBucket::per_day(5).into(),
    ];
    let mut scene = stage.scene(NODES, &algorithms)?;
    let other = stage.scene(NODES, &algorithms)?;
    let mut elsewhere = Some(other.backend);
    for key in stage.keys("nodes", 4) {
        for cost in [1, 2, 2, 1] {
            let charges = [Charge::new(0, key, cost), Charge::new(1, key, cost)];
            let _ = scene.charge(&charges).await?;
            if let Some(other) = &mut elsewhere {
                std::mem::swap(&mut scene.backend, other);
            }
        }
    }
    Ok(())
}

pub(super) const EARLY: &str = "no state is forgotten before it is as good as new";

/// The period of the limit, as the report tells it.
const PERIOD: Duration = Duration::from_millis(1_900);

/// Runs in real time, since a place may have its own time. No result depends on how much time passes: an attempt during
/// which the process stood still tells nothing, and another one is made.
pub(super) async fn nothing_is_forgotten_early<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    let window = AnchoredWindow::new(1, PERIOD);
    let window = window.map_err(|error| Broken::refused(EARLY, &error))?;
    let mut scene = stage.scene(EARLY, &[window.into()])?;
    for key in stage.keys("early", 9) {
        if keeps_a_state(stage, &mut scene, key).await? {
            break;
        }
    }
    Ok(())
}

/// Returns whether the state of this key was seen to last for most of its time.
async fn keeps_a_state<S: Store>(
    stage: &Stage<S>,
    scene: &mut Scene<S::Backend>,
    key: Key,
) -> Result<bool, Broken> {
    let charges = [Charge::new(0, key, 1)];
    let began = Instant::now();
    let first = scene.attempt(&charges).await?;
    if !first.is_allowed() {
        return Err(scene.broken("a new key was denied"));
    }
    let mut kept_for = Micros::new(0);
    // Ten seconds.
    for _ in 0..200 {
        stage.real_time_passes(Duration::from_millis(50)).await;
        let decision = scene.attempt(&charges).await?;
        let since = decision.at().saturating_sub(first.at());
        let is_over = since >= PERIOD.into();
        // A manual clock does not count the time of the calls, and the place's own clock does.
        let may_be_over = is_over || began.elapsed() >= PERIOD;
        if decision.is_allowed() && !may_be_over || is_over && !decision.is_allowed() {
            let what = if decision.is_allowed() {
                "again"
            } else {
                "not"
            };
            return Err(scene.broken(&format!(
                "{what} allowed {} µs after the first request, under a limit of one in 1.9 s",
                since.get()
            )));
        }
        if decision.is_allowed() {
            return Ok(kept_for >= (PERIOD * 3 / 4).into());
        }
        kept_for = since;
    }
    Err(scene.broken(
        "its time stands still, or nearly: if it reads a `ManualClock`, pass that to `Conformance::clock`",
    ))
}

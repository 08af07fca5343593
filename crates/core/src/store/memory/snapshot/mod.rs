//! The contents of a store as bytes, to survive a restart.

mod format;
mod past;

pub use self::past::{RestoreStatus, Restored};

pub(super) use self::past::Past;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::format::{Reader, Writer};
use super::blocks::Blocked;
use super::fair::Tenants;
use super::guarantee::Families;
use super::seed::Seed;
use super::tiers::Counter;
use super::timed::Override;
use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::error::{RestoreError, RestoreErrorKind};

/// What is kept of an open policy.
pub(super) struct Kept {
    pub(super) policy: String,
    pub(super) algorithm: Algorithm,
    pub(super) counter: Arc<dyn Counter>,
    pub(super) families: Option<Arc<Families>>,
    pub(super) tenants: Option<Arc<Tenants>>,
}

/// The sections of what stands beside the states of keys.
const CHILDREN: &str = "children";
const TENANTS: &str = "tenants";

/// Writes these tables, and what was restored of others.
pub(super) fn write(
    seed: &Seed,
    tables: &[Kept],
    past: Option<&Past>,
    live_blocks: &[(String, Blocked)],
    now: Micros,
) -> Vec<u8> {
    let (restored, blocks) =
        past.map_or((&[][..], &[][..]), |past| (past.policies(), past.blocks()));
    let mut file = Writer::new();
    file.section("seed", |file| {
        for word in seed.words() {
            file.number(word);
        }
        for sample in seed.samples() {
            file.number(sample);
        }
    });
    for kept in tables {
        let (policy, algorithm) = (&kept.policy, &kept.algorithm);
        let counter = kept.counter.general();
        let mut overrides = Vec::new();
        file.section("policy", |file| {
            file.text(policy);
            file.text(&algorithm.to_string());
            let mut own: BTreeMap<u64, (Override, State)> = BTreeMap::new();
            for (fingerprint, limit) in counter.each_override(now) {
                own.insert(fingerprint, (limit, State::NEW));
            }
            counter.each_key(
                now,
                &mut |fingerprint, state| match own.get_mut(&fingerprint) {
                    Some((_, its)) => *its = state,
                    None => file.key(fingerprint, &state),
                },
            );
            let own = own.into_iter();
            overrides.extend(own.map(|(fingerprint, (limit, state))| (fingerprint, limit, state)));
        });
        let of = (policy.as_str(), &*algorithm.to_string());
        put_overrides(&mut file, of, &overrides);
        let families = kept.families.as_ref();
        let children = families.map(|families| families.each(now, period_of(algorithm)));
        put_words(&mut file, CHILDREN, of, &children.unwrap_or_default());
        let tenants = kept.tenants.as_ref().map(|tenants| tenants.each(now));
        put_words(&mut file, TENANTS, of, &tenants.unwrap_or_default());
    }
    for one in restored {
        one.write(&mut file, now);
    }
    for (policy, blocked) in live_blocks.iter().chain(blocks) {
        let mut lasting = blocked.iter().filter(|(.., until)| *until > now).peekable();
        if lasting.peek().is_none() {
            continue;
        }
        file.section("blocks", |file| {
            file.text(policy);
            for (fingerprint, from, until) in lasting {
                for number in [*fingerprint, from.get(), until.get()] {
                    file.number(number);
                }
            }
        });
    }
    file.finish()
}

/// A key, its override, and its state under that.
type Overridden = (u64, Override, State);

fn put_overrides(file: &mut Writer, (policy, algorithm): (&str, &str), overrides: &[Overridden]) {
    if overrides.is_empty() {
        return;
    }
    file.section("overrides", |file| {
        file.text(policy);
        file.text(algorithm);
        for (fingerprint, limit, state) in overrides {
            file.number(limit.from.get());
            file.number(limit.until.get());
            file.text(&limit.what.to_string());
            file.key(*fingerprint, state);
        }
    });
}

/// Writes what stands beside the states of keys, as words.
fn put_words(
    file: &mut Writer,
    section: &str,
    (policy, algorithm): (&str, &str),
    keys: &[(u64, State)],
) {
    if keys.is_empty() {
        return;
    }
    file.section(section, |file| {
        file.text(policy);
        file.text(algorithm);
        for (fingerprint, words) in keys {
            file.key(*fingerprint, words);
        }
    });
}

/// Returns how long a child counts that does not ask.
fn period_of(algorithm: &Algorithm) -> Micros {
    let (_, period, _) = algorithm.frame();
    period.map_or(Micros::ZERO, Micros::from)
}

/// Returns the tables that were written, and the seed of their fingerprints.
pub(super) fn read(snapshot: &[u8]) -> Result<(Seed, Past), RestoreError> {
    let mut sections = Reader::open(snapshot).map_err(RestoreError::new)?;
    let damaged = || RestoreError::new(RestoreErrorKind::Damaged);
    let (mut seed, mut restored, mut blocks) = (None, Vec::new(), Vec::new());
    while !sections.is_at_its_end() {
        let (name, mut section) = sections.section().ok_or_else(damaged)?;
        match name {
            "seed" => {
                let words = section.numbers().ok_or_else(damaged)?;
                let samples = section.numbers().ok_or_else(damaged)?;
                let its = Seed::of_words(words);
                if its.samples() != samples {
                    return Err(RestoreError::new(RestoreErrorKind::AnotherBuild));
                }
                seed = Some(its);
            }
            "policy" => restored.push(Restored::read(section).ok_or_else(damaged)?),
            "overrides" => past::overrides(&mut restored, section).ok_or_else(damaged)?,
            CHILDREN => past::children(&mut restored, section).ok_or_else(damaged)?,
            TENANTS => past::tenants(&mut restored, section).ok_or_else(damaged)?,
            "blocks" => blocks.push(blocked(section).ok_or_else(damaged)?),
            _ => {}
        }
    }
    Ok((seed.ok_or_else(damaged)?, Past::new(restored, blocks)))
}

fn blocked(mut section: Reader<'_>) -> Option<(String, Blocked)> {
    let policy = section.text()?.to_owned();
    let mut blocked = Blocked::new();
    while !section.is_at_its_end() {
        let [fingerprint, from, until] = section.numbers()?;
        blocked.push((fingerprint, Micros::new(from), Micros::new(until)));
    }
    Some((policy, blocked))
}

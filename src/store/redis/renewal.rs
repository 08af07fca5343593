//! Renews the slots that requests of this node hold.
//!
//! In Redis a slot lasts for one life, and is renewed at a third of it, all slots in one call. So a node that
//! dies frees its slots within one life, and a request may last as long as it likes. In a cluster each key
//! has a call of its own, since a script reads the keys of one hash slot only.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::calls::{Calls, Names};
use crate::decision::Outcomes;
use crate::diagnostics::{Diagnostic, diagnose};
use crate::error::StoreError;
use crate::key::Key;
use crate::store::{Charge, Slot};

const LOST: Diagnostic = Diagnostic::new(
    "TRL027",
    "",
    "slots of requests in flight were lost in Redis and taken again, so that more requests than the limit may be in flight for a while",
    "let slots last longer than the store is away, `RedisStoreBuilder::slot_life`, and see why it was",
);

/// The charges of requests that hold slots of one key under one policy.
type OfKey = Vec<Charge>;

/// The number of calls that renew slots in a cluster at once.
const MOST_AT_ONCE: usize = 64;

/// Keeps the slots that a request has taken, until they are released.
pub(super) fn keep(calls: &Arc<Calls>, charges: &[Charge], outcomes: &Outcomes) {
    if !calls.held.put(charges, outcomes) {
        return;
    }
    match Handle::try_current() {
        Ok(runtime) => {
            let every = calls.held.life().to_duration() / 3;
            runtime.spawn(renew(Renewing(Arc::downgrade(calls)), every));
        }
        Err(_) => calls.held.are_not_renewed(),
    }
}

/// Renews slots as long as any is held.
async fn renew(renewing: Renewing, every: Duration) {
    loop {
        sleep(every).await;
        let Some(calls) = renewing.0.upgrade() else {
            return;
        };
        let Some(charges) = calls.held.to_be_renewed() else {
            // Another task has begun to renew.
            return renewing.end();
        };
        if charges.is_empty() {
            continue;
        }
        // A slot that is not renewed now is renewed next time, before it has ended.
        if calls.renew(&charges).await > 0 {
            diagnose(&LOST);
        }
        // The renewal may have taken slots again that were released meanwhile.
        let released = charges
            .into_iter()
            .filter(|charge| charge.slot.is_some_and(|slot| !calls.held.holds(slot)));
        let released: Vec<Charge> = released.collect();
        if !released.is_empty() {
            let _ = calls.release(&released).await;
        }
    }
}

impl Calls {
    /// Renews the slots that these charges hold. Returns how many were lost and are taken again.
    async fn renew(self: &Arc<Self>, charges: &[Charge]) -> u64 {
        let mut by_key: HashMap<(Key, usize), OfKey> = HashMap::new();
        for charge in charges {
            let of_key = by_key.entry((charge.key, charge.policy)).or_default();
            of_key.push(*charge);
        }
        if !self.link.is_divided() {
            let all: Vec<OfKey> = by_key.into_values().collect();
            return self.renew_together(&all).await.unwrap_or(0);
        }
        // A server that does not answer holds up its own keys, and no others.
        let mut left = by_key.into_values();
        let (mut under_way, mut lost) = (JoinSet::new(), 0);
        loop {
            while under_way.len() < MOST_AT_ONCE
                && let Some(of_key) = left.next()
            {
                if !self.watch.is_away(&of_key[..1]) {
                    let calls = Arc::clone(self);
                    under_way.spawn(async move { calls.renew_together(&[of_key]).await });
                }
            }
            match under_way.join_next().await {
                Some(Ok(Ok(taken_again))) => lost += taken_again,
                Some(_) => {}
                None => return lost,
            }
        }
    }

    /// Renews slots of keys that one call can reach.
    async fn renew_together(&self, keys: &[OfKey]) -> Result<u64, StoreError> {
        let Some(first) = keys.first().and_then(|of_key| of_key.first()) else {
            return Ok(0);
        };
        let Some(lua) = self.policies.get(first.policy).and_then(|it| it.lua) else {
            return Ok(0);
        };
        let mut call = self.call(lua.name);
        call.argument(self.held.life().get());
        let mut names = Names::default();
        for of_key in keys {
            let Some(charge) = of_key.first() else {
                continue;
            };
            let Some(policy) = self.policies.get(charge.policy) else {
                continue;
            };
            call.key(names.name(&self.prefix, &charge.key, &policy.suffix));
            let slots = of_key.iter().map(|charge| u64::from(charge.cost));
            call.argument(slots.sum::<u64>());
            for charge in of_key {
                let slot = charge.slot.map_or(0, Slot::number);
                // The names of `concurrency.members` in Lua.
                for index in 1..=charge.cost {
                    match index {
                        1 => call.argument(slot),
                        _ => call.argument(format_args!("{slot}.{index}")),
                    }
                }
            }
        }
        let until = self.link.deadline();
        let told = self.run(&self.renew, &call, &[*first], until).await;
        Ok(match self.watched(told)? {
            Value::Int(number) => u64::try_from(number).unwrap_or(0),
            _ => 0,
        })
    }
}

/// Lets another task renew if this one ends with its runtime.
struct Renewing(Weak<Calls>);

impl Renewing {
    fn end(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(calls) = self.0.upgrade() {
            calls.held.are_not_renewed();
        }
    }
}

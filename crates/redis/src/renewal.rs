//! Renews the slots that requests of this node hold.
//!
//! In Redis a slot lasts for one life, and is renewed at a third of it, all slots in one call. So a node that
//! dies frees its slots within one life, and a request may last as long as it likes. In a cluster each key
//! has a call of its own, since a script reads the keys of one hash slot only, and each server is renewed by itself: a call
//! to one that is away may take longer than a slot lasts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::calls::{Calls, Names};
use tower_ratelimit_core::__internal::{diagnose, warn_once_of};
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::diagnostics::Diagnostic;
use tower_ratelimit_core::error::StoreError;
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::store::{Charge, Slot};

const LOST: Diagnostic = Diagnostic::new(
    "TRL027",
    "",
    "slots of requests in flight were lost in Redis and taken again, so that more requests than the limit may be in flight for a while",
    "let slots last longer than the store is away, `RedisStoreBuilder::slot_ttl`, and see why it was; \
     in a file of limits: `slot_ttl = \"2min\"` under `[store]`",
);

const NOT_RENEWED: Diagnostic = Diagnostic::new(
    "TRL036",
    "",
    "slots of requests in flight could not be renewed in Redis; if that lasts for a life of a slot, more requests than the limit \
     may be in flight",
    "see why the server refuses, by the reason; `StoreStats::failed_renewals` counts the calls",
);

/// The charges of requests that hold slots of one key under one policy.
type OfKey = Vec<Charge>;

/// The number of calls to a server of a cluster that renew slots at once.
const MOST_AT_ONCE: usize = 64;

/// The same where parts are guessed, so that a server has many of them.
const MOST_OF_A_GUESS: usize = 4;

/// Keeps the slots that a request has taken, until they are released.
pub(super) fn keep(calls: &Arc<Calls>, charges: &[Charge], outcomes: &Outcomes) {
    if !calls.in_use.put(charges, outcomes) {
        return;
    }
    let every = calls.in_use.life().to_duration() / 3;
    // Without a thread the task is dropped, and the next slot starts another.
    let renewing = renew(Renewing(Arc::downgrade(calls)), every);
    let _ = calls.link.background.spawn(renewing);
}

/// Renews slots as long as any is held.
async fn renew(renewing: Renewing, every: Duration) {
    let mut under_way: HashMap<u64, JoinHandle<()>> = HashMap::new();
    loop {
        sleep(every).await;
        let Some(calls) = renewing.0.upgrade() else {
            return;
        };
        let Some(charges) = calls.in_use.to_be_renewed() else {
            // The next slot that is taken begins a task of its own.
            return renewing.end();
        };
        under_way.retain(|_, renewal| !renewal.is_finished());
        for (part, charges) in calls.by_part(charges) {
            // The previous calls to this server are not over. It would answer these after those.
            let Entry::Vacant(place) = under_way.entry(part) else {
                continue;
            };
            let calls = Arc::clone(&calls);
            place.insert(tokio::spawn(async move {
                if calls.renew_slots(charges).await > 0 {
                    diagnose(&LOST);
                }
            }));
        }
    }
}

impl Calls {
    /// Divides charges by the server of their keys, as far as it is known.
    fn by_part(&self, charges: Vec<Charge>) -> HashMap<u64, Vec<Charge>> {
        let mut by_part: HashMap<u64, Vec<Charge>> = HashMap::new();
        for charge in charges {
            let part = self.watch.part(&charge.key);
            by_part.entry(part).or_default().push(charge);
        }
        by_part
    }

    /// Renews the slots of a server that these charges held a moment ago. Returns how many were lost while their requests go on.
    ///
    /// A slot that is not renewed now is renewed next time, before it has ended.
    async fn renew_slots(self: &Arc<Self>, charges: Vec<Charge>) -> u64 {
        let taken_again = self.renew(&charges).await;
        // A slot that its request gives back meanwhile is taken again by the renewal, if the server has heard of
        // its release first.
        let is_released =
            |charge: &Charge| charge.slot.is_some_and(|slot| !self.in_use.holds(slot));
        let released: Vec<Charge> = charges.into_iter().filter(is_released).collect();
        if released.is_empty() {
            return taken_again;
        }
        let _ = self.release(&released).await;
        let slots = released.iter().map(|charge| u64::from(charge.cost));
        taken_again.saturating_sub(slots.sum())
    }

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
        let most = if self.link.is_guessed() {
            MOST_OF_A_GUESS
        } else {
            MOST_AT_ONCE
        };
        let mut left = by_key.into_values();
        let (mut under_way, mut lost) = (JoinSet::new(), 0);
        loop {
            while under_way.len() < most
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
        call.argument(self.in_use.life().get());
        let mut names = Names::default();
        for of_key in keys {
            let Some(charge) = of_key.first() else {
                continue;
            };
            let Some(policy) = self.policies.get(charge.policy) else {
                continue;
            };
            let slots = of_key.iter().map(|charge| u64::from(charge.cost));
            let slots: u64 = slots.sum();
            let mut behind = String::new();
            if let Some([_, active_for, tenants]) = policy.scale {
                let key = names.name(&self.prefix, &charge.key.root(), &policy.suffix);
                let tenant = self.tenant(&key, policy, charge);
                behind = format!(" {}", tenant.field);
                call.key(key);
                call.key(tenant.tenants);
                call.argument(slots);
                call.argument(tenant.field);
                let limit = policy.algorithm.limit().unwrap_or(0);
                call.numbers([limit.into(), active_for, tenants]);
            } else {
                call.key(names.name(&self.prefix, &charge.key, &policy.suffix));
                call.argument(slots);
                call.argument("");
            }
            for charge in of_key {
                let slot = charge.slot.map_or(0, Slot::number);
                // The names of `concurrency.members` in Lua.
                for index in 1..=charge.cost {
                    match index {
                        1 => call.argument(format_args!("{slot}{behind}")),
                        _ => call.argument(format_args!("{slot}.{index}{behind}")),
                    }
                }
            }
        }
        let until = self.link.deadline();
        let renewed = self.run(&self.renew, &call, &[*first], until).await;
        match &renewed {
            Ok(_) => self.watch.has_written(&first.key),
            Err(error) => {
                self.watch.calls().renewal_failed();
                warn_once_of(&NOT_RENEWED, error.reason().unwrap_or("unknown").to_owned());
            }
        }
        Ok(match self.watched(renewed)? {
            Value::Int(number) => u64::try_from(number).unwrap_or(0),
            _ => 0,
        })
    }
}

/// Lets another task renew if this one cannot start, or panics.
struct Renewing(Weak<Calls>);

impl Renewing {
    fn end(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(calls) = self.0.upgrade() {
            calls.in_use.renewal_failed();
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::FromRedisValue;

    use super::*;
    use crate::{RedisBackend, RedisStore};
    use tower_ratelimit_core::algorithm::Concurrency;
    use tower_ratelimit_core::key::IntoKey;
    use tower_ratelimit_core::policy::Policy;
    use tower_ratelimit_core::store::{Amendment, Backend, Store};
    use tower_ratelimit_testing::servers::redis::Server;

    /// Takes a slot of the only policy.
    async fn take(backend: &RedisBackend) -> Charge {
        let charge = Charge::new(0, 7_u64.into_key(), 1).holding(Slot::unique());
        let decided = backend.decide(&[charge]).wait().await;
        assert!(decided.unwrap().is_allowed());
        charge
    }

    fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
        redis::from_redis_value(server.ask(words)).unwrap()
    }

    #[tokio::test]
    async fn a_slot_that_is_released_while_it_is_renewed_is_neither_held_nor_lost() {
        let server = Server::start(&[]);
        // Nothing is renewed by itself, and nothing ends.
        let store = RedisStore::builder()
            .deadline(Duration::from_secs(20))
            .slot_ttl(Duration::from_secs(3_600));
        let store = store.open(server.url()).unwrap();
        let policy = Policy::new("at once", Concurrency::of(2));
        let set = store.store_key(&policy, 7_u64);
        let backend = store.open(&[policy]).unwrap();
        let calls = backend.calls();
        let members = || ask::<u64>(&server, &["ZCARD", &set]);
        let [stays, goes] = [take(&backend).await, take(&backend).await];

        let listed = calls.in_use.to_be_renewed().unwrap();
        assert_eq!((listed.len(), members()), (2, 2));
        let released = backend.amend(&[goes], Amendment::Release);
        released.wait().await.unwrap();
        assert_eq!(members(), 1);
        assert_eq!(calls.renew_slots(listed).await, 0);
        assert_eq!(members(), 1);

        // One that is lost in the same moment is told.
        let goes = take(&backend).await;
        let listed = calls.in_use.to_be_renewed().unwrap();
        let _: u64 = ask(&server, &["DEL", &set]);
        let released = backend.amend(&[goes], Amendment::Release);
        released.wait().await.unwrap();
        assert_eq!(calls.renew_slots(listed).await, 1);
        assert_eq!(members(), 1);
        let released = backend.amend(&[stays], Amendment::Release);
        released.wait().await.unwrap();
        assert_eq!(members(), 0);
    }
}

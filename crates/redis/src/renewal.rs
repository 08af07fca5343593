//! Renews the slots that requests of this node hold in Redis.
//!
//! All slots of a server are renewed in one call. In a cluster each key has a call of its own, since a script reads the keys of one
//! hash slot only.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;

use super::calls::{Calls, Names};
use tower_ratelimit_core::__internal::{Renews, SlotsInUse, not_renewed, renew_each};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::store::{Charge, Slot};

/// The charges of requests that hold slots of one key under one policy.
type OfKey = Vec<Charge>;

/// The number of calls to a server of a cluster that renew slots at once.
const MOST_AT_ONCE: usize = 64;

/// The same where parts are guessed, so that a server has many of them.
const MOST_OF_A_GUESS: usize = 4;

impl Renews for Calls {
    fn in_use(&self) -> &SlotsInUse {
        &self.in_use
    }

    fn life(&self) -> Micros {
        self.slot_life
    }

    fn part(&self, key: &Key) -> u64 {
        self.watch.part(key)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _ = self.link.background.spawn(task);
    }

    async fn renew(self: &Arc<Self>, charges: &[Charge]) -> u64 {
        let mut by_key: HashMap<(Key, usize), OfKey> = HashMap::new();
        for charge in charges {
            let of_key = by_key.entry((charge.key, charge.policy)).or_default();
            of_key.push(*charge);
        }
        if !self.link.is_divided() {
            let all: Vec<OfKey> = by_key.into_values().collect();
            return self.renew_together(&all).await;
        }
        let most = if self.link.is_guessed() {
            MOST_OF_A_GUESS
        } else {
            MOST_AT_ONCE
        };
        let each = by_key.into_values().map(|of_key| {
            let calls = Arc::clone(self);
            async move {
                if calls.watch.is_away(&of_key[..1]) {
                    return 0;
                }
                calls.renew_together(&[of_key]).await
            }
        });
        renew_each(each, most).await
    }

    async fn release(self: &Arc<Self>, charges: &[Charge]) {
        let _ = Self::release(self, charges).await;
    }
}

impl Calls {
    /// Renews slots of keys that one call can reach. Returns how many were lost and are taken again.
    async fn renew_together(&self, keys: &[OfKey]) -> u64 {
        let Some(first) = keys.first().and_then(|of_key| of_key.first()) else {
            return 0;
        };
        let Some(lua) = self.policies.get(first.policy).and_then(|it| it.lua) else {
            return 0;
        };
        let mut call = self.call(lua.name);
        call.argument(self.slot_life.get());
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
                not_renewed(error);
            }
        }
        match self.watched(renewed) {
            Ok(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::FromRedisValue;

    use std::time::Duration;

    use super::*;
    use crate::{RedisBackend, RedisStore};
    use tower_ratelimit_core::__internal::renew_part;
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
        assert_eq!(renew_part(calls, listed).await, 0);
        assert_eq!(members(), 1);

        // One that is lost in the same moment is told.
        let goes = take(&backend).await;
        let listed = calls.in_use.to_be_renewed().unwrap();
        let _: u64 = ask(&server, &["DEL", &set]);
        let released = backend.amend(&[goes], Amendment::Release);
        released.wait().await.unwrap();
        assert_eq!(renew_part(calls, listed).await, 1);
        assert_eq!(members(), 1);
        let released = backend.amend(&[stays], Amendment::Release);
        released.wait().await.unwrap();
        assert_eq!(members(), 0);
    }
}

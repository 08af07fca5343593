//! The limits of a domain in this process, by which a request is decided that the store does not answer in time.
//!
//! A store has a deadline of its own, and decides by itself after it. A call of Envoy may have less time than that, and a request
//! may take several calls to the store.

use std::sync::{PoisonError, RwLock};

use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::{ConfigError, FixedWindow, Limiter, MemoryStore, OnStoreFailure};

use super::question::{Demand, Limited};

/// The kind of a store that is in this process, and always answers.
const IN_PROCESS: &str = "memory";

/// The limits of a domain, each under the share of this node.
#[derive(Debug)]
pub(super) struct Standby {
    builder: LimiterBuilder,
    store: MemoryStore,
    share: RwLock<Share>,
}

/// One of so many shares of all limits.
#[derive(Clone, Debug)]
pub(super) struct Share {
    nodes: u32,
    pub(super) limiter: Limiter,
}

impl Standby {
    /// Returns what stands in for the store of a limiter that this builder has built; `None` if that store always answers. What was
    /// counted `before` stays.
    pub(super) fn of(
        limiter: &Limiter,
        builder: LimiterBuilder,
        before: Option<&Self>,
    ) -> Result<Option<Self>, ConfigError> {
        let described = limiter.snapshot().store;
        if described.kind == IN_PROCESS {
            return Ok(None);
        }
        let store = before.map_or_else(MemoryStore::new, |before| before.store.clone());
        let share = Share::open(&builder, &store, described.nodes)?;
        Ok(Some(Self {
            builder,
            store,
            share: RwLock::new(share),
        }))
    }

    /// Follows the number of nodes that share the store of this limiter. What was counted stays.
    pub(super) fn follow(&self, limiter: &Limiter) {
        let nodes = limiter.snapshot().store.nodes;
        if nodes.unwrap_or(1) == self.share().nodes {
            return;
        }
        // It has been opened before, with another number.
        if let Ok(share) = Share::open(&self.builder, &self.store, nodes) {
            *self.share.write().unwrap_or_else(PoisonError::into_inner) = share;
        }
    }

    pub(super) fn share(&self) -> Share {
        let share = self.share.read();
        share.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Share {
    fn open(
        builder: &LimiterBuilder,
        store: &MemoryStore,
        nodes: Option<u32>,
    ) -> Result<Self, ConfigError> {
        let nodes = nodes.unwrap_or(1).max(1);
        let builder = builder.clone().nodes(nodes).store(store.clone());
        let limiter = builder.build()?;
        Ok(Self { nodes, limiter })
    }

    /// Returns the demands on the limits that are counted here, and none on those that let all pass while their store is away;
    /// `None` if one of them refuses.
    pub(super) fn of<'a>(&self, demands: &[Demand<'a>]) -> Option<Vec<Demand<'a>>> {
        demands.iter().map(|demand| self.of_one(demand)).collect()
    }

    fn of_one<'a>(&self, demand: &Demand<'a>) -> Option<Demand<'a>> {
        let Demand::Limited(limited) = demand else {
            return Some(demand.clone());
        };
        let Some(rule) = limited.rule else {
            // The limit comes with the request.
            let (_, period, _) = limited.algorithm.frame();
            let whole = limited.algorithm.limits()?.quota();
            let share = FixedWindow::new(whole.div_ceil(self.nodes), period?).ok()?;
            return Some(Demand::Limited(Limited {
                algorithm: share.into(),
                ..limited.clone()
            }));
        };
        match rule.policy.store_failure() {
            OnStoreFailure::Allow => Some(Demand::Nothing),
            OnStoreFailure::Refuse if rule.is_shadow => Some(Demand::Nothing),
            OnStoreFailure::Refuse => None,
            _ => Some(demand.clone()),
        }
    }
}

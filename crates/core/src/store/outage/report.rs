//! The log messages about a store that is away.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use super::standby::Standby;
use crate::error::StoreError;
use crate::observe::{StoreEvent, observe};
use crate::policy::OnStoreFailure;

/// Reports the changes of a store, with the policies of all backends over it.
pub(super) struct Report {
    /// The address of the store, without credentials.
    store: String,
    backends: Mutex<Backends>,
}

/// The policies of each backend over the store.
struct Backends {
    standbys: Vec<Weak<Standby>>,
    /// The number of entries at which dropped backends are removed.
    enough: usize,
}

/// A message names at most this many policies, and counts the others.
const NAMED: usize = 20;

/// Dropped backends are not removed below this number of entries.
const FEW: usize = 64;

impl Report {
    pub(super) fn new(store: String) -> Self {
        let backends = Backends {
            standbys: Vec::new(),
            enough: FEW,
        };
        Self {
            store,
            backends: Mutex::new(backends),
        }
    }

    /// Returns the name of the store in the log.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Adds policies that are decided without the store while it is away.
    pub(super) fn add(&self, standby: Weak<Standby>) {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        if backends.standbys.len() >= backends.enough {
            backends.standbys.retain(|kept| kept.strong_count() > 0);
            backends.enough = FEW.max(2 * backends.standbys.len());
        }
        backends.standbys.push(standby);
    }

    pub(super) fn report_away(&self, error: &StoreError) {
        observe(&StoreEvent::Away {
            store: &self.store,
            error,
            local: self.names(OnStoreFailure::Local),
            allow: self.names(OnStoreFailure::Allow),
            refuse: self.names(OnStoreFailure::Refuse),
        });
    }

    pub(super) fn report_first_failure(&self, error: &StoreError) {
        observe(&StoreEvent::FirstFailure {
            store: &self.store,
            error,
        });
    }

    pub(super) fn report_back(&self, away: Duration, decided: u64) {
        observe(&StoreEvent::Back {
            store: &self.store,
            away,
            decided,
        });
    }

    pub(super) fn cannot_decide_on_some(&self, error: &StoreError) {
        observe(&StoreEvent::FailedForSome {
            store: &self.store,
            error,
        });
    }

    /// Returns the names of all policies that do this while the store is away, or `None` if there is none.
    fn names(&self, what: OnStoreFailure) -> Option<String> {
        let mut names = BTreeSet::new();
        {
            let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
            for standby in backends.standbys.iter().filter_map(Weak::upgrade) {
                let policies = standby.when_away().filter(|(_, does)| *does == what);
                names.extend(policies.map(|(name, _)| name.to_owned()));
            }
        }
        let mut shown: Vec<&str> = names.iter().map(String::as_str).take(NAMED).collect();
        let more = names.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("{more} more"));
        shown.extend(more.as_deref());
        (!shown.is_empty()).then(|| shown.join(", "))
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::policy::Policy;

    fn standby(names: impl IntoIterator<Item = String>) -> Arc<Standby> {
        let policies = names.into_iter().map(|name| {
            Policy::new(name, FixedWindow::per_day(1)).on_store_failure(OnStoreFailure::Allow)
        });
        let policies: Vec<_> = policies.collect();
        Arc::new(Standby::new(&policies, None, None))
    }

    #[test]
    fn policies_are_named_once_however_many_backends_have_them_and_as_long_as_one_has() {
        let report = Report::new(String::new());
        let kept = standby(["b".into(), "a".into()]);
        report.add(Arc::downgrade(&kept));
        for number in 0..10_000 {
            let gone = standby(["a".into(), format!("gone {number}")]);
            report.add(Arc::downgrade(&gone));
        }
        assert_eq!(report.names(OnStoreFailure::Allow).unwrap(), "a, b");
        assert_eq!(report.names(OnStoreFailure::Local), None);
        assert!(report.backends.lock().unwrap().standbys.len() <= FEW);
    }

    #[test]
    fn a_report_names_some_of_many_policies_and_counts_the_others() {
        let report = Report::new(String::new());
        let many = standby((10..40).map(|number| number.to_string()));
        report.add(Arc::downgrade(&many));
        let names = report.names(OnStoreFailure::Allow).unwrap();
        assert!(
            names.starts_with("10, 11, ") && names.ends_with("28, 29, 10 more"),
            "{names}"
        );
    }
}

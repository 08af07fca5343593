//! Wakes requests that wait for a slot of a [`Concurrency`](crate::Concurrency) when another request gives one back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ahash::RandomState;
use smallvec::SmallVec;

use crate::key::Key;
use crate::store::Charge;

/// Shared by all limiters of the process, since a reload builds others over the same store. A request that is
/// woken by a slot of another limiter asks once in vain.
static WATCHES: LazyLock<Watches> = LazyLock::new(Watches::default);

#[derive(Default)]
struct Watches {
    /// The number of entries, so that a slot is given back without a lock where no request waits.
    watches: AtomicUsize,
    by_key: Mutex<SignalsByKey>,
}

type SignalsByKey = HashMap<Key, SmallVec<[Arc<Signal>; 1]>, RandomState>;

#[derive(Default)]
struct Signal(Mutex<Wakeup>);

#[derive(Default)]
struct Wakeup {
    is_freed: bool,
    waker: Option<Waker>,
}

/// Watches for slots of some keys that are given back, until it is dropped.
///
/// A request begins to watch before it asks for a slot, so it does not miss a slot that is given back while
/// the answer is on its way.
pub(crate) struct Vacancy {
    keys: SmallVec<[Key; 1]>,
    signal: Arc<Signal>,
}

impl Vacancy {
    /// Watches for the slots that these charges ask for. Returns `None` if they ask for none.
    pub(crate) fn watch(charges: &[Charge]) -> Option<Self> {
        let mut keys = SmallVec::new();
        for charge in charges.iter().filter(|charge| charge.slot.is_some()) {
            if !keys.contains(&charge.key) {
                keys.push(charge.key);
            }
        }
        if keys.is_empty() {
            return None;
        }
        let signal = Arc::<Signal>::default();
        let mut by_key = WATCHES.by_key();
        for key in &keys {
            by_key.entry(*key).or_default().push(Arc::clone(&signal));
        }
        drop(by_key);
        WATCHES.watches.fetch_add(1, Ordering::SeqCst);
        // Ordered before the question of this request: see `slots_are_freed`.
        fence(Ordering::SeqCst);
        Some(Self { keys, signal })
    }

    /// Forgets the slots that were given back until now.
    pub(crate) fn look_ahead(&self) {
        self.signal.state().is_freed = false;
        fence(Ordering::SeqCst);
    }

    /// Returns `Ready` if a slot was given back since `look_ahead`. Otherwise the next one wakes the task.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.signal.state();
        if state.is_freed {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Vacancy {
    fn drop(&mut self) {
        let mut by_key = WATCHES.by_key();
        for key in &self.keys {
            if let Some(signals) = by_key.get_mut(key) {
                signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
                if signals.is_empty() {
                    by_key.remove(key);
                }
            }
        }
        drop(by_key);
        WATCHES.watches.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Wakes the requests that watch for the slots of these charges, which the store has taken back.
pub(crate) fn slots_are_freed(charges: &[Charge]) {
    // Either the request that watches sees the slot when it asks, or this thread sees the request.
    fence(Ordering::SeqCst);
    if WATCHES.watches.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut woken = SmallVec::<[Waker; 4]>::new();
    let by_key = WATCHES.by_key();
    for charge in charges {
        for signal in by_key.get(&charge.key).into_iter().flatten() {
            let mut state = signal.state();
            state.is_freed = true;
            woken.extend(state.waker.take());
        }
    }
    drop(by_key);
    woken.into_iter().for_each(Waker::wake);
}

impl Watches {
    fn by_key(&self) -> MutexGuard<'_, SignalsByKey> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signal {
    fn state(&self) -> MutexGuard<'_, Wakeup> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IntoKey;
    use crate::store::Slot;

    fn charge(key: &str) -> Charge {
        Charge::new(0, key.into_key(), 1).holding(Slot::unique())
    }

    fn is_freed(vacancy: &Vacancy) -> bool {
        vacancy.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn each_request_that_watches_a_key_sees_its_slots_and_no_others() {
        let key = charge("vacancy one");
        let other = charge("vacancy two");
        let [one, two] = [(); 2].map(|()| Vacancy::watch(&[key]).unwrap());
        let both = Vacancy::watch(&[key, other]).unwrap();
        slots_are_freed(&[other]);
        assert!(!is_freed(&one) && !is_freed(&two) && is_freed(&both));
        both.look_ahead();
        assert!(!is_freed(&both));
        slots_are_freed(&[key]);
        assert!(is_freed(&one) && is_freed(&two) && is_freed(&both));
    }

    #[test]
    fn a_request_that_has_gone_leaves_nothing_behind() {
        let key = charge("vacancy three");
        let one = Vacancy::watch(&[key, key]).unwrap();
        let two = Vacancy::watch(&[key]).unwrap();
        drop(one);
        assert_eq!(WATCHES.by_key()[&key.key].len(), 1);
        drop(two);
        assert!(!WATCHES.by_key().contains_key(&key.key));
        let rate = Charge::new(0, "vacancy four".into_key(), 1);
        assert!(Vacancy::watch(&[rate]).is_none());
    }
}

//! The laws of items: they compare and swap, and they expire.
//!
//! Both are tested through a store over the items. [`Watched`] stands between the two: it sees whenever a change
//! has read its items, and can let a rival in before the change is written.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{Broken, Stage};
use tower_ratelimit_core::__internal::{Meanwhile, answered};
use tower_ratelimit_core::algorithm::AnchoredWindow;
use tower_ratelimit_core::error::StoreError;
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::policy::Policy;
use tower_ratelimit_core::store::{
    Backend, Change, Changed, Charge, Items, Reply, SharedBackend, SharedStore, Store,
};

type AnyItems = Arc<dyn Items>;

pub(super) const OVERLAP: &str = "an item that has changed since it was read is read again";

/// How long to wait for the rival. A place that locks its items lets no rival in; a place that compares and
/// swaps lets it in at once.
const PATIENCE: Duration = Duration::from_millis(250);

/// Lets a rival in between the read and the write of a request: to a new item, to a known item, and to the last
/// of several items.
pub(super) async fn nothing_is_lost<S: Store>(
    stage: &Stage<S>,
    items: &AnyItems,
) -> Result<(), Broken> {
    let one = stage.keys("overlap", 1);
    overlap(items, &one, [2].into()).await?;
    overlap(items, &one, [4].into()).await?;
    if items.at_once() > 1 {
        let two = stage.keys("overlap", 2);
        overlap(items, &two, [1, 2].into()).await?;
    }
    Ok(())
}

/// A request with all keys and, between its read and its write, a rival with the last key. `right` is how much
/// each key has to have used afterwards.
async fn overlap(items: &AnyItems, keys: &[Key], right: Vec<u32>) -> Result<(), Broken> {
    let failed = |error| Broken::failed(OVERLAP, &error);
    let ask = |(policy, key): (usize, &Key), cost| Charge::new(policy, *key, cost);
    let all: Vec<_> = keys.iter().enumerate().map(|key| ask(key, 1)).collect();
    let asks: Vec<_> = keys.iter().enumerate().map(|key| ask(key, 0)).collect();
    let last = [all[all.len() - 1]];
    let rival = Arc::new(open(OVERLAP, items, all.len())?);
    let rivals = Arc::new(Mutex::new(None));
    let meanwhile = {
        let runtime = Handle::current();
        let (rival, rivals) = (Arc::clone(&rival), Arc::clone(&rivals));
        let is_first = AtomicBool::new(true);
        move |_: &[bool]| {
            if is_first.swap(false, Ordering::SeqCst) {
                let task = come_between(&runtime, Arc::clone(&rival), last);
                *rivals.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
            }
        }
    };
    let watched: AnyItems = Arc::new(Watched {
        items: Arc::clone(items),
        meanwhile: Arc::new(meanwhile),
    });
    let backend = open(OVERLAP, &watched, all.len())?;
    let _ = backend.decide(&all).wait().await.map_err(failed)?;
    let task = rivals.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(task) = task else {
        return Err(Broken::new(OVERLAP, "the change was not applied"));
    };
    match task.await {
        Ok(answer) => answer.map_err(failed)?,
        Err(panic) => return Err(Broken::new(OVERLAP, format_args!("it panicked: {panic}"))),
    }
    let outcomes = answered(&asks, rival.peek(&asks).wait().await).map_err(failed)?;
    let used: Vec<u32> = outcomes.iter().map(|(_, outcome)| outcome.used()).collect();
    if used != right {
        return Err(Broken::new(
            OVERLAP,
            format_args!(
                "after two requests that overlapped, {used:?} is used in place of {right:?}"
            ),
        ));
    }
    Ok(())
}

/// Charges on another thread, and waits up to [`PATIENCE`] until that is done.
fn come_between(
    runtime: &Handle,
    rival: Arc<SharedBackend<AnyItems>>,
    charge: [Charge; 1],
) -> JoinHandle<Result<(), StoreError>> {
    let (done, is_done) = mpsc::channel();
    let its_runtime = runtime.clone();
    let task = runtime.spawn_blocking(move || {
        let answer = its_runtime.block_on(rival.decide(&charge).wait());
        // The receiver is gone if it has stopped waiting.
        let _ = done.send(());
        answer.map(drop)
    });
    let _ = is_done.recv_timeout(PATIENCE);
    task
}

pub(super) const EXPIRY: &str = "an item is forgotten once it has expired";

/// How many times to look, 50 ms apart: for ten seconds.
const LOOKS: usize = 200;

pub(super) async fn the_expired_is_forgotten<S: Store>(
    stage: &Stage<S>,
    items: &AnyItems,
) -> Result<(), Broken> {
    let failed = |error| Broken::failed(EXPIRY, &error);
    let found = Arc::new(AtomicUsize::new(0));
    let meanwhile = {
        let found = Arc::clone(&found);
        move |items: &[bool]| {
            let there = items.iter().filter(|is_there| **is_there).count();
            found.store(there, Ordering::SeqCst);
        }
    };
    let watched: AnyItems = Arc::new(Watched {
        items: Arc::clone(items),
        meanwhile: Arc::new(meanwhile),
    });
    let window = AnchoredWindow::new(1, Duration::from_millis(100));
    let window = window.map_err(|error| Broken::refused(EXPIRY, &error))?;
    let backend = SharedStore::new(watched).open(&[Policy::new("conformance-expiry", window)]);
    let backend = backend.map_err(|error| Broken::refused(EXPIRY, &error))?;
    for key in stage.keys("expiry", 1) {
        let _ = backend
            .decide(&[Charge::new(0, key, 1)])
            .wait()
            .await
            .map_err(failed)?;
        let mut looks = 0;
        while looks < LOOKS {
            stage.real_time_passes(Duration::from_millis(50)).await;
            let _ = backend
                .peek(&[Charge::new(0, key, 0)])
                .wait()
                .await
                .map_err(failed)?;
            if found.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            looks += 1;
        }
    }
    let seen = "an item with a time to live of 100 ms is still there after ten seconds";
    Err(Broken::new(EXPIRY, seen))
}

fn open(
    law: &'static str,
    items: &AnyItems,
    policies: usize,
) -> Result<SharedBackend<AnyItems>, Broken> {
    let policies: Vec<_> = (0..policies)
        .map(|place| Policy::new(format!("conformance-{place}"), AnchoredWindow::per_day(9)))
        .collect();
    let store = SharedStore::new(Arc::clone(items));
    store
        .open(&policies)
        .map_err(|error| Broken::refused(law, &error))
}

/// Items, and a function to call whenever a change has read them.
struct Watched {
    items: AnyItems,
    meanwhile: Meanwhile,
}

impl Items for Watched {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        self.items
            .update(change.meanwhile(Arc::clone(&self.meanwhile)))
    }

    fn at_once(&self) -> usize {
        self.items.at_once()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

//! Items that a test can take away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::store::{Change, Changed, Items, Reply};
use tower_ratelimit::{ManualClock, StoreError};

use crate::support::items::Map;

/// Answers later, as over a network. Clones share the items.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    pub(crate) map: Map,
    does: Arc<AtomicU8>,
    calls: Arc<AtomicUsize>,
}

const ANSWER: u8 = 0;
const FAIL: u8 = 1;
const HANG: u8 = 2;
const SUPPORT_NOTHING: u8 = 3;
const REFUSE_WRITES: u8 = 4;
const HANG_AT_WRITES: u8 = 5;

impl Switch {
    pub(crate) fn new() -> Self {
        Self {
            map: Map::new(&ManualClock::new()),
            does: Arc::default(),
            calls: Arc::default(),
        }
    }

    pub(crate) fn answer(&self) {
        self.does.store(ANSWER, Ordering::SeqCst);
    }

    pub(crate) fn fail(&self) {
        self.does.store(FAIL, Ordering::SeqCst);
    }

    pub(crate) fn hang(&self) {
        self.does.store(HANG, Ordering::SeqCst);
    }

    pub(crate) fn support_nothing(&self) {
        self.does.store(SUPPORT_NOTHING, Ordering::SeqCst);
    }

    pub(crate) fn refuse_writes(&self) {
        self.does.store(REFUSE_WRITES, Ordering::SeqCst);
    }

    pub(crate) fn hang_at_writes(&self) {
        self.does.store(HANG_AT_WRITES, Ordering::SeqCst);
    }

    /// Returns the number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Items for Switch {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let items = self.clone();
        Reply::later(async move {
            items.calls.fetch_add(1, Ordering::SeqCst);
            let does = items.does.load(Ordering::SeqCst);
            match does {
                ANSWER => items.map.update(change).wait().await,
                REFUSE_WRITES | HANG_AT_WRITES => {
                    let changed = items.map.fork().update(change).wait().await?;
                    if changed.writes().is_empty() {
                        return Ok(changed);
                    }
                    if does == HANG_AT_WRITES {
                        std::future::pending::<()>().await;
                    }
                    Err(StoreError::new(StoreErrorKind::Unavailable).because("of the database"))
                }
                FAIL => Err(StoreError::new(StoreErrorKind::Unavailable)),
                SUPPORT_NOTHING => Err(StoreError::new(StoreErrorKind::Unsupported)),
                _ => std::future::pending().await,
            }
        })
    }
}

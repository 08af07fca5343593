//! The state of a router, and the one task that sends events to all viewers once a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tower_ratelimit::observe::Snapshot;

use super::access::Access;
use super::handle::{End, Handle};
use super::history::{History, unix_second};
use super::operator::{ShownLimit, levels, limits};
use super::viewers::{Events, NoRoom, Viewers};

/// The time between two events.
const EACH: Duration = Duration::from_secs(1);

/// The state that the routes share.
#[derive(Debug)]
pub(super) struct RouterState {
    pub(super) handle: Handle,
    pub(super) access: Access,
    viewers: Viewers,
    history: Mutex<History>,
    is_running: AtomicBool,
}

/// A snapshot, and what else the page shows.
#[derive(Serialize)]
struct PageData<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    limits: Vec<ShownLimit>,
    /// The levels of trees, each with the policy above it.
    levels: BTreeMap<String, String>,
    writable: bool,
}

impl RouterState {
    pub(super) fn new(handle: Handle, access: Access) -> Arc<Self> {
        let state = Arc::new(Self {
            handle,
            access,
            viewers: Viewers::default(),
            history: Mutex::default(),
            is_running: AtomicBool::new(false),
        });
        // Without a runtime yet, the first request starts it.
        state.begin();
        state
    }

    /// Starts the task, unless it runs.
    pub(super) fn begin(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.is_running.swap(true, Ordering::Relaxed)
        {
            runtime.spawn(send_events(Arc::downgrade(self), self.handle.take_end()));
        }
    }

    /// Returns the newest snapshot as JSON.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        self.json(&self.handle.monitor().snapshot())
    }

    fn json(&self, snapshot: &Snapshot) -> Vec<u8> {
        json(&PageData {
            snapshot,
            limits: limits(&self.handle),
            levels: levels(&self.handle),
            writable: self.access.is_writable(),
        })
    }

    pub(super) fn history(&self) -> Vec<u8> {
        json(&*self.past())
    }

    pub(super) fn join(&self) -> Result<Events, NoRoom> {
        self.viewers.join(|| event(&self.snapshot()))
    }

    fn past(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        let snapshot = self.handle.monitor().snapshot();
        if self.viewers.are_any() {
            self.viewers.send(&event(&self.json(&snapshot)));
        }
        self.past().note(unix_second(snapshot.at), snapshot);
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // It can only fail for maps whose keys are not text, and there are none.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Returns a server-sent event. JSON has no line break outside of a text, and inside it is escaped.
fn event(data: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(data.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(data);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// Sends events to all viewers until the end, or until the router is dropped.
async fn send_events(state: Weak<RouterState>, mut end: End) {
    let mut next = Instant::now();
    loop {
        if timeout_at(next, &mut end).await.is_ok() {
            if let Some(state) = state.upgrade() {
                state.viewers.end();
            }
            return;
        }
        let Some(state) = state.upgrade() else {
            return;
        };
        state.tick();
        // A late tick moves the next ones: no two come at once.
        next = (next + EACH).max(Instant::now());
    }
}

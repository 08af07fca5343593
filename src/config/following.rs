//! When a file is read again.
//!
//! No list of file events is right for all editors, mounts and systems. So an event on the directory means "maybe", a poll
//! does not need events, and the bytes decide.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::digest::Sha;

/// A file has to have the same bytes for so long before it is read: an editor may write it in pieces.
const QUIET: Duration = Duration::from_millis(150);

/// A file that never keeps still is read after this time.
const LONGEST_QUIET: Duration = Duration::from_secs(1);

/// A file that is read again when it changes. All of it blocks.
pub(super) trait Followed: Send + Sync + 'static {
    /// The bytes of the file, by their digest; `None` if it is away or cannot be read at this moment.
    fn digest(&self) -> Option<Sha>;

    /// Whether these are other bytes than those that were read last.
    fn is_new(&self, sha256: &Sha) -> bool;

    /// Reads the file. It keeps its error itself.
    fn read_again(&self);
}

/// Reads the file if it has new bytes that keep still.
pub(super) async fn look(file: Arc<impl Followed>) {
    let deadline = Instant::now() + LONGEST_QUIET;
    let mut before = digest_of(&file).await;
    loop {
        match before {
            Some(seen) if file.is_new(&seen) => {}
            _ => return,
        }
        sleep(QUIET).await;
        let now = digest_of(&file).await;
        if now == before || Instant::now() >= deadline {
            break;
        }
        before = now;
    }
    let read = tokio::task::spawn_blocking(move || file.read_again());
    let _ = read.await;
}

async fn digest_of(file: &Arc<impl Followed>) -> Option<Sha> {
    let file = Arc::clone(file);
    let read = tokio::task::spawn_blocking(move || file.digest());
    read.await.ok().flatten()
}

/// The directories in which something may happen to a file.
#[derive(Debug)]
pub(super) struct Directories(Mutex<Option<RecommendedWatcher>>);

impl Directories {
    /// None yet. An event in one of them tells this; none does where the system cannot watch.
    pub(super) fn telling(maybe: Arc<Notify>) -> Self {
        // The kind of an event says nothing for sure: each editor and each mount has its own.
        let watcher = notify::recommended_watcher(move |_| maybe.notify_one());
        Self(Mutex::new(watcher.ok()))
    }

    /// Watches the directory of this file, and that of the file to which a link points.
    pub(super) fn of(&self, path: &Path) {
        let mut watcher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(watcher) = watcher.as_mut() else {
            return;
        };
        let near = parent(path);
        // The poll finds what these do not.
        let _ = watcher.watch(&near, RecursiveMode::NonRecursive);
        if let Ok(far) = path.canonicalize().map(|path| parent(&path))
            && far != near
        {
            let _ = watcher.watch(&far, RecursiveMode::NonRecursive);
        }
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

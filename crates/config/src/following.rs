//! Reads a file again when it changes.
//!
//! No list of file events is right for all editors, mounts and systems. So an event on the directory means "maybe", a poll
//! does not need events, and the bytes decide.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::digest::Sha;

/// How long a file has to have the same bytes before it is read, since an editor may write it in pieces. Two
/// looks at a file are at least this far apart, since its directory may be a busy one.
pub(super) const QUIET: Duration = Duration::from_millis(150);

/// A file that changes all the time is read after this time.
const LONGEST_QUIET: Duration = Duration::from_secs(1);

/// A file that is read again when it changes. All of its methods block.
pub(super) trait Followed: Send + Sync + 'static {
    /// Returns the digest of the file's bytes, or `None` if it is missing or cannot be read at this moment.
    fn digest(&self) -> Option<Sha>;

    /// Returns whether these bytes differ from those that were read last.
    fn is_new(&self, sha256: &Sha) -> bool;

    /// Reads the file. It keeps its own error.
    fn read_again(&self);
}

/// Reads the file if it has new bytes that do not change any more.
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

/// Watches the directories of files.
#[derive(Debug)]
pub(super) struct Directories(Mutex<Option<Watching>>);

#[derive(Debug)]
struct Watching {
    watcher: RecommendedWatcher,
    /// For each file that is a link, the directory of the file to which it points.
    far: HashMap<PathBuf, PathBuf>,
}

impl Directories {
    /// Watches no directory yet. An event in one of them notifies `maybe`; where the system cannot watch,
    /// there are none.
    pub(super) fn telling(maybe: Arc<Notify>) -> Self {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if may_be_a_change(&event) {
                maybe.notify_one();
            }
        });
        let watching = watcher.map(|watcher| Watching {
            watcher,
            far: HashMap::new(),
        });
        Self(Mutex::new(watching.ok()))
    }

    /// Watches the directory of this file, and that of the file to which a link points, as they are now: a
    /// link may have been replaced, and a directory created again. It blocks.
    pub(super) fn of(&self, path: &Path) {
        let mut watching = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Watching { watcher, far }) = watching.as_mut() else {
            return;
        };
        let near = parent(path);
        let target = path.canonicalize().map(|path| parent(&path));
        let target = target.ok().filter(|target| *target != near);
        if let Some(target) = target.clone()
            && let Some(before) = far.insert(path.to_owned(), target)
            && !far.values().any(|target| *target == before)
        {
            // Before the others are watched, since two paths may be one directory.
            let _ = watcher.unwatch(&before);
        }
        // The poll finds changes for which there is no event.
        let _ = watcher.watch(&near, RecursiveMode::NonRecursive);
        if let Some(target) = target {
            let _ = watcher.watch(&target, RecursiveMode::NonRecursive);
        }
    }
}

/// The kind of an event is not reliable: each editor and each mount has its own. But reading the file is an
/// event too, and must not be a reason to read it again.
fn may_be_a_change(event: &notify::Result<Event>) -> bool {
    let Ok(event) = event else {
        return true;
    };
    match event.kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use notify::event::{CreateKind, ModifyKind, RemoveKind};
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    use std::{env, fs, process};

    /// A file in memory, which changes at each of so many looks.
    struct Written {
        changes: u8,
        looks: AtomicU8,
        reads: AtomicUsize,
    }

    impl Followed for Written {
        fn digest(&self) -> Option<Sha> {
            let looks = self.looks.fetch_add(1, Ordering::Relaxed);
            Some([looks.min(self.changes); 32])
        }

        fn is_new(&self, _: &Sha) -> bool {
            true
        }

        fn read_again(&self) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_once_it_is_quiet_or_after_a_second_of_changes() {
        for (changes, read_after) in [(0, 150), (1, 300), (3, 600), (u8::MAX, 1_050)] {
            let file = Arc::new(Written {
                changes,
                looks: AtomicU8::new(0),
                reads: AtomicUsize::new(0),
            });
            let begun = Instant::now();
            look(Arc::clone(&file)).await;
            let took = begun.elapsed();
            assert_eq!(took, Duration::from_millis(read_after), "{changes} changes");
            assert_eq!(file.reads.load(Ordering::Relaxed), 1, "{changes} changes");
        }
    }

    #[test]
    fn all_but_a_look_may_be_a_change() {
        for (kind, expected) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Read)),
                false,
            ),
            (EventKind::Access(AccessKind::Read), false),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Write)),
                true,
            ),
            (EventKind::Any, true),
            (EventKind::Other, true),
            (EventKind::Create(CreateKind::Any), true),
            (EventKind::Modify(ModifyKind::Any), true),
            (EventKind::Remove(RemoveKind::Any), true),
        ] {
            assert_eq!(may_be_a_change(&Ok(Event::new(kind))), expected, "{kind:?}");
        }
        assert!(may_be_a_change(&Err(notify::Error::generic("lost"))));
    }

    /// Once, each look at the file was an event of its directory, which led to the next look, without an end.
    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_file_is_not_read_because_it_was_read() {
        let folder = env::temp_dir().join(format!("following-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("limits.toml");
        let write = |limit: u64| {
            let text = format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
            fs::write(&path, text).unwrap();
        };
        write(1);
        let (tell, events) = std::sync::mpsc::channel::<notify::Result<Event>>();
        let mut notifier = notify::recommended_watcher(tell).unwrap();
        notifier
            .watch(&folder, RecursiveMode::NonRecursive)
            .unwrap();
        let config = Config::read(&path).unwrap();
        // The test sees changes by events alone.
        let watched = config.watch_every(Duration::from_secs(3_600)).unwrap();
        for version in 2..=4 {
            write(version);
            while watched.status().version() < version {
                tokio::task::yield_now().await;
            }
        }
        drop(watched);
        fs::remove_dir_all(&folder).unwrap();
        let opened = events.try_iter().filter(|event| {
            let is_open =
                |event: &Event| matches!(event.kind, EventKind::Access(AccessKind::Open(_)));
            event.as_ref().is_ok_and(is_open)
        });
        let opened = opened.count();
        assert!((7..60).contains(&opened), "opened {opened} times");
    }
}

//! Reload: the file is read again when it may have changed, and one swap puts it into force.
//!
//! No list of file events is right for all editors, mounts and systems. So an event on the directory means "maybe", a poll
//! does not need events, and the bytes decide.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::Config;
use super::departed::Departed;
use super::mistake::{FileError, Mistake};
use super::reading::ConfigBuilder;
use super::settings::Settings;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::ConfigError;
use crate::limiter::Limiter;
use crate::middleware::{RateLimitLayer, Swap};
use crate::observe::{ConfigStats, configuration_changed};
use crate::policy::Modes;
use crate::store::Ledger;

const REFUSED: Diagnostic = Diagnostic::new(
    "TRL023",
    "",
    "a changed file of limits has a mistake, and the limits before the change stay in force",
    "mend the file; it is read again when it changes",
);

/// A file has to have the same bytes for so long before it is read: an editor may write it in pieces.
const QUIET: Duration = Duration::from_millis(150);

/// A file that never keeps still is read after this time.
const LONGEST_QUIET: Duration = Duration::from_secs(1);

/// The SHA-256 of a file.
pub(super) type Sha = [u8; 32];

/// A layer whose limits follow a file; see [`Config::watch`].
///
/// Clones are handles of the same layer. The file is watched until all handles are dropped; the layer then keeps its
/// limits.
#[derive(Clone, Debug)]
pub struct Watched {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    builder: ConfigBuilder,
    path: PathBuf,
    layer: RateLimitLayer,
    swap: Swap,
    state: Mutex<State>,
    reloading: Mutex<()>,
    /// Dropped with the handles; `None` where the system cannot watch.
    _watcher: Option<RecommendedWatcher>,
}

#[derive(Debug)]
struct State {
    /// The configuration in force.
    config: Config,
    status: Status,
    /// The file that was refused last.
    refused: Option<Sha>,
    departed: Departed,
}

/// What a [`Watched`] layer has in force.
#[derive(Clone, Debug)]
pub struct Status {
    version: u64,
    sha256: Sha,
    since: SystemTime,
    error: Option<FileError>,
}

impl Status {
    /// Returns the number of the configuration in force, counted from 1 at start-up.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the SHA-256 of the file in force, as 64 hexadecimal digits.
    pub fn sha256(&self) -> String {
        hexadecimal(&self.sha256)
    }

    /// Returns since when it is in force.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns why the newest file is not in force; `None` if it is.
    pub fn error(&self) -> Option<&FileError> {
        self.error.as_ref()
    }

    /// What snapshots tell of it.
    fn stats(&self) -> ConfigStats {
        ConfigStats {
            version: self.version,
            sha256: self.sha256(),
            since: self.since,
            error: self.error.as_ref().map(ToString::to_string),
        }
    }
}

impl Config {
    /// Makes a layer whose limits follow the file: when the file changes, it is read, checked and built, and then put into
    /// force at once, for requests that come from then on. A file with a mistake changes nothing.
    ///
    /// - The directory of the file is watched, and the file is read every 5 seconds too, because network file systems tell
    ///   no events. Bytes are compared.
    /// - A file has to keep still for 150 ms before it is read, and at most for a second. A change has reached all requests
    ///   2 seconds after it with events, and 6 seconds after it without.
    /// - A mistake is logged once for each content (`TRL023`), and [`Watched::status`] has it.
    /// - The store, the secret, and the tables `adapt` and `concurrency` cannot change without a restart: a file that
    ///   changes them is refused.
    ///
    /// Call it in a tokio runtime with its timer. Without a runtime the file is read by [`Watched::reload`] alone.
    ///
    /// # Errors
    ///
    /// When the configuration is no file, and when its store cannot hold a policy exactly.
    pub fn watch(&self) -> Result<Watched, ConfigError> {
        self.watch_every(Duration::from_secs(5))
    }

    /// The same, with another time between two reads of a file that tells no events; at least 100 ms.
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn watch_every(&self, every: Duration) -> Result<Watched, ConfigError> {
        let Some(origin) = &self.origin else {
            let remedy = "read the configuration from a file, `Config::read(path)`";
            return Err(ConfigError::new("watch", "a text", remedy));
        };
        let (layer, swap) = self.layer()?.replaceable();
        let status = Status {
            version: 1,
            sha256: origin.sha256,
            since: SystemTime::now(),
            error: None,
        };
        swap.tell(status.stats());
        let maybe = Arc::new(Notify::new());
        let watcher = watcher(&origin.path, Arc::clone(&maybe));
        let shared = Arc::new(Shared {
            builder: origin.builder.clone(),
            path: origin.path.clone(),
            layer,
            swap,
            state: Mutex::new(State {
                config: self.clone(),
                status,
                refused: None,
                departed: Departed::default(),
            }),
            reloading: Mutex::default(),
            _watcher: watcher,
        });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let every = every.max(Duration::from_millis(100));
            runtime.spawn(follow(Arc::downgrade(&shared), maybe, every));
        }
        Ok(Watched { shared })
    }
}

impl Watched {
    /// Returns the layer. All layers of the handle follow the file together.
    pub fn layer(&self) -> RateLimitLayer {
        self.shared.layer.clone()
    }

    /// Returns the limiter of the configuration in force, which shares its state with the layer. It does not follow the
    /// file: ask for it anew for each decision.
    ///
    /// A key has to be the one that the policy's extractor makes: see [`RateLimitLayer::limiter`].
    pub fn limiter(&self) -> Limiter<dyn Ledger> {
        self.shared.layer.limiter()
    }

    /// Returns the switches of the policies' modes. What is set there holds through reloads.
    pub fn modes(&self) -> Modes {
        self.shared.layer.modes()
    }

    /// Returns what is in force, and the error if the newest file is not.
    pub fn status(&self) -> Status {
        self.shared.state().status.clone()
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Config {
        self.shared.state().config.clone()
    }

    /// Reads the file now, and puts it into force. This reads from the disk, and blocks meanwhile.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or has a mistake. Nothing has changed then.
    pub fn reload(&self) -> Result<Status, FileError> {
        self.shared.reload()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of the file, by their digest; `None` if it is away or cannot be read at this moment.
    fn digest(&self) -> Option<Sha> {
        let text = self.builder.text_of(&self.path).ok()?;
        Some(digest(&text))
    }

    /// Whether the file has other bytes than those that were seen last.
    fn is_new(&self, sha256: &Sha) -> bool {
        let state = self.state();
        if state.status.sha256 == *sha256 {
            // A bad file, or none, was there meanwhile.
            state.status.error.is_some()
        } else {
            state.refused != Some(*sha256)
        }
    }

    fn reload(&self) -> Result<Status, FileError> {
        // One reload at a time: the last to begin has the newest file.
        let _one = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = self.state().config.clone();
        let (sha256, read) = self.builder.read_with_digest(&self.path);
        let next = read
            .and_then(|next| changes_no_more_than_it_may(&now, next))
            // State is found by the name of its policy, in the store that is in use.
            .map(|next| next.over_the_store_of(&now));
        let built = next.and_then(|next| match next.layer() {
            Ok(layer) => Ok((next, layer)),
            Err(error) => Err(next.refused(&error)),
        });
        let mut state = self.state();
        let reloaded = match built {
            Ok((next, layer)) => {
                state.refused = None;
                state.status.error = None;
                if let Some(sha256) = sha256
                    && sha256 != state.status.sha256
                {
                    // What a policy has used is there if it comes back.
                    let before = self.swap.put(&layer);
                    let (was, is) = (&now.settings.states, &next.settings.states);
                    let at = std::time::Instant::now();
                    state.departed.leave(was, is, &before, at);
                    state.status.version += 1;
                    state.status.sha256 = sha256;
                    state.status.since = SystemTime::now();
                    state.config = next;
                    configuration_changed(state.status.version, &state.status.sha256());
                }
                Ok(state.status.clone())
            }
            Err(error) => {
                if let Some(sha256) = sha256
                    && state.refused != Some(sha256)
                {
                    warn_once_of(&REFUSED, format!("{}: {error}", hexadecimal(&sha256[..4])));
                }
                state.refused = sha256;
                state.status.error = Some(error.clone());
                Err(error)
            }
        };
        self.swap.tell(state.status.stats());
        reloaded
    }
}

/// What cannot change while a layer is in use: the store, the secret that hashes keys, and what is learnt from the load.
fn changes_no_more_than_it_may(now: &Config, next: Config) -> Result<Config, FileError> {
    let mistakes: Vec<Mistake> = Settings::differences(&now.settings, &next.settings)
        .map(|(path, span)| {
            let message = "it cannot change without a restart; write what it was, or restart";
            Mistake::new(&next.source, span, path.to_owned(), message.to_owned())
        })
        .collect();
    if mistakes.is_empty() {
        Ok(next)
    } else {
        Err(FileError::new(mistakes))
    }
}

pub(super) fn digest(text: &str) -> Sha {
    Sha256::digest(text.as_bytes()).into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Text takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Tells of whatever happens in the directory of a file, and in that of the file to which a link points.
fn watcher(path: &Path, maybe: Arc<Notify>) -> Option<RecommendedWatcher> {
    // The kind of an event says nothing for sure: each editor and each mount has its own.
    let mut watcher = notify::recommended_watcher(move |_| maybe.notify_one()).ok()?;
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let near = parent(path);
    let far = path.canonicalize().map(|path| parent(&path));
    let is_watched = watcher.watch(&near, RecursiveMode::NonRecursive).is_ok();
    if let Ok(far) = far
        && far != near
    {
        // The poll finds what this does not.
        let _ = watcher.watch(&far, RecursiveMode::NonRecursive);
    }
    is_watched.then_some(watcher)
}

/// Follows the file until all handles are dropped.
async fn follow(shared: Weak<Shared>, maybe: Arc<Notify>, every: Duration) {
    loop {
        let next = Instant::now() + every;
        // A tick comes as often as an event is lost.
        let _ = timeout_at(next, maybe.notified()).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.state().departed.forget(std::time::Instant::now());
        look(shared).await;
    }
}

/// Reads the file if it has new bytes that keep still.
async fn look(shared: Arc<Shared>) {
    let deadline = Instant::now() + LONGEST_QUIET;
    let mut before = digest_of(&shared).await;
    loop {
        match before {
            Some(seen) if shared.is_new(&seen) => {}
            _ => return,
        }
        sleep(QUIET).await;
        let now = digest_of(&shared).await;
        if now == before || Instant::now() >= deadline {
            break;
        }
        before = now;
    }
    // The error is in the status and in the log.
    let reloaded = tokio::task::spawn_blocking(move || drop(shared.reload()));
    let _ = reloaded.await;
}

async fn digest_of(shared: &Arc<Shared>) -> Option<Sha> {
    let shared = Arc::clone(shared);
    let read = tokio::task::spawn_blocking(move || shared.digest());
    read.await.ok().flatten()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}, sha256 {}", self.version, self.sha256())?;
        match &self.error {
            Some(error) => write!(f, "; the newest file is refused:\n{error}"),
            None => Ok(()),
        }
    }
}

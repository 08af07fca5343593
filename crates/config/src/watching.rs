//! Reload: the file is read again when it may have changed, and one swap puts it into force.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::Config;
use super::departed::Departed;
use super::digest::{Sha, digest, hexadecimal};
use super::following::{Directories, Followed, QUIET, look};
use super::log::{configuration_changed, file_is_followed, login_is_renewed, operators_are_warned};
use super::mistake::{FileError, MOST_LISTED, Mistake, Notes};
use super::reading::{ConfigBuilder, is_no_file};
use super::settings::{STATES, Settings};
use super::shadow::{ShadowFile, ShadowStatus};
use super::status::Status;
use tower_ratelimit::__internal::warn_once_in_lines;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::limiter::Limiter;
use tower_ratelimit::middleware::{RateLimitLayer, ReadJsonLayer, Swap};
use tower_ratelimit::policy::Modes;

const REFUSED: Diagnostic = Diagnostic::new(
    "TRL023",
    "",
    "a changed file of limits has a mistake, and the limits before the change stay in force",
    "mend the file; it is read again when it changes",
);

/// A layer whose limits follow a file; see [`Config::watch`].
///
/// Clones are handles of the same layer. The file is watched until all handles are dropped; the layer then keeps its
/// limits.
#[derive(Clone, Debug)]
pub struct Watched {
    file: Arc<FileInForce>,
}

#[derive(Debug)]
struct FileInForce {
    builder: ConfigBuilder,
    path: PathBuf,
    layer: RateLimitLayer,
    swap: Swap,
    reloads: Mutex<Reloads>,
    reloading: Mutex<()>,
    /// Dropped with the handles.
    directories: Directories,
}

#[derive(Debug)]
struct Reloads {
    /// The configuration in force.
    config: Config,
    status: Status,
    /// The file that was rejected last, with those of secrets.
    refused: Option<Sha>,
    departed: Departed,
    /// The previous gate. A request that still uses it does not have to drop it.
    before: Option<RateLimitLayer>,
}

impl Config {
    /// Builds a layer whose limits follow the file. When the file changes, it is read, checked and built, and
    /// then put into force at once, for requests that come from then on. A file with a mistake changes
    /// nothing.
    ///
    /// - The directory of the file is watched, and the file is also read every 5 seconds, because network
    ///   file systems have no events. So are the files that it names for secrets. Bytes are compared.
    /// - A file is read when it has not changed for 150 ms, or after a second at most. A change has reached
    ///   all requests 2 seconds after it with events, and 6 seconds after it without.
    /// - The log has the path of the file, and the place to which its links lead.
    /// - A mistake is logged once for each content (`TRL023`), and [`Watched::status`] has it.
    /// - The store, the secret, and the tables `adapt` and `concurrency` cannot change without a restart: a
    ///   file that changes them is rejected. If the file says the same of the store, and the URL in another file has another user or
    ///   password, [new connections log in by it](tower_ratelimit::store::RedisStore::renew_login). If another value there has changed,
    ///   or that of the secret, the rest of the file comes into force, and a warning asks for a restart.
    ///
    /// Call it in a tokio runtime with its timer, which has to run for as long as the file is to be followed: the task that
    /// follows it is one of that runtime. Without a runtime only [`Watched::reload`] reads the file.
    ///
    /// # Errors
    ///
    /// When the configuration is not a file that can be read again, such as a pipe, and when its store cannot
    /// hold a policy exactly.
    pub fn watch(&self) -> Result<Watched, ConfigError> {
        self.watch_every(Duration::from_secs(5))
    }

    /// Does what [`watch`](Self::watch) does, and reads the file at this interval, at least 100 ms, even without an event.
    ///
    /// # Errors
    ///
    /// See [`watch`](Self::watch).
    pub fn watch_every(&self, every: Duration) -> Result<Watched, ConfigError> {
        let Some(origin) = &self.origin else {
            let remedy = "read the configuration from a file, `Config::read(path)`";
            return Err(ConfigError::new("watch", "a text", remedy));
        };
        if is_no_file(&origin.path) {
            let path = origin.path.display().to_string();
            let remedy = "name a regular file, since a pipe cannot be read again";
            return Err(ConfigError::quoting("watch", &path, remedy));
        }
        let (layer, swap) = self.layer()?.replaceable();
        let status = Status::first(origin.sha256);
        status.show_in(&swap);
        let maybe = Arc::new(Notify::new());
        let directories = Directories::telling(Arc::clone(&maybe));
        let file = Arc::new(FileInForce {
            builder: origin.builder.clone(),
            path: origin.path.clone(),
            layer,
            swap,
            reloads: Mutex::new(Reloads {
                config: self.clone(),
                status,
                refused: None,
                departed: Departed::default(),
                before: None,
            }),
            reloading: Mutex::default(),
            directories,
        });
        file.watch_directories();
        file_is_followed(&file.path);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let every = every.max(Duration::from_millis(100));
            runtime.spawn(follow(Arc::downgrade(&file), maybe, every));
        }
        Ok(Watched { file })
    }
}

impl Watched {
    /// Returns the layer. All layers of the handle follow the file together.
    pub fn layer(&self) -> RateLimitLayer {
        self.file.layer.clone()
    }

    /// Returns the layer that reads the bodies of requests for the policies of the file that ask for a field of them, unless the
    /// others [refuse](ReadJsonLayer::unless_refused_by) the request. Put it outside of [`layer`](Self::layer). It follows the file,
    /// and is a handle too.
    pub fn read_json(&self) -> ReadJsonLayer {
        let watched = self.clone();
        let following = ReadJsonLayer::following(move || watched.config().read_json());
        following.unless_refused_by(&self.file.layer)
    }

    /// Returns the limiter of the configuration in force, which shares its state with the layer. It does not
    /// follow the file by itself: call this method for each decision, which takes some nanoseconds.
    /// [`LimitLayer::following`](tower_ratelimit::LimitLayer::following) does so for the requests of any service.
    ///
    /// ```no_run
    /// use tower_ratelimit_config::Config;
    ///
    /// # async fn check() -> Result<(), Box<dyn std::error::Error>> {
    /// let watched = Config::read("limits.toml")?.watch()?;
    /// let decision = watched.limiter().check("ann", 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A key has to be the one that the policy's extractor makes: see [`RateLimitLayer::limiter`].
    pub fn limiter(&self) -> Limiter {
        self.file.layer.limiter()
    }

    /// Returns the switches of the policies' modes. Modes that are set there hold through reloads.
    pub fn modes(&self) -> Modes {
        self.file.layer.modes()
    }

    /// Returns what is in force, and the error if the newest file is not.
    pub fn status(&self) -> Status {
        self.file.reloads().status.clone()
    }

    /// Returns the decisions of the file in shadow beside the file in force, or `None` if that names none.
    pub fn shadow(&self) -> Option<ShadowStatus> {
        self.config().shadow()
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Config {
        self.file.reloads().config.clone()
    }

    /// Reads the file and the zone data now, and puts them into force. This reads from the disk and blocks.
    /// The version stays if the bytes of the file are the same.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or has a mistake. Then nothing has changed.
    pub fn reload(&self) -> Result<Status, FileError> {
        self.file.reload()
    }

    /// Reads the file in shadow now, if there is one, and returns its decisions. This reads from the disk and
    /// blocks.
    pub fn reload_shadow(&self) -> Option<ShadowStatus> {
        let file = self.config().shadow?;
        file.read_again();
        Some(file.status())
    }
}

impl FileInForce {
    fn reloads(&self) -> MutexGuard<'_, Reloads> {
        self.reloads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self) -> Result<Status, FileError> {
        // One reload at a time: the last to begin has the newest file.
        let _one = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tower_ratelimit::__internal::read_zone_data_again();
        let now = self.reloads().config.clone();
        let builder = self.builder.clone().hashing_as(&now);
        let text = builder.text_again(&self.path);
        let files = &now.settings.secret_files;
        // Before the files are read: what changes from here on is looked at again.
        let looked = text
            .as_ref()
            .ok()
            .map(|text| files.now_beside(digest(text)));
        let (sha256, read) = builder.read_with_digest(&self.path, text);
        let next = read.and_then(|next| changes_no_more_than_it_may(&now, next));
        let as_read = next.as_ref().ok().map(|next| Arc::clone(&next.settings));
        let next = next
            // A state is found by the name of its policy, in the store that is in use.
            .map(|next| next.over_the_store_of(&now))
            .and_then(|next| next.beside(&builder, &self.path, now.shadow.as_ref()));
        let built = next.and_then(|next| match next.layer() {
            Ok(layer) => Ok((next, layer)),
            Err(error) => Err(next.refused(&error)),
        });
        let mut reloads = self.reloads();
        let reloaded = match built {
            Ok((next, layer)) => {
                let next = match &as_read {
                    Some(as_read) => with_secrets(&now, next, as_read),
                    None => next,
                };
                let next = with_moved_levels(&now, next);
                reloads.refused = None;
                reloads.status.error = None;
                // The same bytes may have another meaning, because zone data changes too.
                if let Some(sha256) = sha256 {
                    // A policy that comes back finds what it has used.
                    let before = self.swap.put(&layer);
                    let (was, is) = (&now.settings.states, &next.settings.states);
                    let at = std::time::Instant::now();
                    reloads.departed.leave(was, is, &before, at);
                    reloads.before = Some(before);
                    reloads.config = next;
                    if sha256 != reloads.status.sha256 {
                        reloads.status.next(sha256);
                        configuration_changed(reloads.status.version, &reloads.status.sha256());
                    }
                }
                Ok(reloads.status.clone())
            }
            Err(error) => {
                if let Some(sha256) = sha256
                    && reloads.refused != looked
                {
                    warn_once_in_lines(&REFUSED, format!("{}: {error}", hexadecimal(&sha256[..4])));
                }
                reloads.refused = looked;
                reloads.status.error = Some(error.clone());
                Err(error)
            }
        };
        reloads.status.show_in(&self.swap);
        drop(reloads);
        self.watch_directories();
        reloaded
    }

    /// Watches the directories of both files. It blocks.
    fn watch_directories(&self) {
        self.directories.of(&self.path);
        let shadow = self.reloads().config.shadow.clone();
        if let Some(file) = shadow {
            self.directories.of(file.path());
        }
    }
}

impl Followed for FileInForce {
    fn digest(&self) -> Option<Sha> {
        self.watch_directories();
        let text = self.builder.text_again(&self.path).ok()?;
        let settings = Arc::clone(&self.reloads().config.settings);
        Some(settings.secret_files.now_beside(digest(&text)))
    }

    fn is_new(&self, sha256: &Sha) -> bool {
        let reloads = self.reloads();
        let files = &reloads.config.settings.secret_files;
        if files.known_beside(reloads.status.sha256) == *sha256 {
            // The file was bad or missing meanwhile.
            reloads.status.error.is_some()
        } else {
            reloads.refused != Some(*sha256)
        }
    }

    fn read_again(&self) {
        // The error is in the status and in the log.
        drop(self.reload());
    }
}

/// Checks that nothing changes that must not while a layer is in use: the store, the secret that hashes keys,
/// what is learnt from the load, and the unit of what was counted.
fn changes_no_more_than_it_may(now: &Config, next: Config) -> Result<Config, FileError> {
    let mut mistakes = Notes::default();
    for (path, span) in Settings::differences(&now.settings, &next.settings) {
        let message = "it cannot change without a restart; write what it was, or restart";
        mistakes.add(span, path, message.to_owned());
    }
    for (name, counts) in Settings::recounted(&now.settings, &next.settings) {
        let message = "what its keys have used was counted in another unit; give the policy another name, or the unit that it had";
        mistakes.add(
            counts.span.as_ref(),
            &format!("policies.{name}"),
            message.to_owned(),
        );
    }
    if mistakes.is_empty() {
        Ok(next)
    } else {
        Err(FileError::of(mistakes, &next.source))
    }
}

/// Logs in to the store by a URL that has changed, and warns of other secrets that have. The limits of the file come into force all
/// the same: its writer may know nothing of them. The log has a warning once, and the status for as long as it holds.
fn with_secrets(now: &Config, mut next: Config, as_read: &Settings) -> Config {
    let mut rotated = Vec::new();
    for (path, span) in now.settings.rotated(as_read) {
        if path == STATES && Arc::make_mut(&mut next.settings).renew_login(as_read) {
            login_is_renewed();
            continue;
        }
        let message = "a value behind it has changed, and this process goes on with the one that it had; restart it";
        let warning = Mistake::new(&next.source, span, path.to_owned(), message.to_owned());
        if !now.warnings.contains(&warning) {
            operators_are_warned(&warning);
        }
        rotated.push(warning);
    }
    let warnings = next.warnings.iter().cloned().chain(rotated);
    Config {
        warnings: warnings.collect(),
        ..next
    }
}

/// Warns of levels of a tree whose keys are others, since a level above them has come or gone.
fn with_moved_levels(now: &Config, mut next: Config) -> Config {
    let moved = now.settings.moved(&next.settings).map(|name| {
        let message = "other levels are above it than before, so its keys are others, and what was used by those that it had \
                       counts no more under it; what was used of the levels above stays used";
        let path = format!("policies.{name}");
        Mistake::new(&next.source, None, path, message.to_owned())
    });
    let room = MOST_LISTED.saturating_sub(next.warnings.len());
    let moved: Vec<_> = moved.take(room).collect();
    moved.iter().for_each(operators_are_warned);
    next.warnings = next.warnings.iter().cloned().chain(moved).collect();
    next
}

/// Follows the file until all handles are dropped.
async fn follow(file: Weak<FileInForce>, maybe: Arc<Notify>, every: Duration) {
    loop {
        let next = Instant::now() + every;
        // The poll also finds changes whose event was lost.
        let _ = timeout_at(next, maybe.notified()).await;
        let Some(file) = file.upgrade() else {
            return;
        };
        file.reloads().departed.forget(std::time::Instant::now());
        let beside: Option<Arc<ShadowFile>> = file.reloads().config.shadow.clone();
        look(file).await;
        if let Some(file) = beside {
            look(file).await;
        }
        // Merges the events that come meanwhile.
        sleep(QUIET).await;
    }
}

//! The rate limit service of Envoy, by files as `envoyproxy/ratelimit` reads them.
//!
//! `yaml.rs` reads a text, `file/` the limits in it, `tables.rs` those of the file of limits, and `directory.rs` all of them. `rules.rs` finds the limit of a
//! descriptor, `domain.rs` has the limits of a domain and `limiters.rs` the limiter of all of them, `question.rs` decides about a request, and `standby.rs` has the
//! limiter for requests that the store does not answer in time. `answer.rs` writes the answer for Envoy. `import.rs` writes files as tables. `json.rs` takes the same questions over HTTP.
//!
//! They use what is internal in `tower_ratelimit_config`, of the same version alone: mistakes in these files have the form and the caret of those in the file of limits
//! (`Notes`, `SourceText`), and a limit has one state, whichever of the two files it stands in (`state_name`, `digest`). A service of another kind needs neither.

mod answer;
mod directory;
mod domain;
mod explain;
mod file;
mod import;
pub(crate) mod json;
mod limiters;
mod question;
mod rules;
mod standby;
mod statistics;
mod tables;
mod yaml;

use std::fmt;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::{ConfigError, Limiter};

pub use self::answer::Headers;
pub(crate) use self::answer::limited;
pub use self::directory::Mistakes;
pub use self::explain::{explain, understood};
pub use self::import::{Imported, import};

use self::directory::{Domains, Sources, Texts};
use self::domain::Domain;
use self::limiters::{Limiters, Open, Opening, Unusable};
use self::question::{Demand, Verdict};
use self::statistics::{Statistics, add};
use crate::envoy::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::limits::Limits;

/// The most descriptors of a request, and entries of a descriptor. Who configures Envoy chooses both; a client does not.
const MOST_DESCRIPTORS: usize = 100;
const MOST_ENTRIES: usize = 32;

/// The longest domain and the longest key of an entry, in bytes. A value may be as long as the message: a client may choose it,
/// and upon an error Envoy lets a request pass.
const LONGEST_NAME: usize = 1_024;

/// The time between two looks at the files.
const AGAIN: Duration = Duration::from_secs(5);

/// How long files have to be the same before they are read, since they may be written in pieces.
const QUIET: Duration = Duration::from_millis(150);

/// Decides about descriptors by the files of a directory, and by the tables `envoy` of a file of limits. It follows both.
#[derive(Clone)]
pub struct RateLimits {
    inner: Arc<Inner>,
}

/// How a [`RateLimits`] decides and answers.
///
/// # Defaults
///
/// - a refused request charges nothing
/// - limits refuse requests
/// - headers: those of the IETF draft, and `Retry-After`
/// - time: 15 ms
/// - metrics: those of this server
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether refused requests are charged, as `envoyproxy/ratelimit` does.
    pub charge_refused: bool,
    /// Whether all requests pass, and those that would be refused are counted.
    pub is_shadow: bool,
    /// The headers that Envoy adds to responses.
    pub headers: Headers,
    /// The time for a decision, where the caller says none.
    pub time: Duration,
    /// Whether the metrics have the names of `envoyproxy/ratelimit`.
    pub their_metrics: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            charge_refused: false,
            is_shadow: false,
            headers: Headers::default(),
            time: Duration::from_millis(15),
            their_metrics: false,
        }
    }
}

struct Inner {
    sources: Sources,
    options: Options,
    open: Box<Open>,
    statistics: Statistics,
    domains: RwLock<Arc<Domains>>,
    newest: Mutex<Newest>,
    reloading: Mutex<()>,
}

/// The newest files, whether they are in force or not.
struct Newest {
    texts: Result<Texts, Mistakes>,
    error: Option<Mistakes>,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The request has a mistake.
    Invalid(String),
    /// The store could not decide.
    Unavailable(String),
}

impl RateLimits {
    /// Reads all files of a directory whose names end in `.yaml` or `.yml`. `open` opens a limiter over the store.
    ///
    /// # Errors
    ///
    /// When the directory or one of its files cannot be read, and when a file has a mistake. The error has all mistakes.
    pub fn read(
        directory: impl Into<PathBuf>,
        options: Options,
        open: impl Fn(LimiterBuilder) -> Result<Limiter, ConfigError> + Send + Sync + 'static,
    ) -> Result<Self, Mistakes> {
        let sources = Sources {
            directory: Some(directory.into()),
            limits: None,
        };
        Self::of(sources, options, open)
    }

    /// Reads the tables `envoy` of the file of these limits, and the files of a directory. They count in the store of that file.
    ///
    /// # Errors
    ///
    /// When the directory or one of its files cannot be read, when a file has a mistake, and when a domain stands in both.
    pub fn beside(
        limits: &Limits,
        directory: Option<PathBuf>,
        options: Options,
    ) -> Result<Self, Mistakes> {
        let sources = Sources {
            directory,
            limits: Some(limits.clone()),
        };
        let limits = limits.clone();
        Self::of(sources, options, move |builder| {
            limits.config().limiter_of(builder)
        })
    }

    fn of(
        sources: Sources,
        options: Options,
        open: impl Fn(LimiterBuilder) -> Result<Limiter, ConfigError> + Send + Sync + 'static,
    ) -> Result<Self, Mistakes> {
        let statistics = Statistics::default();
        let texts = sources.read()?;
        let opening = Opening {
            open: &open,
            charges_refused: options.charge_refused,
        };
        let domains = Domains::open(&texts, opening, &statistics, None)?;
        add(&statistics.loads, 1);
        Ok(Self {
            inner: Arc::new(Inner {
                sources,
                options,
                open: Box::new(open),
                statistics,
                domains: RwLock::new(Arc::new(domains)),
                newest: Mutex::new(Newest {
                    texts: Ok(texts),
                    error: None,
                }),
                reloading: Mutex::default(),
            }),
        })
    }

    /// Returns why the newest files are not in force.
    pub fn error(&self) -> Option<Mistakes> {
        self.newest().error.clone()
    }

    /// Puts the files into force if they have changed. With a mistake in one of them, what is in force stays.
    ///
    /// It reads from the disk and blocks.
    pub fn reload(&self) {
        let Inner {
            sources,
            statistics,
            ..
        } = &*self.inner;
        // One at a time: the last to begin has the newest files.
        let _one = self
            .inner
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let texts = sources.read();
        if self.newest().texts == texts {
            return;
        }
        let opened = match &texts {
            Ok(texts) => {
                let before = self.inner.in_force();
                Domains::open(texts, self.inner.opening(), statistics, Some(&before))
            }
            Err(error) => Err(error.clone()),
        };
        let mut newest = self.newest();
        newest.texts = texts;
        match opened {
            Ok(domains) => {
                tracing::info!("the limits of descriptors were read again: {domains}");
                add(&statistics.loads, 1);
                newest.error = None;
                let mut domains = Arc::new(domains);
                let mut in_force = self
                    .inner
                    .domains
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut *in_force, &mut domains);
            }
            Err(error) => {
                tracing::warn!("the limits of descriptors stay as they were: {error}");
                add(&statistics.failed_loads, 1);
                newest.error = Some(error);
            }
        }
        statistics.free();
    }

    /// Looks at the files for as long as the process runs.
    pub(crate) async fn follow(self) {
        loop {
            sleep(AGAIN).await;
            // It sums the counts of all limits, of which there may be thousands.
            let domains = self.inner.in_force();
            let _ = tokio::task::spawn_blocking(move || domains.follow_nodes()).await;
            let before = self.on_disk().await;
            if before.as_ref() == Some(&self.newest().texts) {
                continue;
            }
            sleep(QUIET).await;
            if before != self.on_disk().await {
                continue;
            }
            let limits = self.clone();
            let _ = tokio::task::spawn_blocking(move || limits.reload()).await;
        }
    }

    async fn on_disk(&self) -> Option<Result<Texts, Mistakes>> {
        let limits = self.clone();
        let read = tokio::task::spawn_blocking(move || limits.inner.sources.read());
        read.await.ok()
    }

    /// Decides about the descriptors of a request, until this deadline or within the time of the options. If the store has not
    /// answered by then, each limit decides as it does while its store is away.
    ///
    /// # Errors
    ///
    /// When the request has a mistake, and when the store cannot decide.
    pub async fn ask(
        &self,
        request: RateLimitRequest,
        deadline: Option<Deadline>,
    ) -> Result<RateLimitResponse, NoAnswer> {
        let statistics = &self.inner.statistics;
        add(&statistics.calls, 1);
        let (begun, descriptors) = (Instant::now(), request.descriptors.len());
        let answer = self.answer(request, deadline).await;
        statistics.times.note(begun.elapsed());
        match &answer {
            Ok(_) => {}
            Err(NoAnswer::Invalid(_)) => add(&statistics.invalid, 1),
            Err(NoAnswer::Unavailable(_)) => {
                add(&statistics.unavailable, 1);
                if self.inner.options.is_shadow {
                    add(&statistics.shadow, 1);
                    return Ok(answer::without_limits(descriptors));
                }
            }
        }
        answer
    }

    async fn answer(
        &self,
        request: RateLimitRequest,
        deadline: Option<Deadline>,
    ) -> Result<RateLimitResponse, NoAnswer> {
        check(&request).map_err(NoAnswer::Invalid)?;
        let left = |moment: Instant| moment.saturating_duration_since(Instant::now());
        let moment = deadline.and_then(|deadline| deadline.moment());
        let time = moment.map_or(self.inner.options.time, left);
        let inner = &self.inner;
        let call = Arc::new(Call {
            request,
            has_answer: AtomicBool::new(false),
        });
        let deciding = Arc::clone(inner).decide(Arc::clone(&call));
        let mut deciding = Box::pin(deciding);
        let at_once = poll_fn(|context| Poll::Ready(deciding.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = at_once {
            return answer;
        }
        // A task of its own: when nobody waits any more, what was taken is given back, and reported units are settled all the same.
        let mut deciding = tokio::spawn(deciding);
        let in_time = timeout(time, &mut deciding).await;
        let answer = match in_time {
            Err(_) if call.take_turn() => return inner.decide_without_store(&call.request).await,
            // It has been decided just now.
            Err(_) => deciding.await,
            Ok(answer) => answer,
        };
        answer.unwrap_or_else(|_| Err(unavailable("the server stops")))
    }

    /// Returns whether the store has answered. Without a domain there is nothing to ask it.
    pub(crate) async fn reach_the_store(&self) -> bool {
        let domains = self.inner.in_force();
        match domains.any() {
            Some(domain) => domain.reaches_the_store().await,
            None => true,
        }
    }

    /// Reports what was counted to the recorder.
    pub(crate) fn publish(&self) {
        let Inner {
            statistics,
            options,
            ..
        } = &*self.inner;
        statistics::publish(statistics, self.error().is_some());
        if options.their_metrics {
            statistics::publish_as_theirs(statistics);
        }
    }

    /// Returns what is in force, for operators.
    pub(crate) fn status(&self) -> serde_json::Value {
        let loads = self.inner.statistics.loads.load(Ordering::Relaxed);
        serde_json::json!({
            "version": loads,
            "domains": self.inner.in_force().to_string(),
            "error": self.error().map(|error| error.to_string()),
        })
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.inner
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is being decided.
#[derive(Debug)]
struct Call {
    request: RateLimitRequest,
    has_answer: AtomicBool,
}

impl Call {
    /// Takes the turn to answer, which is taken once: by the store, or when the time is over.
    fn take_turn(&self) -> bool {
        !self.has_answer.swap(true, Ordering::Relaxed)
    }
}

impl Inner {
    async fn decide(self: Arc<Self>, call: Arc<Call>) -> Result<RateLimitResponse, NoAnswer> {
        let (domains, request) = (self.in_force(), &call.request);
        let Some(domain) = domains.get(&request.domain) else {
            add(&self.statistics.unknown_domain, 1);
            return Ok(answer::without_limits(request.descriptors.len()));
        };
        let limiters = self.limiters(domain, request)?;
        let demands = self.demands(domain, &limiters, request)?;
        let charges_refused = self.options.charge_refused;
        let verdict = question::decide(&limiters.limiter, &demands, charges_refused).await;
        if !call.take_turn() {
            return Err(late());
        }
        let verdict = verdict.map_err(unavailable)?;
        Ok(self.answer(request, domain, &demands, &verdict))
    }

    /// Decides about a request that the store has not answered in time.
    async fn decide_without_store(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, NoAnswer> {
        let domains = self.in_force();
        // The files may have changed meanwhile.
        let domain = domains.get(&request.domain).ok_or_else(late)?;
        let limiters = self.limiters(domain, request)?;
        let share = limiters.standby.as_ref().ok_or_else(late)?.share();
        let demands = self.demands(domain, &limiters, request)?;
        let own = share.of(&demands).ok_or_else(late)?;
        let charges_refused = self.options.charge_refused;
        let verdict = question::decide(&share.limiter, &own, charges_refused).await;
        let verdict = verdict.map_err(unavailable)?;
        add(&self.statistics.late, 1);
        Ok(self.answer(request, domain, &demands, &verdict))
    }

    /// Counts a request that has this verdict, and returns its answer.
    fn answer(
        &self,
        request: &RateLimitRequest,
        domain: &Domain,
        demands: &[Demand<'_>],
        verdict: &Verdict,
    ) -> RateLimitResponse {
        let Options {
            headers, is_shadow, ..
        } = self.options;
        question::count(demands, verdict);
        if is_shadow && !verdict.passes {
            add(&self.statistics.shadow, 1);
        }
        let passes = is_shadow || verdict.passes;
        answer::of(request, domain, demands, verdict, headers, passes)
    }

    /// Returns the demand of each descriptor of a request.
    fn demands<'a>(
        &self,
        domain: &'a Domain,
        limiters: &'a Limiters,
        request: &RateLimitRequest,
    ) -> Result<Vec<Demand<'a>>, NoAnswer> {
        let hits = request.hits_addend.max(1);
        let demands = domain.demands(limiters, &request.descriptors, hits, &self.statistics);
        demands.map_err(invalid)
    }

    /// Returns the limiter that has the limits of a request.
    fn limiters(
        &self,
        domain: &Domain,
        request: &RateLimitRequest,
    ) -> Result<Arc<Limiters>, NoAnswer> {
        let limiters = domain.limiters_of(&request.descriptors, self.opening());
        limiters.map_err(invalid)
    }

    fn opening(&self) -> Opening<'_> {
        Opening {
            open: &*self.open,
            charges_refused: self.options.charge_refused,
        }
    }

    fn in_force(&self) -> Arc<Domains> {
        Arc::clone(&self.domains.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn invalid(unusable: Unusable) -> NoAnswer {
    NoAnswer::Invalid(match unusable {
        Unusable::NoUnit => {
            "limit.unit is UNKNOWN; send the unit of the limit, from SECOND to YEAR".to_owned()
        }
        Unusable::Units(units, why) => format!("limit.unit_multiplier is {units}: {why}"),
    })
}

fn unavailable(why: impl fmt::Display) -> NoAnswer {
    NoAnswer::Unavailable(why.to_string())
}

fn late() -> NoAnswer {
    unavailable("the store has not answered in time")
}

/// Returns what is wrong with a request.
fn check(request: &RateLimitRequest) -> Result<(), String> {
    let RateLimitRequest {
        domain,
        descriptors,
        ..
    } = request;
    if domain.is_empty() {
        return Err("domain is empty; send the domain of a file".to_owned());
    }
    if descriptors.is_empty() {
        return Err("descriptors is empty; send at least one".to_owned());
    }
    at_most(
        || "domain, in bytes,".to_owned(),
        domain.len(),
        LONGEST_NAME,
    )?;
    at_most(
        || "descriptors".to_owned(),
        descriptors.len(),
        MOST_DESCRIPTORS,
    )?;
    for (number, descriptor) in descriptors.iter().enumerate() {
        let place = || format!("descriptors[{number}].entries");
        let entries = &descriptor.entries;
        if entries.is_empty() {
            return Err(format!("{} is empty; send at least one", place()));
        }
        at_most(place, entries.len(), MOST_ENTRIES)?;
        for (number, entry) in entries.iter().enumerate() {
            let place = || format!("{}[{number}].key", place());
            if entry.key.is_empty() {
                return Err(format!("{} is empty; send the key of a file", place()));
            }
            let in_bytes = || format!("{}, in bytes,", place());
            at_most(in_bytes, entry.key.len(), LONGEST_NAME)?;
        }
    }
    Ok(())
}

fn at_most(what: impl FnOnce() -> String, number: usize, most: usize) -> Result<(), String> {
    if number > most {
        return Err(format!("{} has {number}; send {most} at most", what()));
    }
    Ok(())
}

impl fmt::Debug for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimits")
            .field("sources", &self.inner.sources)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tower_ratelimit::MemoryStore;

    use super::*;

    /// The files of a volume of Kubernetes lead through a link, which is replaced.
    #[tokio::test(start_paused = true)]
    async fn the_swap_of_a_config_map_is_followed_without_a_signal() {
        let name = format!("ratelimitd-configmap-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let version = |version: &str, domain: &str| {
            fs::create_dir_all(folder.join(version)).unwrap();
            let text = format!("domain: {domain}\ndescriptors: []\n");
            fs::write(folder.join(version).join("shop.yaml"), text).unwrap();
        };
        version("..1", "shop");
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/shop.yaml", folder.join("shop.yaml")).unwrap();
        let store = MemoryStore::new();
        let open = move |builder: LimiterBuilder| builder.store(store.clone()).build();
        let limits = RateLimits::read(&folder, Options::default(), open).unwrap();
        let following = tokio::spawn(limits.clone().follow());
        assert_eq!(limits.status()["domains"], "shop");
        version("..2", "market");
        symlink("..2", folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        sleep(3 * AGAIN).await;
        assert_eq!(limits.status()["domains"], "market");
        following.abort();
        fs::remove_dir_all(folder).unwrap();
    }
}

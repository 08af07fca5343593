#![doc = include_str!("../README.md")]
//!
//! # Mistakes
//!
//! Reading a file rejects it for a mistake, and reports all mistakes of the file:
//!
//! ```
//! use tower_ratelimit_config::Config;
//!
//! let error = "[policies.daily]\nlimit = \"10k\"\nper = \"day\"\nkye = \"client_ip\""
//!     .parse::<Config>()
//!     .unwrap_err();
//! let mistakes: Vec<String> = error.mistakes().iter().map(ToString::to_string).collect();
//! assert_eq!(
//!     mistakes[0],
//!     "<text>:2:9: policies.daily.limit: \"10k\" is not a whole number; write 10_000",
//! );
//! assert_eq!(error.mistakes().len(), 2);
//! ```

/// The file: all of its settings.
#[doc = include_str!("../docs/config.md")]
pub mod guide {}

mod adapt;
mod bodies;
mod body_fields;
mod common;
mod conditions;
mod costs;
mod departed;
mod descriptors;
mod digest;
mod elsewhere;
mod endings;
mod explain;
mod fair;
mod first_of;
mod following;
mod functions;
mod hours;
mod integer;
mod json;
mod keys;
mod levels;
mod limits;
mod limits_by_key;
mod load;
mod log;
mod marks;
mod mistake;
mod money;
mod names;
mod opening;
mod own_store;
mod plans;
mod policies;
mod policy;
mod reading;
mod registering;
mod replay;
mod resolver_options;
mod resolving;
mod responses;
mod schema;
mod secret_files;
mod secrets;
mod settings;
mod shadow;
mod shape;
mod status;
mod store;
mod terms;
mod toml;
mod tree;
mod vocabulary;
mod walk;
mod watching;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderName;

pub use self::descriptors::DescriptorLimit;
pub use self::explain::{Explained, Row};
pub use self::mistake::{FileError, Mistake};
pub use self::reading::{ConfigBuilder, Format};
pub use self::replay::{Replay, Replayed};
pub use self::schema::schema;
pub use self::shadow::ShadowStatus;
pub use self::status::Status;
pub use self::watching::Watched;

use self::digest::Sha;
use self::mistake::SourceText;
use self::settings::Settings;
use self::shadow::ShadowFile;
use self::store::ReadStore;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::key::Proxies;
use tower_ratelimit::limiter::{Limiter, LimiterBuilder};
use tower_ratelimit::middleware::{RateLimitLayer, ReadJsonLayer};
use tower_ratelimit::policy::Modes;
use tower_ratelimit::store::Store;
use tower_ratelimit_adapt::Adapt;
use tower_ratelimit_adapt::middleware::AdaptiveConcurrencyLayer;

/// What the server uses for its other files. It is no part of the API, and may change in any version.
// For `tower-ratelimit-server`.
#[doc(hidden)]
pub mod __internal {
    pub use crate::descriptors::{digest, state_name};
    pub use crate::mistake::{Notes, SourceText};
}

/// The limits of a file, read and checked.
///
/// Clones share the settings, and the state of the store.
#[derive(Clone)]
pub struct Config {
    settings: Arc<Settings>,
    warnings: Arc<[Mistake]>,
    source: SourceText,
    /// `None` if the configuration is not a file.
    origin: Option<Arc<Origin>>,
    /// The configuration in shadow beside it, if it names a file for that.
    shadow: Option<Arc<ShadowFile>>,
}

/// The file of a configuration, and how to read it.
struct Origin {
    path: PathBuf,
    builder: ConfigBuilder,
    sha256: Sha,
}

impl Config {
    /// Starts to build a configuration with the functions to which a file refers by name: keys, costs,
    /// limits, conditions and plans.
    ///
    /// # Defaults
    ///
    /// - registered functions: none
    /// - size of a file: at most 1 MiB
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::new()
    }

    /// Reads a file: JSON if its name ends in `.json`, and TOML otherwise.
    ///
    /// This reads from the disk and blocks: call it at start-up.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is larger than 1 MiB, or has a mistake. The error has all mistakes.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::builder().read(path)
    }

    /// Returns what is no mistake, and yet worth a look: a secret or the URL of a store that stands in the file, a limit
    /// that can never bind beside another, or a level of a tree that begins anew since a reload. There are a hundred at most.
    pub fn warnings(&self) -> &[Mistake] {
        &self.warnings
    }

    /// Returns the names of the plans, in the order of the file.
    pub fn plans(&self) -> impl ExactSizeIterator<Item = &str> {
        self.settings.plans.iter().map(String::as_str)
    }

    /// Returns the proxies that the file trusts, or `None` if it names none.
    pub fn proxies(&self) -> Option<&Proxies> {
        self.settings.proxies.as_ref()
    }

    /// Returns the header in which the [proxies](Self::proxies) tell the address of the client. A proxy that limits requests must not
    /// pass on what others have sent in it.
    pub fn client_header(&self) -> Option<&HeaderName> {
        self.settings.client_header.as_ref()
    }

    /// Returns the switches of the policies' modes, which all layers and limiters of this configuration
    /// share.
    pub fn modes(&self) -> Modes {
        self.settings.modes.clone()
    }

    /// Returns the headers that the keys, conditions and plans of the file read. A proxy that limits requests
    /// has to forward them. Headers that registered functions read are not included.
    ///
    /// ```
    /// use tower_ratelimit_config::Config;
    ///
    /// let policy = "[policies.minute]\nquota = \"100/minute\"\nkey = { api_key = \"x-token\" }";
    /// let config: Config = policy.parse()?;
    /// assert_eq!(*config.headers(), ["x-token"]);
    /// # Ok::<(), tower_ratelimit_config::FileError>(())
    /// ```
    pub fn headers(&self) -> Arc<[HeaderName]> {
        Arc::clone(&self.settings.headers)
    }

    /// Returns the names of the cookies that the keys of the file read. A proxy that limits requests has to forward the one
    /// that is counted: the first of a name.
    pub fn cookies(&self) -> Arc<[String]> {
        Arc::clone(&self.settings.cookies)
    }

    /// Returns the names of the query fields that the keys of the file read: the first of a name is counted.
    ///
    /// ```
    /// use tower_ratelimit_config::Config;
    ///
    /// let policy = "[policies.minute]\nquota = \"100/minute\"\nkey = { first_of = [{ cookie = \"sid\" }, { query = \"token\" }] }";
    /// let config: Config = policy.parse()?;
    /// assert_eq!(*config.cookies(), ["sid"]);
    /// assert_eq!(*config.query_fields(), ["token"]);
    /// # Ok::<(), tower_ratelimit_config::FileError>(())
    /// ```
    pub fn query_fields(&self) -> Arc<[String]> {
        Arc::clone(&self.settings.query_fields)
    }

    /// Returns the limits of the descriptors that Envoy sends, in the order of the file: the tables `envoy`.
    ///
    /// ```
    /// use tower_ratelimit_config::Config;
    ///
    /// let table = "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\", \"path=/export\"]\nquota = \"10/minute\"";
    /// let config: Config = table.parse()?;
    /// let descriptors = config.descriptors();
    /// let entries: Vec<_> = descriptors[0].entries().collect();
    /// assert_eq!(entries, [("tenant", None), ("path", Some("/export"))]);
    /// # Ok::<(), tower_ratelimit_config::FileError>(())
    /// ```
    pub fn descriptors(&self) -> Arc<[DescriptorLimit]> {
        Arc::clone(&self.settings.descriptors)
    }

    /// Returns what the limits of the file follow, or `None` without a table `adapt`. Spawn its task once:
    /// `tokio::spawn(adapt.run())`. Until then, all limits are whole. A reload keeps it.
    ///
    /// ```
    /// use tower_ratelimit_config::Config;
    ///
    /// let config: Config = r#"
    ///     [adapt]
    ///     signals = ["cpu", "memory"]
    ///     [policies.api]
    ///     quota = "100/minute"
    ///     key = "client_ip"
    ///     adapt = true
    /// "#
    /// .parse()?;
    /// let layer = config.layer()?;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn spawn(config: &Config) {
    /// if let Some(adapt) = config.adapt() {
    ///     tokio::spawn(adapt.run());
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn adapt(&self) -> Option<&Adapt> {
        self.settings.adapt.as_ref()
    }

    /// Returns the layer of the adaptive concurrency, or `None` if the file has none. All clones share the
    /// limit.
    pub fn concurrency(&self) -> Option<&AdaptiveConcurrencyLayer> {
        self.settings.concurrency.as_ref()
    }

    /// Returns the layer that reads the bodies of requests for the policies which ask for a field of them. Put it outside of
    /// [`layer`](Self::layer). It reads no request if no policy asks; [`Watched::read_json`] follows the file.
    ///
    /// ```
    /// use tower::ServiceBuilder;
    /// use tower_ratelimit_config::Config;
    ///
    /// let policy = "[policies.models]\nquota = \"100/minute\"\nkey = { json = \"model\" }";
    /// let config: Config = policy.parse()?;
    /// let limits = config.layer()?;
    /// // No body is read of a request that other policies refuse.
    /// let read = config.read_json().unless_refused_by(&limits);
    /// // The first layer is the outermost.
    /// let both = ServiceBuilder::new().layer(read).layer(limits);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_json(&self) -> ReadJsonLayer {
        let bodies = &self.settings.bodies;
        let shadow = self.shadow.as_ref().and_then(|file| file.bodies());
        match shadow {
            Some(shadow) => {
                let both = bodies.beside(&shadow).layer(&self.settings.modes);
                // Both together may have too many fields. Those of the file in force are read then.
                both.unwrap_or_else(|_| self.settings.read_json.clone())
            }
            None => self.settings.read_json.clone(),
        }
    }

    /// Builds a layer. All layers of a configuration share the state of its store.
    ///
    /// # Errors
    ///
    /// When the store of the file cannot hold a policy exactly.
    pub fn layer(&self) -> Result<RateLimitLayer, ConfigError> {
        self.live_layer().map(|layer| self.with_shadow(layer))
    }

    /// Builds a layer over this store, in place of that of the file.
    ///
    /// # Errors
    ///
    /// When the store cannot hold a policy exactly, and when the file divides limits by
    /// [nodes](tower_ratelimit::middleware::RateLimitLayerBuilder::nodes) that share the store.
    pub fn layer_over(&self, store: impl Store) -> Result<RateLimitLayer, ConfigError> {
        let layer = self.live_layer_over(store)?;
        Ok(self.with_shadow(layer))
    }

    /// Builds the same layer without the file in shadow, for requests that this has seen.
    // For `tower-ratelimit-server`.
    #[doc(hidden)]
    pub fn live_layer_over(&self, store: impl Store) -> Result<RateLimitLayer, ConfigError> {
        self.settings.layer.clone().store(store).build()
    }

    /// Builds a limiter, whose caller passes key and cost. It has the policies and the plans of the file, and
    /// denies at once where a layer would let requests wait. It reads no requests, so it ignores keys, costs,
    /// conditions, lists and `limit_by` of the file; the caller names the plan and the operation, by
    /// [`Limiter::plan`] and [`Limiter::operation`]. [`Watched::limiter`] follows the file.
    ///
    /// # Errors
    ///
    /// When the store of the file cannot hold a policy exactly.
    pub fn limiter(&self) -> Result<Limiter, ConfigError> {
        self.limiter_of(self.settings.limiter.clone())
    }

    /// Gives back the units that this process has leased from the store of the file, and the slots of requests that have ended,
    /// before the process ends; see
    /// [`RedisStore::give_leases_back`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RedisStore.html#method.give_leases_back). A store of another kind leases none.
    pub async fn give_leases_back(&self) {
        if let ReadStore::Redis(store) = &self.settings.store {
            store.give_leases_back().await;
        }
    }

    /// Builds a limiter of other policies over the store of the file. The file says nothing of them, and their names
    /// must not be those of its policies.
    ///
    /// # Errors
    ///
    /// When the policies have a mistake, and when the store of the file cannot hold one of them exactly.
    pub fn limiter_of(&self, builder: LimiterBuilder) -> Result<Limiter, ConfigError> {
        self.settings.store.limiter(builder)
    }

    /// Builds a limiter over this store, in place of that of the file.
    ///
    /// # Errors
    ///
    /// See [`limiter`](Self::limiter).
    pub fn limiter_over(&self, store: impl Store) -> Result<Limiter, ConfigError> {
        self.settings.limiter.clone().store(store).build()
    }
}

impl Config {
    /// Builds the layer without the file in shadow.
    fn live_layer(&self) -> Result<RateLimitLayer, ConfigError> {
        self.settings.store.layer(self.settings.layer.clone())
    }

    fn with_shadow(&self, layer: RateLimitLayer) -> RateLimitLayer {
        match &self.shadow {
            None => layer,
            Some(file) => layer.beside(file.shadow()),
        }
    }

    /// Gives the configuration a store that no other configuration has.
    fn over_a_store_of_its_own(self) -> Self {
        let settings = Settings::clone(&self.settings).in_this_process();
        Self {
            settings: Arc::new(settings),
            ..self
        }
    }

    /// Gives the configuration the store and the switches of another one, and so its state.
    fn over_the_store_of(self, other: &Self) -> Self {
        let settings = Settings::clone(&self.settings);
        let settings = settings.over(&other.settings);
        Self {
            settings: Arc::new(settings),
            ..self
        }
    }

    /// Returns the error of a file that could be read but not built.
    fn refused(&self, error: &ConfigError) -> FileError {
        let mistake = Mistake::new(&self.source, None, String::new(), error.to_string());
        FileError::new(vec![mistake])
    }
}

/// Reads a text in TOML.
impl FromStr for Config {
    type Err = FileError;

    fn from_str(text: &str) -> Result<Self, FileError> {
        Self::builder().parse(text, Format::Toml)
    }
}

/// Shows the names of the policies, and no secret.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("policies", &self.settings.policies)
            .finish_non_exhaustive()
    }
}

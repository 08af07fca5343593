//! The limits in force.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use tower_ratelimit::middleware::ReadJsonLayer;
use tower_ratelimit::{MemoryStore, RateLimitLayer};
use tower_ratelimit_config::{Config, Format, Watched};

/// 100 requests a minute for each client address.
const BUILT_IN: &str = include_str!("../limits.toml");

const NONE: &str = "[policies.none]\nquota = \"unlimited\"\nkey = \"global\"\n";

/// The limits of a file that is followed, or those of a text, which stay.
#[derive(Clone, Debug)]
pub enum Limits {
    /// The limits of a file.
    File(Watched),
    /// The limits of a text.
    Text {
        /// The text as it is understood.
        config: Config,
        /// The layer that enforces it.
        layer: RateLimitLayer,
    },
}

impl Limits {
    /// Returns the limits that hold where no file is named: 100 requests a minute for each client address, in this store.
    ///
    /// # Errors
    ///
    /// None, unless the text of this package has a mistake.
    pub fn built_in(store: Option<MemoryStore>) -> Result<Self, crate::BoxError> {
        Self::of_text(BUILT_IN, store)
    }

    /// Returns limits that limit nothing, over this store, where other files alone limit.
    ///
    /// # Errors
    ///
    /// None, unless the text of this package has a mistake.
    pub fn none(store: Option<MemoryStore>) -> Result<Self, crate::BoxError> {
        Self::of_text(NONE, store)
    }

    fn of_text(text: &str, store: Option<MemoryStore>) -> Result<Self, crate::BoxError> {
        let builder = match store {
            Some(store) => Config::builder().store(store),
            None => Config::builder(),
        };
        let config = builder.parse(text, Format::Toml)?;
        let layer = config.layer()?;
        Ok(Self::Text { config, layer })
    }

    /// Returns the layer. All layers of these limits share their state.
    pub(crate) fn layer(&self) -> RateLimitLayer {
        match self {
            Self::File(watched) => watched.layer(),
            Self::Text { layer, .. } => layer.clone(),
        }
    }

    /// Returns the layer that reads the bodies of requests for these limits, unless they refuse a request without it. It stands
    /// outside of them.
    pub(crate) fn read_json(&self) -> ReadJsonLayer {
        match self {
            Self::File(watched) => watched.read_json(),
            Self::Text { config, layer } => config.read_json().unless_refused_by(layer),
        }
    }

    /// Returns the configuration in force.
    pub(crate) fn config(&self) -> Config {
        match self {
            Self::File(watched) => watched.config(),
            Self::Text { config, .. } => config.clone(),
        }
    }

    /// Reads the file again, at once. It blocks, and a mistake is logged and in the status.
    pub(crate) fn reload(&self) {
        if let Self::File(watched) = self {
            match watched.reload() {
                Ok(status) => tracing::info!("the limits were read again: {status}"),
                Err(error) => tracing::warn!("the limits stay as they were: {error}"),
            }
        }
    }

    /// Returns the number of the configuration in force.
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::File(watched) => watched.status().version(),
            Self::Text { .. } => 1,
        }
    }

    /// Returns what is in force, and the file in shadow beside it. Limits of a text have no version that could change.
    pub(crate) fn status(&self) -> Value {
        let Self::File(watched) = self else {
            return json!({ "version": 1, "sha256": null, "since": null, "error": null });
        };
        let status = watched.status();
        let since = status.since().duration_since(UNIX_EPOCH);
        let mut answer = json!({
            "version": status.version(),
            "sha256": status.sha256(),
            "since": since.unwrap_or_default().as_secs(),
            "error": status.error().map(ToString::to_string),
            "warnings": texts(watched.config().warnings()),
        });
        if let Some(shadow) = watched.shadow() {
            answer["shadow"] = json!({
                "compared": shadow.compared(),
                "would_refuse": shadow.would_refuse(),
                "would_allow": shadow.would_allow(),
                "differences": texts(shadow.differences()),
                "error": shadow.error().map(ToString::to_string),
            });
        }
        answer
    }
}

fn texts(of: &[impl ToString]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

impl From<Watched> for Limits {
    fn from(watched: Watched) -> Self {
        Self::File(watched)
    }
}

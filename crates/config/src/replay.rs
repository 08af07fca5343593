//! Replays past requests by the limits of a file.

use std::net::{IpAddr, SocketAddr};

use http::Request;

use super::Config;
use tower_ratelimit::__internal::Logged;
use tower_ratelimit::__internal::Trial;
use tower_ratelimit::clock::{ManualClock, Micros};
use tower_ratelimit::decision::Decision;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::key::{IntoKey, JsonFields};
use tower_ratelimit::middleware::RateLimitLayer;
use tower_ratelimit::store::MemoryStore;

/// Decides the requests of a log by the limits of a file, at the times of the log; see [`Config::replay`].
#[derive(Debug)]
pub struct Replay {
    layer: RateLimitLayer,
    clock: ManualClock,
}

/// The decision of a file's limits on a request of a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Replayed {
    /// No policy decides: a list allows the request, or no policy applies.
    Exempt,
    /// The request goes on, and is charged. A leaky queue may hold it for a while.
    Allowed(Decision),
    /// The request is refused.
    Refused(Decision),
    /// The request is denied at this moment, and waits for its turn. It is charged nothing, since a log does
    /// not show whether it waits to the end.
    Waits(Decision),
    /// A list denies the request.
    Forbidden,
    /// A policy refuses the request, because it has no key.
    WithoutKey,
}

impl Replayed {
    /// Returns whether the request goes on, now or later.
    pub fn goes_on(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::Forbidden | Self::WithoutKey)
    }

    /// Returns the decision, if policies decided.
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Allowed(decision) | Self::Refused(decision) | Self::Waits(decision) => {
                Some(decision)
            }
            Self::Exempt | Self::Forbidden | Self::WithoutKey => None,
        }
    }
}

impl Config {
    /// Starts a replay of a log by the limits of this file, on new state in this process, whatever store the file names.
    /// Requests end at once: slots are free again, and an estimate is not settled.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::Micros;
    /// use tower_ratelimit_config::Config;
    ///
    /// let policy = "[policies.minute]\nquota = \"2/minute\"\nkey = \"api_key\"";
    /// let replay = policy.parse::<Config>()?.replay()?;
    /// let goes_on = |second: u64| {
    ///     let at = Micros::new(second * 1_000_000);
    ///     replay.decide(at, Request::new(()), Some("ann"), None, None).goes_on()
    /// };
    /// assert_eq!([0, 10, 20, 60].map(goes_on), [true, true, false, true]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the store in this process cannot hold a policy exactly.
    pub fn replay(&self) -> Result<Replay, ConfigError> {
        let clock = ManualClock::new();
        let layer = self.settings.layer.clone().for_a_log();
        let store = MemoryStore::new().clock(clock.clone());
        Ok(Replay {
            layer: layer.store(store).build()?,
            clock,
        })
    }
}

impl Replay {
    /// Decides a request of the log.
    ///
    /// - `at` is the time of the request, since the Unix epoch.
    /// - `key` is used where a policy's key is missing in the request. If it is an address, the request comes
    ///   from there.
    /// - `plan` replaces the plan of the request.
    /// - `cost` replaces the cost under each policy, unless the policy charges an estimate.
    pub fn decide<B>(
        &self,
        at: Micros,
        mut request: Request<B>,
        key: Option<&str>,
        plan: Option<&str>,
        cost: Option<u32>,
    ) -> Replayed {
        self.clock.set_micros(at);
        let address = key.and_then(|key| key.parse::<IpAddr>().ok());
        let extensions = request.extensions_mut();
        if let Some(address) = address {
            extensions.insert(SocketAddr::from((address, 0)));
        }
        extensions.insert(Logged {
            key: address
                .map(IntoKey::into_key)
                .or(key.map(IntoKey::into_key)),
            cost,
            plan: plan.map(Into::into),
        });
        if extensions.get::<JsonFields>().is_none() {
            extensions.insert(JsonFields::unknown());
        }
        match self.layer.try_out(&mut request) {
            Trial::Allowed(decision, _) => Replayed::Allowed(decision),
            Trial::Denied(decision) => Replayed::Refused(decision),
            Trial::Waits(decision) => Replayed::Waits(decision),
            Trial::Forbidden => Replayed::Forbidden,
            Trial::MissingKey => Replayed::WithoutKey,
            // A file has no resolver in a replay, and the store in this process answers at once.
            Trial::Exempt | Trial::Unresolved | Trial::Unknown => Replayed::Exempt,
        }
    }
}

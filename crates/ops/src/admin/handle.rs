//! The layer or limiter that the page shows and changes, and how a client is found in it.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::Request;
use tower_ratelimit::__internal::ClientCharges;
use tower_ratelimit::key::{Head, IntoKey, Key};
use tower_ratelimit::observe::Monitor;
use tower_ratelimit::{Limiter, RateLimitLayer};

/// The limits that an operator's [router](super::router) shows, and changes where that is allowed.
///
/// It is made from a [`RateLimitLayer`] or a [`Limiter`], which may be in use already. The layer of a watched file follows the
/// file.
///
/// # Defaults
///
/// - the text that an operator types is the key under all policies: an address if it is one, and text
///   otherwise
/// - streams of events end when their viewers go away
#[must_use = "a handle shows nothing until a router has it"]
pub struct Handle {
    of: Of,
    monitor: Monitor,
    client: Option<Arc<Client>>,
    until: Mutex<Option<End>>,
}

#[derive(Clone)]
enum Of {
    Layer(RateLimitLayer),
    Limiter(Limiter),
}

type Client = dyn Fn(&str) -> Option<Request<()>> + Send + Sync;

pub(super) type End = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Handle {
    /// Sets how the text that an operator types is converted to a client: to a request like one of that
    /// client. Keys, plan and operation are then read as from any request, so that a hash of an API key, or a
    /// plan, is right. `None` means that there is no such client. It applies to a layer; a [`Limiter`] reads
    /// no requests.
    ///
    /// The request is not counted, and the lists of the layer ignore it.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::key::{self, Secret};
    /// use tower_ratelimit::{RateLimitLayer, TokenBucket};
    /// use tower_ratelimit_ops::admin::Handle;
    ///
    /// let secret = Secret::of_the_process()?;
    /// let layer = RateLimitLayer::new(key::api_key().hashed(&secret), TokenBucket::per_second(5));
    /// let handle = Handle::from(&layer)
    ///     .client(|text| Request::get("/").header("x-api-key", text).body(()).ok());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn client(
        self,
        like: impl Fn(&str) -> Option<Request<()>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            client: Some(Arc::new(like)),
            ..self
        }
    }

    /// Ends all streams of events when this future is ready, and begins no others.
    ///
    /// A server that shuts down gracefully waits for its responses, and a stream of events has no end of its
    /// own. Give both the same signal: see [`admin`](super#shutdown).
    pub fn until(self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            until: Mutex::new(Some(Box::pin(end))),
            ..self
        }
    }

    fn new(of: Of, monitor: Monitor) -> Self {
        Self {
            of,
            monitor,
            client: None,
            until: Mutex::new(None),
        }
    }

    /// Takes the end of the streams, for the one task that waits for it.
    pub(super) fn take_end(&self) -> End {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until
            .take()
            .unwrap_or_else(|| Box::pin(std::future::pending()))
    }

    pub(super) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Returns the limiter in force.
    pub(super) fn limiter(&self) -> Limiter {
        match &self.of {
            Of::Layer(layer) => layer.limiter(),
            Of::Limiter(limiter) => limiter.clone(),
        }
    }

    /// Returns what a request like one of this client is charged at this cost, or `None` if there is no such client.
    pub(super) fn client_charges(&self, text: &str, cost: u32) -> Option<ClientCharges> {
        if let (Of::Layer(layer), Some(client)) = (&self.of, &self.client) {
            let request = client(text)?;
            return Some(layer.client_charges(&Head::of(&request), cost));
        }
        Some(ClientCharges::of_key(&self.limiter(), key(text), cost))
    }
}

fn key(text: &str) -> Key {
    match text.parse::<IpAddr>() {
        Ok(address) => address.into_key(),
        Err(_) => text.into_key(),
    }
}

impl From<&RateLimitLayer> for Handle {
    fn from(layer: &RateLimitLayer) -> Self {
        Self::new(Of::Layer(layer.clone()), layer.monitor())
    }
}

impl From<RateLimitLayer> for Handle {
    fn from(layer: RateLimitLayer) -> Self {
        Self::from(&layer)
    }
}

impl<L: ?Sized> From<Limiter<L>> for Handle
where
    Limiter<L>: Into<Limiter>,
{
    fn from(limiter: Limiter<L>) -> Self {
        let limiter = limiter.into();
        let monitor = limiter.monitor();
        Self::new(Of::Limiter(limiter), monitor)
    }
}

/// Leaves out closures.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("limiter", &self.limiter())
            .finish_non_exhaustive()
    }
}

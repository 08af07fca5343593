//! Whether the server is ready for requests.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tower_ratelimit::{Decision, Limiter};

use crate::ratelimit::RateLimits;

/// The time between two questions to a store that has not answered yet.
const AGAIN: Duration = Duration::from_millis(500);

/// The life of a server. A load balancer sends it requests while it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The store has not answered yet.
    Starting,
    /// The store has answered once. It may be away by now, and limits are decided as in an outage.
    Ready,
    /// The server has been told to stop, and serves on until load balancers have seen that.
    Draining,
    /// It accepts no more connections, and ends with the requests that have begun.
    Stopped,
}

impl Phase {
    pub(crate) fn why_not_ready(self) -> Option<&'static str> {
        match self {
            Self::Starting => Some("the store has not answered yet"),
            Self::Ready => None,
            Self::Draining | Self::Stopped => Some("the server stops"),
        }
    }
}

/// Makes the server ready once the store of its limits has answered, those of requests and those of descriptors. The store in this
/// process does so at once.
pub async fn become_ready(
    phase: watch::Sender<Phase>,
    limiter: Limiter,
    rate_limits: Option<RateLimits>,
) {
    // A key that no client has; it is read, and nothing is charged. While the store is away, this process answers in its place.
    let is_away =
        |peeked: Result<Decision, _>| peeked.map_or(true, |decision| decision.is_degraded());
    while is_away(limiter.peek("ratelimitd: ready?", 0).await) {
        sleep(AGAIN).await;
    }
    // Without a policy for requests, the first question has not gone to the store.
    if let Some(rate_limits) = rate_limits {
        while !rate_limits.reach_the_store().await {
            sleep(AGAIN).await;
        }
    }
    phase.send_if_modified(|phase| {
        let is_starting = *phase == Phase::Starting;
        if is_starting {
            *phase = Phase::Ready;
        }
        is_starting
    });
}

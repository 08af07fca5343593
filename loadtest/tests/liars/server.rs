//! Limiters, honest and broken, as functions of time.

use std::collections::HashMap;
use std::time::Duration;

use tower_ratelimit_core::algorithm::State;
use tower_ratelimit_core::{Algorithm, Micros, Outcome};

/// The answer of a server.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(&'static str, String)>,
    /// The time that the server takes to answer.
    pub(crate) takes: Duration,
}

/// The difference between a limiter and an honest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// `Retry-After` is always this time.
    Wait(u64),
    /// `remaining` never falls.
    ConstantRemaining,
    /// `remaining` rises where it should fall.
    RisingRemaining,
    /// `remaining` is too high by this number.
    MoreRemaining(u32),
    /// All requests pass around the edge of each aligned period.
    OpenEdges(Duration),
    /// The limit is another one.
    Limit(Algorithm),
    /// The limit of every second client is another one.
    SomeClients(Algorithm),
    /// The policy in the headers is another one.
    Policy(&'static str),
    /// Refusals take this long.
    SlowRefusals(Duration),
    /// A refusal charges the limit too.
    RefusalsCharge,
}

/// The headers of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Nothing,
    RetryAfter,
    Draft11,
    Draft06,
    XRateLimit,
}

/// A limiter, one state for each key.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) algorithm: Algorithm,
    pub(crate) lie: Lie,
    pub(crate) dialect: Dialect,
    /// Whether all clients share one key.
    pub(crate) counts_by_address: bool,
    /// A second limit, for all clients together.
    pub(crate) global: Option<Algorithm>,
    /// One of this many admitted requests fails, and its charge is given back.
    pub(crate) fails: Option<u32>,
    pub(crate) states: HashMap<Option<u32>, State>,
    pub(crate) admitted: u32,
}

impl Server {
    pub(crate) fn honest(algorithm: &str) -> Self {
        Self {
            algorithm: algorithm.parse().unwrap(),
            lie: Lie::None,
            dialect: Dialect::Draft11,
            counts_by_address: false,
            global: None,
            fails: None,
            states: HashMap::new(),
            admitted: 0,
        }
    }

    pub(crate) fn lying(algorithm: &str, lie: Lie) -> Self {
        Self {
            lie,
            ..Self::honest(algorithm)
        }
    }

    fn algorithm(&self, client: u32) -> Algorithm {
        match self.lie {
            Lie::Limit(other) => other,
            Lie::SomeClients(other) if client % 2 == 1 => other,
            _ => self.algorithm,
        }
    }

    pub(crate) fn decide(&mut self, now: Micros, client: u32) -> Reply {
        if let Lie::OpenEdges(width) = self.lie {
            let period = Micros::from(self.algorithm.period().unwrap()).get();
            if now.get() % period < Micros::from(width).get() {
                return Reply {
                    status: 200,
                    ..Reply::default()
                };
            }
        }
        let key = if self.counts_by_address { 0 } else { client };
        let algorithm = self.algorithm(client);
        let state = self.states.remove(&Some(key)).unwrap_or_default();
        let (outcome, mut after) = algorithm.step(state.clone(), now, 1);
        let mut binding = (outcome, algorithm);
        let mut allowed = outcome.is_allowed();
        if let Some(global) = self.global {
            let shared = self.states.remove(&None).unwrap_or_default();
            let (second, shared_after) = global.step(shared.clone(), now, 1);
            let fewer = second.remaining() < outcome.remaining();
            if second.retry_after() > outcome.retry_after() || (allowed && fewer) {
                binding = (second, global);
            }
            allowed &= second.is_allowed();
            self.states
                .insert(None, if allowed { shared_after } else { shared });
        }
        if !allowed {
            after = state;
        }
        if !allowed && self.lie == Lie::RefusalsCharge {
            after = algorithm.settle(after, now, 1);
        }
        if allowed {
            self.admitted += 1;
        }
        let fails = self
            .fails
            .is_some_and(|each| allowed && self.admitted.is_multiple_of(each));
        if fails {
            after = algorithm.refund(after, now, 1);
        }
        self.states.insert(Some(key), after);
        let mut reply = self.reply(&binding.0, &binding.1, allowed);
        if fails {
            reply.status = 500;
        }
        reply
    }

    fn reply(&self, outcome: &Outcome, algorithm: &Algorithm, allowed: bool) -> Reply {
        let quota = algorithm.limit().unwrap();
        let remaining = match self.lie {
            Lie::ConstantRemaining => quota - 1,
            Lie::RisingRemaining if allowed => quota - 1 - outcome.remaining(),
            Lie::MoreRemaining(more) => outcome.remaining() + more,
            _ => outcome.remaining(),
        };
        let wait = outcome
            .retry_after()
            .map(|wait| Micros::from(wait).ceil_secs());
        let wait = match self.lie {
            Lie::Wait(wait) if !allowed => Some(wait),
            _ => wait,
        };
        let window = Micros::from(algorithm.period().unwrap()).ceil_secs();
        let is_global = self.global == Some(*algorithm);
        let name = if is_global {
            "global"
        } else {
            algorithm.name()
        };
        let mut fields = Vec::new();
        if let Some(wait) = wait
            && self.dialect != Dialect::Nothing
        {
            fields.push(("retry-after", wait.to_string()));
        }
        let policy = match self.lie {
            Lie::Policy(policy) => policy.to_owned(),
            _ => format!("q={quota};w={window}"),
        };
        match self.dialect {
            Dialect::Nothing | Dialect::RetryAfter => {}
            Dialect::Draft11 => {
                fields.push(("ratelimit-policy", format!("\"{name}\";{policy}")));
                fields.push(("ratelimit", format!("\"{name}\";r={remaining};t=1")));
            }
            Dialect::Draft06 => {
                fields.push(("ratelimit-limit", quota.to_string()));
                fields.push(("ratelimit-remaining", remaining.to_string()));
                fields.push(("ratelimit-policy", format!("{quota};w={window}")));
            }
            Dialect::XRateLimit => {
                fields.push(("x-ratelimit-limit", quota.to_string()));
                fields.push(("x-ratelimit-remaining", remaining.to_string()));
            }
        }
        let takes = match self.lie {
            Lie::SlowRefusals(time) if !allowed => time,
            _ => Duration::from_micros(50),
        };
        Reply {
            status: if allowed { 200 } else { 429 },
            fields,
            takes,
        }
    }
}

//! How we stand with one server: what it has told, and what we have sent since.
//!
//! It never lets more calls go than are known to be allowed. An answer tells how many remained when
//! its call was decided on, and any call that was on its way at some time since the answer's own one
//! was sent may not have been counted by then: what remains after all of these is a number that the
//! server will not fall below, if nobody else uses the limit.

use std::time::Duration;

use tokio::time::Instant;

use super::told::Told;

/// While it is not known whether a call is allowed, one goes at a time, and one more for each such
/// time without an answer.
pub(super) const PACE: Duration = Duration::from_secs(1);

/// How long calls are held when a server says that there may be none and not for how long.
const UNTOLD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Standing {
    allowance: Allowance,
    held_until: Option<Instant>,
    in_flight: usize,
    /// How many calls have been sent, and how many before the last hold began.
    sent: u64,
    sent_before_hold: u64,
    last_sent: Option<Instant>,
    since_rest: SinceRest,
}

/// What may go while nothing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowance {
    /// Nothing was ever answered.
    Unknown,
    /// The server tells no limits, and has refused nothing.
    Unlimited,
    /// The server tells no limits, and has refused a call: so many may be on their way at once.
    InFlight(usize),
    /// So many more may be sent.
    Remaining(u64),
}

/// What was learnt since there was no call on its way.
#[derive(Clone, Copy, Debug, Default)]
struct SinceRest {
    fewest: Option<u64>,
    /// Calls whose answers nobody waited for, and that the server may have counted all the same.
    lost: u64,
}

/// What a call is told when it asks to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    Go,
    /// Not before this moment: the server has said so.
    NotBefore(Instant),
    /// Not before an answer, or this moment at the latest.
    NotBeforeAnswer(Instant),
}

/// How a call has come back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Back {
    Answered(Told),
    /// With an error of the client's.
    Failed,
    /// Whoever called did not wait for the answer.
    Lost,
}

/// A call that was sent: its number, and how many others were on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    number: u64,
    others: u64,
}

impl Standing {
    pub(super) fn new() -> Self {
        Self {
            allowance: Allowance::Unknown,
            held_until: None,
            in_flight: 0,
            sent: 0,
            sent_before_hold: 0,
            last_sent: None,
            since_rest: SinceRest::default(),
        }
    }

    pub(super) fn may(&self, now: Instant) -> May {
        if let Some(until) = self.held_until(now) {
            return May::NotBefore(until);
        }
        let is_known = match self.allowance {
            Allowance::Unlimited => true,
            Allowance::InFlight(most) => self.in_flight < most,
            Allowance::Remaining(calls) => calls > 0,
            Allowance::Unknown => false,
        };
        // What was lost may have been the last that was allowed.
        if is_known || (self.in_flight == 0 && self.since_rest.lost == 0) {
            return May::Go;
        }
        match self.last_sent.map(|sent| sent + PACE) {
            Some(next) if next > now => May::NotBeforeAnswer(next),
            _ => May::Go,
        }
    }

    /// The end of a hold that is not over.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        self.held_until.filter(|until| *until > now)
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.in_flight == 0
    }

    /// A call goes.
    pub(super) fn send(&mut self, now: Instant) -> Sent {
        let sent = Sent {
            number: self.sent,
            others: self.in_flight as u64,
        };
        self.sent += 1;
        self.in_flight += 1;
        self.last_sent = Some(now);
        if let Allowance::Remaining(calls) = &mut self.allowance {
            *calls = calls.saturating_sub(1);
        }
        sent
    }

    /// A call has come back.
    pub(super) fn back(&mut self, call: Sent, with: Back, longest: Duration, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match with {
            Back::Answered(told) => self.heed(call, told, longest, now),
            Back::Failed => self.fail(now),
            Back::Lost => self.since_rest.lost += 1,
        }
        if self.in_flight == 0 {
            self.rest(now);
        }
    }

    /// A server that cannot be reached is no reason to queue for it: each failure lets two go.
    fn fail(&mut self, now: Instant) {
        let is_held = self.held_until(now).is_some();
        self.allowance = match self.allowance {
            Allowance::Unknown => Allowance::InFlight(2),
            Allowance::Remaining(0) if !is_held => Allowance::InFlight(2),
            Allowance::InFlight(most) if !is_held => Allowance::InFlight(most.saturating_add(1)),
            known => known,
        };
    }

    fn heed(&mut self, call: Sent, told: Told, longest: Duration, now: Instant) {
        if told.is_refused {
            return self.hold(told, longest, now);
        }
        let Some(remaining) = told.remaining else {
            self.allowance = match self.allowance {
                Allowance::Unknown => Allowance::Unlimited,
                Allowance::InFlight(most) => Allowance::InFlight(most.saturating_add(1)),
                // The server has ceased to tell.
                Allowance::Remaining(0) if self.held_until(now).is_none() => Allowance::InFlight(1),
                known => known,
            };
            return;
        };
        let is_held = self.held_until(now).is_some();
        let is_of_before = call.number < self.sent_before_hold;
        if remaining == 0 {
            // Of a hold that is over, an answer of before it tells what was told already.
            if is_held || !is_of_before {
                self.hold(told, longest, now);
            }
            return;
        }
        if is_held {
            return;
        }
        let meanwhile = call.others + (self.sent - call.number - 1);
        let at_least = remaining.saturating_sub(meanwhile);
        self.allowance = Allowance::Remaining(match self.allowance {
            // Whoever else uses the limit makes it less than was known.
            Allowance::Remaining(calls) => calls.max(at_least).min(remaining),
            _ => at_least,
        });
        if !is_of_before {
            let fewest = &mut self.since_rest.fewest;
            *fewest = Some(fewest.map_or(remaining, |fewest| fewest.min(remaining)));
        }
    }

    fn hold(&mut self, told: Told, longest: Duration, now: Instant) {
        let wait = told.wait.unwrap_or(UNTOLD).min(longest);
        let until = now + wait;
        if self.held_until(now).is_none() {
            self.sent_before_hold = self.sent;
        }
        self.held_until = self.held_until.max(Some(until));
        let tells = told.remaining.is_some() || matches!(self.allowance, Allowance::Remaining(_));
        // Nothing is known of what will be there afterwards, and so one goes ahead of the others.
        self.allowance = if tells {
            Allowance::Remaining(0)
        } else {
            Allowance::InFlight(1)
        };
        self.since_rest = SinceRest::default();
    }

    /// Nothing is on its way: what the last one left is there, and it was told as the fewest.
    fn rest(&mut self, now: Instant) {
        let SinceRest { fewest, lost } = self.since_rest;
        if let Some(fewest) = fewest
            && self.held_until(now).is_none()
            && let Allowance::Remaining(calls) = &mut self.allowance
        {
            *calls = fewest.saturating_sub(lost).max(*calls);
            if *calls > 0 {
                self.since_rest = SinceRest::default();
            }
        }
    }
}

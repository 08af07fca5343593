//! The known limit of one server: its last announcement, and the number of calls since.
//!
//! No more calls go than are known to be allowed. A response says how many calls remained when the server decided
//! on its call. Any other call that was on its way since that call was sent may not have been counted by then.
//! The layer subtracts all of these: if no other client uses the limit, at least the rest remains. A call whose caller has
//! given up counts as on its way for one to two seconds more, in which the server may still count it.

use std::time::Duration;

use tokio::time::Instant;

use super::advice::Advice;

/// While it is not known whether a call is allowed, one call goes at a time, and one more after each such time
/// without a response.
pub(super) const PACE: Duration = Duration::from_secs(1);

/// How long calls are held if a server wants none and announces no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Throttle {
    allowance: Allowance,
    hold_end: Option<Instant>,
    in_flight: usize,
    /// The number of calls sent so far, and before the last hold began.
    sent: u64,
    sent_before_hold: u64,
    last_sent: Option<Instant>,
    lost: Lost,
    since_rest: SinceRest,
}

/// Which calls may go while calls are not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowance {
    /// The server has not responded yet.
    Unknown,
    /// The server announces no limits, and has refused no call.
    Unlimited,
    /// The server announces no limits, and has refused a call: this many may be on their way at once.
    InFlight(usize),
    /// This many more calls may be sent.
    Remaining(u64),
}

/// The facts that were learnt since no call was in flight.
#[derive(Clone, Copy, Debug, Default)]
struct SinceRest {
    fewest: Option<u64>,
    /// Calls that were dropped on their way since then or shortly before, which the server may have counted all the same.
    lost: u64,
}

/// The number of calls that were dropped on their way in the last second, or in the one before.
///
/// A server responds within a second, or its announcements are worth little. The response to a call that is sent later has
/// counted them.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    since: Option<Instant>,
    now: u64,
    before: u64,
}

impl Lost {
    fn add(&mut self, now: Instant) {
        let before = self.at(now);
        match self.since {
            Some(since) if now < since + PACE => {}
            _ => {
                (self.before, self.now) = (before, 0);
                self.since = Some(now);
            }
        }
        self.now += 1;
    }

    fn at(&self, now: Instant) -> u64 {
        match self.since {
            Some(since) if now < since + PACE => self.before + self.now,
            Some(since) if now < since + 2 * PACE => self.now,
            _ => 0,
        }
    }
}

/// Whether a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPermission {
    Go,
    /// Not before this moment, which the server has announced.
    NotBefore(Instant),
    /// Not before a response, or this moment at the latest.
    NotBeforeAnswer(Instant),
}

/// How a call has come back.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallResult {
    Answered(Advice),
    /// The call ended with an error of the client.
    Failed,
    /// Its caller did not wait for the response.
    Lost,
}

/// A call that was sent: its number, and how many others were on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    number: u64,
    others: u64,
}

impl Throttle {
    pub(super) fn new() -> Self {
        Self {
            allowance: Allowance::Unknown,
            hold_end: None,
            in_flight: 0,
            sent: 0,
            sent_before_hold: 0,
            last_sent: None,
            lost: Lost::default(),
            since_rest: SinceRest::default(),
        }
    }

    pub(super) fn may(&self, now: Instant) -> CallPermission {
        if let Some(until) = self.hold_end(now) {
            return CallPermission::NotBefore(until);
        }
        let is_known = match self.allowance {
            Allowance::Unlimited => true,
            Allowance::InFlight(most) => self.in_flight < most,
            Allowance::Remaining(calls) => calls > 0,
            Allowance::Unknown => false,
        };
        // A lost call may have been the last that was allowed.
        if is_known || (self.in_flight == 0 && self.since_rest.lost == 0) {
            return CallPermission::Go;
        }
        match self.last_sent.map(|sent| sent + PACE) {
            Some(next) if next > now => CallPermission::NotBeforeAnswer(next),
            _ => CallPermission::Go,
        }
    }

    /// The end of a hold that is not over.
    pub(super) fn hold_end(&self, now: Instant) -> Option<Instant> {
        self.hold_end.filter(|until| *until > now)
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.in_flight == 0
    }

    /// A call goes.
    pub(super) fn send(&mut self, now: Instant) -> Sent {
        let sent = Sent {
            number: self.sent,
            others: self.in_flight as u64 + self.lost.at(now),
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
    pub(super) fn back(&mut self, call: Sent, with: CallResult, longest: Duration, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match with {
            CallResult::Answered(advice) => self.apply_advice(call, advice, longest, now),
            CallResult::Failed => self.fail(now),
            CallResult::Lost => {
                self.since_rest.lost += 1;
                self.lost.add(now);
            }
        }
        if self.in_flight == 0 {
            self.rest(now);
        }
    }

    /// Calls do not queue for a server that cannot be reached: each failure lets two calls go.
    fn fail(&mut self, now: Instant) {
        let is_on_hold = self.hold_end(now).is_some();
        self.allowance = match self.allowance {
            Allowance::Unknown => Allowance::InFlight(2),
            Allowance::Remaining(0) if !is_on_hold => Allowance::InFlight(2),
            Allowance::InFlight(most) if !is_on_hold => Allowance::InFlight(most.saturating_add(1)),
            known => known,
        };
    }

    fn apply_advice(&mut self, call: Sent, advice: Advice, longest: Duration, now: Instant) {
        if advice.is_refused {
            return self.hold(advice, longest, now);
        }
        let Some(remaining) = advice.remaining else {
            self.allowance = match self.allowance {
                Allowance::Unknown => Allowance::Unlimited,
                Allowance::InFlight(most) => Allowance::InFlight(most.saturating_add(1)),
                // The server has ceased to announce its limit.
                Allowance::Remaining(0) if self.hold_end(now).is_none() => Allowance::InFlight(1),
                known => known,
            };
            return;
        };
        let is_on_hold = self.hold_end(now).is_some();
        let is_of_before = call.number < self.sent_before_hold;
        if remaining == 0 {
            // A response from before a hold that is over announces nothing new.
            if is_on_hold || !is_of_before {
                self.hold(advice, longest, now);
            }
            return;
        }
        if is_on_hold {
            return;
        }
        let meanwhile = call.others + (self.sent - call.number - 1);
        let at_least = remaining.saturating_sub(meanwhile);
        self.allowance = Allowance::Remaining(match self.allowance {
            // Other clients may use the limit too.
            Allowance::Remaining(calls) => calls.max(at_least).min(remaining),
            _ => at_least,
        });
        if !is_of_before {
            let fewest = &mut self.since_rest.fewest;
            *fewest = Some(fewest.map_or(remaining, |fewest| fewest.min(remaining)));
        }
    }

    fn hold(&mut self, advice: Advice, longest: Duration, now: Instant) {
        let wait = advice.wait.unwrap_or(DEFAULT_WAIT).min(longest);
        let until = now + wait;
        if self.hold_end(now).is_none() {
            self.sent_before_hold = self.sent;
        }
        self.hold_end = self.hold_end.max(Some(until));
        let tells = advice.remaining.is_some() || matches!(self.allowance, Allowance::Remaining(_));
        // The remaining number after the hold is unknown, so one call goes ahead of the others.
        self.allowance = if tells {
            Allowance::Remaining(0)
        } else {
            Allowance::InFlight(1)
        };
        self.since_rest = SinceRest::default();
    }

    /// No call is on its way: at least the fewest that were announced remain.
    fn rest(&mut self, now: Instant) {
        let SinceRest { fewest, lost } = self.since_rest;
        if let Some(fewest) = fewest
            && self.hold_end(now).is_none()
            && let Allowance::Remaining(calls) = &mut self.allowance
        {
            *calls = fewest.saturating_sub(lost).max(*calls);
            if *calls > 0 {
                self.since_rest = SinceRest {
                    fewest: None,
                    lost: self.lost.at(now),
                };
            }
        }
    }
}

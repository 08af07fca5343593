//! A limit that depends on the hour: another one at night, at weekends or on a date.

mod hours;
mod lua_text;
mod schedule;
mod step;

use std::sync::Arc;

pub use self::hours::{HourlyLimit, Hours};

pub(crate) use self::step::Timed;

use self::schedule::Schedule;
use self::step::OfAlgorithm;
use super::calendar_window::Packed as PackedCalendar;
use super::kind::{Kind, Replenishment, match_kind};
use super::{Algorithm, AnchoredWindow, AnyLong, AnyRule, FixedWindow, Limit, Pack, WithRule};
use crate::calendar::{Interval, LocalTime, Timetable};
use crate::clock::Micros;
use crate::decision::{HoursAt, HoursNow, LimitRule, WindowSecs};
use crate::error::ConfigError;
use crate::quota::Quota;

/// An algorithm whose limit depends on the hour, made by [`Hours`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByHours {
    schedule: Schedule,
    /// The limit of the request.
    limit: Limit,
    /// Whether that is the policy's own.
    is_own: bool,
}

impl ByHours {
    fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            limit: schedule.limit(),
            is_own: true,
        }
    }

    /// Returns the algorithm outside all intervals.
    pub(crate) fn plain(&self) -> Algorithm {
        self.in_force(0)
    }

    /// Returns the algorithm in the interval with this index, counted from 1; 0 for none.
    #[inline]
    pub(super) fn in_force(&self, place: u8) -> Algorithm {
        if self.is_own {
            return self.schedule.algorithm(place);
        }
        let (limit, reserve) = self.limit.and_reserve();
        let algorithm = self.schedule.algorithm_under(limit, place);
        if reserve == 0 {
            return algorithm;
        }
        let left = algorithm.limits();
        let left = left.and_then(|limit| algorithm.leaving(limit, reserve));
        let left = left.unwrap_or_else(|| Limit::new(0, 0));
        algorithm.under(left).unwrap_or(algorithm)
    }

    /// Returns the algorithm in force under the policy's own limit, if the present hours alone determine the
    /// state: no debt was written under other hours and has to drain through them first.
    #[inline]
    pub(in crate::algorithm) fn in_force_for(
        &self,
        words: &[u64; 3],
        now: Micros,
    ) -> Option<&'static Algorithm> {
        let present = self.timetable().at(now);
        let is_behind = self.drains()
            && AnyRule::owes_since(words).is_some_and(|since| since < present.span.from);
        let is_simple = self.is_own && !is_behind;
        is_simple.then(|| self.schedule.at(present.place))?
    }

    /// Returns whether the limit of an interval differs from the policy's own, and the time to which it
    /// applies.
    #[inline]
    pub(super) fn window_of(&self, place: u8) -> (bool, Option<WindowSecs>) {
        if self.is_own {
            return self.schedule.window(place);
        }
        let limit = self.in_force(place);
        (limit != self.plain(), limit.period().map(WindowSecs::of))
    }

    /// Returns the interval of a moment.
    fn at(&self, now: Micros) -> HoursNow {
        let timetable = self.timetable();
        let place = timetable.at(now).place;
        let interval = timetable.interval(place);
        HoursNow {
            gives_limit: self.schedule.gives_limit(place),
            zone: timetable.zone().name(),
            interval: interval.map(Interval::text),
            ends: timetable.ends(now),
        }
    }

    /// Returns the algorithm in force at a moment.
    pub(crate) fn in_force_at(&self, now: Micros) -> Algorithm {
        self.in_force(self.timetable().at(now).place)
    }

    /// Explains the limit that `rule` gives: the algorithm in force at a time, by default now, and the rules that give it.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn explain(&self, rule: LimitRule, at: Option<LocalTime>) -> (Algorithm, Vec<LimitRule>) {
        // The first moment at which the clock of the zone shows this time, or a later time if it never shows this time.
        let moment = at.map_or_else(
            || Some(Micros::by_this_node()),
            |at| self.timetable().zone().moment(at),
        );
        let moment = moment.unwrap_or(Micros::ZERO);
        let now = self.at(moment);
        let rules = match now.interval() {
            Some(interval) if !now.gives_limit => vec![rule, LimitRule::Hours(interval.into())],
            // The limit that was chosen is the policy's own, which an interval with a limit replaces.
            Some(interval) if self.is_own => vec![LimitRule::Hours(interval.into())],
            // The limit of an interval does not replace that of another rule.
            None | Some(_) => vec![rule],
        };
        (self.in_force_at(moment), rules)
    }

    #[inline]
    pub(crate) fn timetable(&self) -> Timetable {
        self.schedule.timetable()
    }

    /// Returns whether a state is a debt.
    #[inline]
    fn drains(&self) -> bool {
        self.schedule.drains()
    }

    /// Returns all indices.
    pub(super) fn places(&self) -> impl Iterator<Item = u8> {
        0..=self.schedule.intervals()
    }

    /// Returns each algorithm that may be in force.
    pub(crate) fn each(&self) -> impl Iterator<Item = Algorithm> {
        self.places().map(|place| self.in_force(place))
    }

    /// Passes the rule of windows, whose counts are the same under all limits and so fit one word.
    fn with_windows<R: OfAlgorithm + Pack, W: WithRule>(self, act: W) -> W::Result {
        act.in_two_forms(Timed::<AnyRule>::new(self), || {
            // The word has room for the counts of the policy's own limits.
            let is_small = |algorithm: Algorithm| algorithm.limit() <= Some(PackedCalendar::MOST);
            let fits = self.is_own && self.each().all(is_small);
            fits.then(|| Timed::<R>::new(self))
        })
    }

    /// Returns the algorithm with the least rate and the largest size of all intervals, which has the longest
    /// wait.
    pub(crate) fn slowest(&self) -> Algorithm {
        let plain = self.plain();
        let limits = || self.each().filter_map(|algorithm| algorithm.limits());
        let rates = limits().map(Limit::quota).filter(|quota| *quota > 0);
        let least = rates.min().unwrap_or_default();
        let most = limits().map(Limit::size).max().unwrap_or_default();
        plain.under(Limit::new(least, most)).unwrap_or(plain)
    }

    /// Returns the index with the least units that are not 0.
    fn least(&self) -> u8 {
        self.schedule.least()
    }

    /// Returns the algorithm with the most units.
    #[inline]
    fn widest(&self) -> Algorithm {
        self.schedule.algorithm(self.schedule.most())
    }

    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    pub(super) fn under(self, limit: Limit) -> Option<Self> {
        // Without a calendar of its own, the limit has that of the policy.
        let (limit, reserve) = limit.and_reserve();
        let own = self.schedule.algorithm(0);
        let limit = own.under(limit)?.limits()?;
        let limit = Algorithm::from(self).leaving(limit, reserve)?;
        let is_own = limit == self.schedule.limit();
        Some(Self {
            limit,
            is_own,
            ..self
        })
    }

    /// Returns the same hours with each limit changed.
    pub(super) fn with_each_limit(self, change: &dyn Fn(Limit) -> Limit) -> Self {
        let schedule = self.schedule.with_each_limit(change);
        let limit = change(self.limit);
        Self {
            schedule,
            limit,
            is_own: limit == schedule.limit(),
        }
    }
}

impl Algorithm {
    /// Returns a description of its hours, if it has any.
    pub(crate) fn hours_at_fn(&self) -> Option<HoursAt> {
        match *self {
            Self::ByHours(hours) => Some(Arc::new(move |now| hours.at(now))),
            _ => None,
        }
    }
}

impl Kind for ByHours {
    const NAME: &'static str = "by-hours";

    fn of_number(quota: Quota, _: Option<u32>) -> Result<Self, ConfigError> {
        let remedy = "give the algorithm alone, and its hours beside it";
        Err(ConfigError::new("algorithm", quota, remedy))
    }

    fn quota(&self) -> Quota {
        let none = Quota::of_micros(self.limit.quota(), Micros::from_secs(1));
        match_kind!(self.plain(), kind => kind.quota(), none)
    }

    fn name(&self) -> &'static str {
        self.schedule.algorithm(0).name()
    }

    fn size(&self) -> u32 {
        self.limit.size()
    }

    fn slots(&self) -> Option<u32> {
        match_kind!(self.schedule.algorithm(0), kind => Kind::slots(&kind), None)
    }

    fn refunds_newest(&self) -> Option<Micros> {
        match_kind!(self.schedule.algorithm(0), kind => kind.refunds_newest(), None)
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::ByHours
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        match self.schedule.algorithm(0) {
            Algorithm::SlidingLog(_) | Algorithm::SlidingSlots(_) => {
                act.long(AnyLong::new((*self).into()))
            }
            Algorithm::FixedWindow(_) => self.with_windows::<FixedWindow, W>(act),
            Algorithm::AnchoredWindow(_) => self.with_windows::<AnchoredWindow, W>(act),
            Algorithm::CalendarWindow(_) => self.with_windows::<PackedCalendar, W>(act),
            _ => act.fixed(Timed::<AnyRule>::new(*self)),
        }
    }

    fn lua(&self) -> super::Lua {
        let slowest = self.slowest();
        let none = super::Lua::of_numbers("unlimited", "", [0; 4]);
        let lua = match_kind!(slowest, kind => kind.lua(), none);
        super::Lua {
            hours: Some(*self),
            ..lua
        }
    }

    fn show(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match_kind!(self.plain(), kind => kind.show(f), Ok(()))?;
        f.write_str(" by hours")
    }
}

use std::any::Any;
use std::sync::Arc;

#[cfg(feature = "quanta")]
use super::QuantaClock;
use super::{Clock, Micros, SystemClock};

/// The clock of a store. The clocks for production are variants, because a virtual call takes a
/// tenth of the time of a decision.
#[derive(Clone)]
pub(crate) enum AnyClock {
    System(SystemClock),
    #[cfg(feature = "quanta")]
    Quanta(QuantaClock),
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    pub(crate) fn of(clock: impl Clock) -> Self {
        let named: &dyn Any = &clock;
        if let Some(system) = named.downcast_ref() {
            return Self::System(*system);
        }
        #[cfg(feature = "quanta")]
        if let Some(quanta) = named.downcast_ref() {
            return Self::Quanta(*quanta);
        }
        Self::Other(Arc::new(clock))
    }

    /// Returns a clock that may have [timers](Clock::sleep_until) of its own.
    pub(crate) fn other(&self) -> Option<Arc<dyn Clock>> {
        match self {
            Self::Other(other) => Some(Arc::clone(other)),
            Self::System(_) => None,
            #[cfg(feature = "quanta")]
            Self::Quanta(_) => None,
        }
    }
}

impl Clock for AnyClock {
    #[inline]
    fn now(&self) -> Micros {
        match self {
            Self::System(system) => system.now(),
            #[cfg(feature = "quanta")]
            Self::Quanta(quanta) => quanta.now(),
            Self::Other(other) => other.now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn the_clocks_of_production_are_known_by_name_and_all_are_read() {
        assert!(matches!(
            AnyClock::of(SystemClock::new()),
            AnyClock::System(_)
        ));
        #[cfg(feature = "quanta")]
        assert!(matches!(
            AnyClock::of(QuantaClock::new()),
            AnyClock::Quanta(_)
        ));
        let manual = ManualClock::new();
        let any = AnyClock::of(manual.clone());
        assert!(matches!(any, AnyClock::Other(_)));
        manual.set_micros(Micros::new(7));
        assert_eq!(any.now(), Micros::new(7));
        let system = SystemClock::new();
        let before = system.now();
        let between = AnyClock::of(system).now();
        assert!(before <= between && between <= system.now());
    }
}

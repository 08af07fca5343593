//! The events to come, in the order of time.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// The event and its subject: an index in the list of streams, messages or pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Arrival { stream: usize },
    AtServer { message: usize },
    Served { message: usize },
    Answered { message: usize },
    Failed { message: usize },
    Look { pair: usize },
    Fault,
}

/// Most events are arrivals, of which each stream has one, and looks, which are all scheduled after the same
/// time. Lists of their own make them cheaper.
///
/// At the same moment, arrivals come first and looks second; other events keep their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    arrivals: BinaryHeap<Reverse<(u64, usize)>>,
    looks: VecDeque<(u64, usize)>,
}

impl Queue {
    /// Schedules an event at this moment.
    pub(super) fn at(&mut self, at: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, what)));
    }

    /// Schedules the first request of a stream.
    pub(super) fn arrives(&mut self, at: u64, stream: usize) {
        self.arrivals.push(Reverse((at, stream)));
    }

    /// Schedules the next request of the stream that [`next`](Self::next) has returned last.
    pub(super) fn arrives_again(&mut self, at: u64) {
        if let Some(mut first) = self.arrivals.peek_mut() {
            first.0.0 = at;
        }
    }

    /// Schedules a look at a pair. No look that was scheduled before comes later.
    pub(super) fn looks(&mut self, at: u64, pair: usize) {
        self.looks.push_back((at, pair));
    }

    /// Returns the next event and its time. An arrival stays until the next one of its stream replaces it.
    pub(super) fn next(&mut self) -> Option<(u64, What)> {
        let never = u64::MAX;
        let arrival = self.arrivals.peek().map_or(never, |first| first.0.0);
        let look = self.looks.front().map_or(never, |first| first.0);
        let event = self.events.peek().map_or(never, |first| first.0.0);
        if arrival <= look && arrival <= event {
            let &Reverse((at, stream)) = self.arrivals.peek()?;
            return Some((at, What::Arrival { stream }));
        }
        if look <= event {
            let (at, pair) = self.looks.pop_front()?;
            return Some((at, What::Look { pair }));
        }
        let Reverse((at, _, what)) = PeekMut::pop(self.events.peek_mut()?);
        Some((at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time() {
        let mut queue = Queue::default();
        queue.at(30, What::Fault);
        queue.at(10, What::Served { message: 1 });
        queue.at(10, What::Failed { message: 0 });
        queue.arrives(20, 7);
        queue.arrives(10, 8);
        queue.looks(10, 5);
        queue.looks(25, 6);
        let mut seen = Vec::new();
        while let Some((at, what)) = queue.next() {
            if let What::Arrival { .. } = what {
                queue.arrives_again(at + 100);
            }
            if at > 100 {
                break;
            }
            seen.push((at, what));
        }
        let expected = [
            (10, What::Arrival { stream: 8 }),
            (10, What::Look { pair: 5 }),
            (10, What::Served { message: 1 }),
            (10, What::Failed { message: 0 }),
            (20, What::Arrival { stream: 7 }),
            (25, What::Look { pair: 6 }),
            (30, What::Fault),
        ];
        assert_eq!(seen, expected);
    }
}

//! Puts answers in the order in which their requests were sent.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::exchange::Exchange;

/// Holds answers back until those of earlier requests have arrived.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The number of the first request in the list.
    first: u64,
    waiting: VecDeque<Slot>,
}

#[derive(Debug)]
enum Slot {
    /// The result if no answer comes.
    Sent(Exchange),
    Answered(Exchange),
}

impl Order {
    /// The most requests that are held. Beyond that, the outcome of the oldest one is unknown.
    const LONGEST: usize = 1 << 16;

    /// Returns the number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    /// Records a request that was sent; `unknown` is its result if no answer comes. Returns the next answers in
    /// order.
    pub(super) fn sent(&mut self, unknown: Exchange) -> Vec<Arc<Exchange>> {
        self.waiting.push_back(Slot::Sent(unknown));
        let mut ready = Vec::new();
        if self.waiting.len() > Self::LONGEST {
            self.take_first(&mut ready);
            self.take_answered(&mut ready);
        }
        ready
    }

    /// Records an answer. Returns the next answers in order.
    pub(super) fn answered(&mut self, answer: Exchange) -> Vec<Arc<Exchange>> {
        let mut ready = Vec::new();
        // A number below the first belongs to an answer that came too late.
        let place = answer.number.checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(slot) = place.and_then(|place| self.waiting.get_mut(place)) {
            *slot = Slot::Answered(answer);
            self.take_answered(&mut ready);
        }
        ready
    }

    /// Returns the rest, when no more answers come.
    pub(super) fn rest(&mut self) -> Vec<Arc<Exchange>> {
        let mut ready = Vec::new();
        while !self.waiting.is_empty() {
            self.take_first(&mut ready);
        }
        ready
    }

    fn take_answered(&mut self, ready: &mut Vec<Arc<Exchange>>) {
        while let Some(Slot::Answered(_)) = self.waiting.front() {
            self.take_first(ready);
        }
    }

    fn take_first(&mut self, ready: &mut Vec<Arc<Exchange>>) {
        if let Some(Slot::Sent(answer) | Slot::Answered(answer)) = self.waiting.pop_front() {
            ready.push(Arc::new(answer));
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::exchange::{Failure, Verdict};
    use crate::info::RateLimitInfo;

    fn answer(number: u64, verdict: Verdict) -> Exchange {
        Exchange {
            number,
            client: 0,
            node: 0,
            sent: Duration::from_millis(number),
            received: Duration::MAX,
            verdict,
            info: RateLimitInfo::default(),
        }
    }

    fn unknown(number: u64) -> Exchange {
        answer(number, Verdict::Failed(Failure::Timeout))
    }

    fn numbers(ready: &[Arc<Exchange>]) -> Vec<u64> {
        ready.iter().map(|answer| answer.number).collect()
    }

    #[test]
    fn answers_come_out_in_the_order_of_sending() {
        let mut order = Order::default();
        for number in 0..4 {
            assert_eq!(order.next(), number);
            assert!(order.sent(unknown(number)).is_empty());
        }
        assert!(order.answered(answer(2, Verdict::Allowed)).is_empty());
        assert!(order.answered(answer(1, Verdict::Limited)).is_empty());
        let ready = order.answered(answer(0, Verdict::Allowed));
        assert_eq!(numbers(&ready), [0, 1, 2]);
        let rest = order.rest();
        assert_eq!(numbers(&rest), [3]);
        assert_eq!(rest[0].verdict, Verdict::Failed(Failure::Timeout));
    }

    #[test]
    fn a_request_that_is_never_answered_does_not_hold_memory() {
        let mut order = Order::default();
        let mut out = 0;
        order.sent(unknown(0));
        for number in 1..200_000 {
            out += order.sent(unknown(number)).len();
            out += order.answered(answer(number, Verdict::Allowed)).len();
            assert!(order.waiting.len() <= Order::LONGEST);
        }
        assert_eq!(out, 200_000);
        assert!(order.answered(answer(0, Verdict::Allowed)).is_empty());
    }
}

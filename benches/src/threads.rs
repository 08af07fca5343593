//! Threads that work at the same time, started once.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Workers that wait for an order to repeat their work.
#[derive(Debug)]
pub struct Crew {
    orders: Vec<Sender<u64>>,
    spans: Vec<Receiver<(Instant, Instant)>>,
}

impl Crew {
    /// Starts a thread for each worker and hands out the crew; the threads end with it.
    ///
    /// A worker keeps its state between two orders: a walk over keys goes on where it was.
    pub fn of<W: FnMut(u64) + Send>(workers: Vec<W>, then: impl FnOnce(&Crew)) {
        let start = Barrier::new(workers.len());
        thread::scope(|scope| {
            let mut crew = Crew {
                orders: Vec::new(),
                spans: Vec::new(),
            };
            for mut work in workers {
                let (order, orders) = channel();
                let (span, spans) = channel();
                crew.orders.push(order);
                crew.spans.push(spans);
                let start = &start;
                scope.spawn(move || {
                    for times in orders {
                        start.wait();
                        let begin = Instant::now();
                        work(times);
                        if span.send((begin, Instant::now())).is_err() {
                            break;
                        }
                    }
                });
            }
            then(&crew);
        });
    }

    /// Makes all workers repeat their work this often at the same time, and returns the time from the first
    /// start to the last end.
    pub fn run(&self, times: u64) -> Duration {
        for order in &self.orders {
            order.send(times).expect("the worker waits for orders");
        }
        let spans: Vec<_> = self.spans.iter().map(Receiver::recv).collect();
        let spans = spans
            .into_iter()
            .map(|span| span.expect("no worker panics"));
        let (begins, ends): (Vec<_>, Vec<_>) = spans.unzip();
        let first = begins.into_iter().min().expect("there are workers");
        let last = ends.into_iter().max().expect("there are workers");
        last - first
    }
}

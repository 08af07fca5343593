//! Sends the requests and collects the answers.
//!
//! A closed loop sends a request after an earlier answer; without checks it runs on a thread for each
//! processor. An open loop sends requests at times of their own. Checks, waits and open loops run on one
//! thread: the order of sending is known there.

mod arrivals;
mod connection;
mod load;
mod processor;
mod tally;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::arrivals::Arrivals;
pub use self::load::Load;
pub use self::tally::Tally;

use self::worker::{Counted, Tickets};
use crate::judge::Judgement;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The counts.
    pub tally: Tally,
    /// The result of the checks, if there were any, else what the headers said.
    pub judgement: Judgement,
    /// The share of one processor that the tester has used, if the system tells it.
    pub processor: Option<f64>,
    /// The number of threads that sent requests.
    pub threads: usize,
}

/// The shared state of the threads of a run.
#[derive(Debug)]
struct RunState {
    begin: Instant,
    /// The requests of a closed loop that have begun.
    begun: AtomicU64,
    answered: Arc<AtomicU64>,
    stop: watch::Receiver<bool>,
}

impl RunState {
    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

/// Runs a load to its end, or until `interrupted` is ready.
///
/// `answered` counts the answers in the meantime.
///
/// # Errors
///
/// The error of the system if a thread cannot be started.
pub async fn run(
    load: Load,
    answered: Arc<AtomicU64>,
    interrupted: impl Future<Output = ()>,
) -> io::Result<Outcome> {
    let (stopping, stop) = watch::channel(false);
    let threads = load.threads();
    let before = processor::used();
    let run = Arc::new(RunState {
        begin: Instant::now(),
        begun: AtomicU64::new(0),
        answered,
        stop,
    });
    let length = load.length;
    let load = Arc::new(load);
    let mut arrivals = None;
    let mut running: Vec<JoinHandle<io::Result<Counted>>> = Vec::new();
    for thread in 0..threads {
        let tickets = match load.arrivals {
            Some(times) => {
                let (sender, receiver) = mpsc::channel(QUEUE);
                let (load, run) = (Arc::clone(&load), Arc::clone(&run));
                let unsent = move || send_arrivals(times, &load, &run, &sender);
                arrivals = Some(tokio::task::spawn_blocking(unsent));
                Tickets::Open(tokio::sync::Mutex::new(receiver))
            }
            None => Tickets::Closed,
        };
        let (load, run) = (Arc::clone(&load), Arc::clone(&run));
        running.push(tokio::task::spawn_blocking(move || {
            worker::thread(&load, &run, thread, tickets)
        }));
    }
    let end = async {
        tokio::select! {
            () = tokio::time::sleep(length) => {}
            () = interrupted => {}
        }
        stopping.send_replace(true);
    };
    let finish = async {
        let mut counted: Option<Counted> = None;
        for thread in running {
            let thread = thread.await.map_err(io::Error::other)??;
            match &mut counted {
                Some(counted) => counted.add(thread),
                None => counted = Some(thread),
            }
        }
        counted.ok_or_else(|| io::Error::other("there is no thread"))
    };
    let counted = alongside(finish, end).await?;
    let mut tally = counted.tally;
    if let Some(arrivals) = arrivals {
        tally.unsent += arrivals.await.map_err(io::Error::other)?;
    }
    let elapsed = run.now().as_secs_f64();
    let after = processor::used();
    Ok(Outcome {
        tally,
        judgement: counted.judge.conclude(),
        processor: after.zip(before).map(|(after, before)| {
            (after.saturating_sub(before)).as_secs_f64() / elapsed.max(f64::MIN_POSITIVE)
        }),
        threads,
    })
}

/// Returns the result of the first future, while the second runs beside it.
async fn alongside<T>(first: impl Future<Output = T>, second: impl Future<Output = ()>) -> T {
    let mut first = std::pin::pin!(first);
    tokio::select! {
        result = &mut first => result,
        () = second => first.await,
    }
}

/// The most arrivals that wait to be sent.
const QUEUE: usize = 100_000;

/// Passes the arrivals on at their times, and returns how many found no place.
///
/// A thread of its own sleeps more exactly than a timer of the runtime.
fn send_arrivals(
    arrivals: Arrivals,
    load: &Load,
    run: &RunState,
    sender: &mpsc::Sender<Duration>,
) -> u64 {
    let mut unsent = 0;
    let requests = usize::try_from(load.requests).unwrap_or(usize::MAX);
    let times = arrivals.times(load.seed).take(requests);
    for time in times.take_while(|time| *time < load.length) {
        while let Some(rest) = time.checked_sub(run.now()).filter(|rest| !rest.is_zero()) {
            if *run.stop.borrow() {
                return unsent;
            }
            std::thread::sleep(rest.min(Duration::from_millis(20)));
        }
        if *run.stop.borrow() {
            return unsent;
        }
        unsent += u64::from(sender.try_send(time).is_err());
    }
    unsent
}

/// Returns the next number of a closed loop, if there is one.
fn begin_one(run: &RunState, requests: u64) -> bool {
    run.begun.fetch_add(1, Ordering::Relaxed) < requests
}

//! The thread that sends requests, and its workers: each has a connection to each server.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

use super::connection::{Connection, Reading, Reply};
use super::tally::Tally;
use super::{Load, RunState, begin_one};
use crate::aim::Target;
use crate::exchange::{Exchange, Verdict};
use crate::judge::Judge;

/// The source of requests.
#[derive(Debug)]
pub(super) enum Tickets {
    /// Idle workers ask for the next request.
    Closed,
    /// A clock gives each request its intended time.
    Open(Mutex<mpsc::Receiver<Duration>>),
}

/// The counts of a thread.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) tally: Tally,
    pub(super) judge: Judge,
}

impl Counted {
    /// Adds the counts of another thread. Checks run on one thread, so only words are added.
    pub(super) fn add(&mut self, other: Self) {
        self.tally.add(&other.tally);
        self.judge.add_words(other.judge);
    }
}

/// The part of a request that is known without its answer.
struct Request {
    client: u32,
    node: usize,
    /// The intended time of sending, in an open loop.
    intended: Option<Duration>,
    /// The number of the request in the judge.
    judged: Option<u64>,
    is_retry: bool,
    is_read: bool,
}

/// What the workers of a thread share.
struct WorkerThread {
    load: Arc<Load>,
    run: Arc<RunState>,
    tickets: Tickets,
    tally: RefCell<Tally>,
    judge: RefCell<Judge>,
    /// The number of the next request.
    next: Cell<u64>,
    /// The earliest time of the next request of a paced loop.
    slot: Cell<Duration>,
    /// The end of each client's wait; a wait that has ended stays until the client has sent again.
    waits: RefCell<Vec<Option<Duration>>>,
    on_their_way: Cell<u64>,
}

/// The time that pending requests have for their answer when the run ends.
const GRACE: Duration = Duration::from_secs(1);

/// The wait of a refused client that got no time.
const UNTOLD: Duration = Duration::from_secs(1);

/// Runs the workers of one thread to their end.
pub(super) fn thread(
    load: &Arc<Load>,
    run: &Arc<RunState>,
    number: usize,
    tickets: Tickets,
) -> io::Result<Counted> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let workers = usize::try_from(load.concurrency).unwrap_or(usize::MAX);
    let workers = (0..workers).filter(|worker| worker % load.threads() == number);
    let clients = usize::try_from(load.clients).unwrap_or(usize::MAX);
    let thread = Rc::new(WorkerThread {
        load: Arc::clone(load),
        run: Arc::clone(run),
        tickets,
        tally: RefCell::default(),
        judge: RefCell::new(Judge::new(load.policy, load.clients, load.nodes())),
        next: Cell::new(0),
        slot: Cell::new(Duration::ZERO),
        waits: RefCell::new(vec![None; clients]),
        on_their_way: Cell::new(0),
    });
    let stop = run.stop.clone();
    LocalSet::new().block_on(&runtime, async {
        let mut running = JoinSet::new();
        for _ in workers {
            running.spawn_local(work(Rc::clone(&thread)));
        }
        let all = async { while running.join_next().await.is_some() {} };
        let end = async {
            stopped(stop).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = all => {}
            () = end => {}
        }
        Ok(thread.counted())
    })
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // The sender lives as long as the run.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One worker, with a connection to each server.
async fn work(thread: Rc<WorkerThread>) {
    let load = &thread.load;
    let targets = load.targets.iter();
    let connection = |target: &Target| Connection::new(target.clone(), load.timeout);
    let mut connections: Vec<_> = targets.map(connection).collect();
    while let Some(intended) = thread.ticket().await {
        let number = thread.next.replace(thread.next.get() + 1);
        let (node, turn) = load.turn(number);
        let Some(client) = thread.client(turn).await else {
            continue;
        };
        let is_retry = thread.ends_wait(client);
        let request = load.request(node, client);
        thread.on_their_way.set(thread.on_their_way.get() + 1);
        let mut judged = None;
        let reading = load.reading(number);
        let reply = connections[node].send(request, reading, |sent| {
            if load.check {
                let sent = sent.saturating_duration_since(thread.run.begin);
                let node = u16::try_from(node).unwrap_or(u16::MAX);
                judged = Some(thread.judge.borrow_mut().sent(client, node, sent));
            }
        });
        let reply = reply.await;
        thread.on_their_way.set(thread.on_their_way.get() - 1);
        let request = Request {
            client,
            node,
            intended,
            judged,
            is_retry,
            is_read: reading != Reading::Status,
        };
        thread.answered(reply, &request);
    }
}

impl WorkerThread {
    /// Returns the next request, with its intended time if that is in the future. `None` ends the worker.
    async fn ticket(&self) -> Option<Option<Duration>> {
        let stop = self.run.stop.clone();
        if *stop.borrow() {
            return None;
        }
        tokio::select! {
            biased;
            ticket = self.next_ticket() => ticket,
            () = stopped(stop) => None,
        }
    }

    async fn next_ticket(&self) -> Option<Option<Duration>> {
        match &self.tickets {
            Tickets::Open(arrivals) => arrivals.lock().await.recv().await.map(Some),
            Tickets::Closed if !begin_one(&self.run, self.load.requests) => None,
            Tickets::Closed => {
                if let Some(pace) = self.load.pace {
                    let slot = self.slot.get().max(self.run.now());
                    self.slot.set(slot + pace);
                    self.sleep_until(slot).await;
                }
                Some(None)
            }
        }
    }

    async fn sleep_until(&self, moment: Duration) {
        tokio::time::sleep(moment.saturating_sub(self.run.now())).await;
    }

    /// Returns the client that sends next: the next in order, or else the next that need not wait. `None` if
    /// the request is not sent.
    async fn client(&self, turn: u32) -> Option<u32> {
        if !self.load.wait {
            return Some(turn);
        }
        loop {
            let now = self.run.now();
            let first = {
                let waits = self.waits.borrow();
                let turns = (turn..self.load.clients).chain(0..turn);
                let until = |client: u32| waits.get(index(client)).copied().flatten();
                let mut turns = turns.map(|client| (until(client).unwrap_or_default(), client));
                if let Tickets::Open(_) = self.tickets {
                    // An arrival belongs to its client.
                    let (until, client) = turns.next()?;
                    if until > now {
                        self.tally.borrow_mut().withheld += 1;
                        return None;
                    }
                    return Some(client);
                }
                let (until, client) = turns.min_by_key(|(until, _)| (*until).max(now))?;
                if until <= now {
                    return Some(client);
                }
                until
            };
            tokio::select! {
                () = self.sleep_until(first) => {}
                () = stopped(self.run.stop.clone()) => return None,
            }
        }
    }

    /// Returns whether this is the client's first request after a wait.
    fn ends_wait(&self, client: u32) -> bool {
        let mut waits = self.waits.borrow_mut();
        waits
            .get_mut(index(client))
            .and_then(Option::take)
            .is_some()
    }

    fn answered(&self, reply: Reply, request: &Request) {
        let since = |moment: Instant| moment.saturating_duration_since(self.run.begin);
        let (sent, ended) = (since(reply.sent), since(reply.ended));
        let is_refused = reply.verdict == Verdict::Limited;
        let mut tally = self.tally.borrow_mut();
        let intended = request.intended.unwrap_or(sent);
        tally.count(reply.verdict, intended, sent, ended);
        if request.is_retry {
            let [retries, refused] = &mut tally.retries;
            *retries += 1;
            *refused += u64::from(is_refused);
        }
        self.run.answered.fetch_add(1, Ordering::Relaxed);
        if self.load.wait && is_refused {
            let wait = reply.info.retry_after.map_or(UNTOLD, |wait| wait.length);
            // Timers of the runtime are exact to a millisecond, and never early.
            let until = since(reply.received.unwrap_or(reply.ended)).saturating_add(wait);
            if let Some(waits) = self.waits.borrow_mut().get_mut(index(request.client)) {
                *waits = Some(waits.unwrap_or_default().max(until));
            }
        }
        let mut judge = self.judge.borrow_mut();
        if let Some(number) = request.judged {
            judge.answered(Exchange {
                number,
                client: request.client,
                node: u16::try_from(request.node).unwrap_or(u16::MAX),
                sent,
                received: reply.received.map_or(Duration::MAX, since),
                verdict: reply.verdict,
                info: reply.info,
            });
        } else if request.is_read {
            judge.overheard(reply.verdict, reply.info);
        }
    }

    fn counted(&self) -> Counted {
        let mut tally = self.tally.take();
        tally.unfinished = self.on_their_way.get();
        if let Tickets::Open(arrivals) = &self.tickets
            && let Ok(mut arrivals) = arrivals.try_lock()
        {
            arrivals.close();
            tally.unsent = arrivals.len() as u64;
        }
        let judge = Judge::new(None, 1, 1);
        Counted {
            tally,
            judge: self.judge.replace(judge),
        }
    }
}

fn index(client: u32) -> usize {
    usize::try_from(client).unwrap_or(usize::MAX)
}

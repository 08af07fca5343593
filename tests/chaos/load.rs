//! Clients that send requests to the nodes at a steady pace, whatever happens, and the answers to them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::node::{DEGRADED, KEY, LIMIT};
use crate::nodes::{NODES, Nodes};

/// The number of clients of each node. A stopped node delays its own clients, and no others.
const CLIENTS: usize = 2;
/// The pause between two requests of a client.
const PACE: Duration = Duration::from_millis(12);
/// The time after which a client gives an answer up.
const LOST: Duration = Duration::from_secs(15);

/// The number of keys in use at a time, beside one that is in use from the first request to the last.
const KEYS: u32 = 6;
/// The time after which a fresh key takes the place of another, so that there is always something to admit.
const LIFE: Duration = Duration::from_secs(3);
const FOREVER: u32 = 0;

/// The good answers of a node in a row that count as full service.
const FULL: usize = 40;
/// The time after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The answer to a client.
#[derive(Clone, Debug)]
pub(crate) struct CallRecord {
    pub(crate) node: usize,
    pub(crate) key: u32,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) said: Said,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Admitted {
        is_degraded: bool,
    },
    Refused {
        is_degraded: bool,
    },
    /// Another status than 200 and 429, or an answer that does not say how it was decided.
    Wrong(StatusCode),
    /// No answer, for this reason.
    Lost(String),
}

impl Said {
    /// Returns whether it was decided without Redis, if it was decided.
    pub(crate) fn is_degraded(&self) -> Option<bool> {
        match self {
            Self::Admitted { is_degraded } | Self::Refused { is_degraded } => Some(*is_degraded),
            Self::Wrong(_) | Self::Lost(_) => None,
        }
    }
}

impl CallRecord {
    fn is_well(&self) -> bool {
        self.said.is_degraded() == Some(false)
    }
}

pub(crate) fn key_name(key: u32) -> String {
    format!("key {key}")
}

/// The clients, until it is dropped.
pub(crate) struct Load {
    runtime: Runtime,
    nodes: Arc<Nodes>,
    answers: Arc<Mutex<Vec<CallRecord>>>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    http: Client<HttpConnector, Empty<Bytes>>,
    exact: AtomicU32,
}

/// The first of the keys that no other client uses.
const EXACT: u32 = 1_000_000_000;

impl Load {
    pub(crate) fn start(nodes: &Arc<Nodes>) -> Self {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build();
        let mut load = Self {
            runtime: runtime.expect("there can be threads"),
            nodes: Arc::clone(nodes),
            answers: Arc::default(),
            is_over: Arc::default(),
            clients: Vec::new(),
            // A request without an answer has to be seen.
            http: Client::builder(TokioExecutor::new())
                .retry_canceled_requests(false)
                .build_http(),
            exact: AtomicU32::new(EXACT),
        };
        let start = Instant::now();
        for client in 0..NODES * CLIENTS {
            let (nodes, answers) = (Arc::clone(nodes), Arc::clone(&load.answers));
            let (http, is_over) = (load.http.clone(), Arc::clone(&load.is_over));
            load.clients.push(load.runtime.spawn(async move {
                let mut number = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let key = key_of(number, start.elapsed());
                    if let Some(answer) = ask(&http, &nodes, client % NODES, key).await {
                        lock(&answers).push(answer);
                    }
                    number += 1;
                    sleep(PACE).await;
                }
            }));
        }
        load
    }

    /// Waits until all nodes give full service since this moment, and returns the time that it took. A fresh
    /// key then has its limit exactly, over all three nodes.
    pub(crate) fn recovers(&self, mended: Instant, longest: Duration) -> Duration {
        loop {
            let backs: Vec<_> = (0..NODES).map(|node| self.back(node, mended)).collect();
            let all: Option<Vec<Instant>> = backs.iter().copied().collect();
            if let Some(last) = all.and_then(|backs| backs.into_iter().max())
                && self.is_exact()
            {
                return last.duration_since(mended);
            }
            assert!(
                mended.elapsed() <= longest,
                "no full service {longest:?} after the last mend; since when, by node: {backs:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the time since which a node has given full service, if it does so now.
    fn back(&self, node: usize, mended: Instant) -> Option<Instant> {
        let answers = lock(&self.answers);
        let answers = answers.iter().rev().filter(|answer| answer.node == node);
        let since = answers.take_while(|answer| answer.began >= mended);
        let since: Vec<_> = since.collect();
        let last_ill = since.iter().find(|answer| !answer.is_well());
        let well = since.iter().take_while(|answer| answer.is_well()).count();
        (well >= FULL).then(|| last_ill.map_or(mended, |ill| ill.ended))
    }

    /// Returns whether an unused key has its limit over all nodes, none of which may be degraded.
    fn is_exact(&self) -> bool {
        let key = self.exact.fetch_add(1, Ordering::Relaxed);
        let mut admitted = 0;
        for number in 0..LIMIT as usize + 10 * NODES {
            let asked = ask(&self.http, &self.nodes, number % NODES, key);
            let answer = self.runtime.block_on(asked).expect("all nodes are there");
            lock(&self.answers).push(answer.clone());
            if !answer.is_well() {
                return false;
            }
            admitted += u32::from(answer.said == Said::Admitted { is_degraded: false });
        }
        assert_eq!(admitted, LIMIT, "the limit of a fresh key over three nodes");
        true
    }

    /// Ends when all requests that are under way have been answered.
    pub(crate) fn end(self) -> Vec<CallRecord> {
        self.is_over.store(true, Ordering::SeqCst);
        for client in self.clients {
            let ended = async { timeout(PATIENCE, client).await };
            let ended = self.runtime.block_on(ended);
            ended.expect("it gives up sooner").expect("no panic");
        }
        std::mem::take(&mut *lock(&self.answers))
    }
}

/// Returns the key of a request: all keys in use take turns, and are not renewed at the same time.
fn key_of(number: u32, elapsed: Duration) -> u32 {
    let turn = number % (KEYS + 1);
    if turn == KEYS {
        return FOREVER;
    }
    let elapsed = elapsed + LIFE * turn / KEYS;
    let generation = elapsed.as_millis() / LIFE.as_millis();
    1 + turn + KEYS * u32::try_from(generation).expect("it is over before")
}

/// Sends a request to a node, if the node is there.
async fn ask(
    http: &Client<HttpConnector, Empty<Bytes>>,
    nodes: &Nodes,
    node: usize,
    key: u32,
) -> Option<CallRecord> {
    let began = Instant::now();
    let request = Request::get(nodes.address(node)?).header(KEY, key_name(key));
    let request = request.body(Empty::new()).expect("it is one");
    let told = timeout(LOST, async {
        let response = http.request(request).await?;
        let (head, body) = response.into_parts();
        body.collect().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(head)
    });
    let said = match told.await {
        Ok(Ok(head)) => {
            let degraded = head.headers.get(DEGRADED).map(|said| said == "true");
            match (head.status, degraded) {
                (StatusCode::OK, Some(is_degraded)) => Said::Admitted { is_degraded },
                (StatusCode::TOO_MANY_REQUESTS, Some(is_degraded)) => Said::Refused { is_degraded },
                (status, _) => Said::Wrong(status),
            }
        }
        Ok(Err(error)) => Said::Lost(format!("{error:?}")),
        Err(_) => Said::Lost(format!("nothing for {LOST:?}")),
    };
    Some(CallRecord {
        node,
        key,
        began,
        ended: Instant::now(),
        said,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

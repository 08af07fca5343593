//! The load in the form that the workers need, made of the options.

use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use tower_ratelimit_core::Algorithm;

use super::Arrivals;
use super::connection::Reading;
use crate::aim::Target;
use crate::options::{Options, REMOTE_RATE};

/// A load, ready to be sent.
#[derive(Debug)]
pub struct Load {
    pub(super) targets: Vec<Target>,
    pub(super) requests: u64,
    pub(super) length: Duration,
    pub(super) concurrency: u32,
    pub(super) arrivals: Option<Arrivals>,
    /// The pause between two requests of a closed loop, all workers together.
    pub(super) pace: Option<Duration>,
    pub(super) clients: u32,
    pub(super) wait: bool,
    pub(super) timeout: Duration,
    pub(super) seed: u64,
    pub(super) policy: Option<Algorithm>,
    pub(super) check: bool,
    key_header: HeaderName,
    method: Method,
    body: Bytes,
    /// The common parts of all requests to a server, by its number.
    heads: Vec<Head>,
}

/// The path and the headers of all requests to one server.
#[derive(Debug)]
struct Head {
    path: Uri,
    headers: HeaderMap,
}

impl Load {
    /// Creates the load of the options.
    ///
    /// # Errors
    ///
    /// Options that contradict one another.
    pub fn new(options: &Options, targets: Vec<Target>) -> Result<Self, String> {
        let (requests, length) = options.ends();
        let mut paths = targets.iter().map(|target| &target.path);
        let first = paths.next();
        if options.check && !paths.all(|path| Some(path) == first) {
            return Err(String::from(
                "--check: several URLs are nodes of one service, and must have the same path",
            ));
        }
        let is_remote = targets.iter().any(|target| target.is_remote);
        let arrivals = match (options.rate, options.burst) {
            (Some(rate), _) if options.poisson => Some(Arrivals::Poisson(rate)),
            (Some(rate), _) => Some(Arrivals::Even(rate)),
            (None, Some(quota)) if quota.limit() == 0 => {
                return Err(String::from("--burst: a burst has one request at least"));
            }
            (None, burst) => burst.map(Arrivals::Bursts),
        };
        let pace =
            (is_remote && arrivals.is_none()).then(|| Duration::from_secs_f64(REMOTE_RATE.recip()));
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            headers.append(name, value.clone());
        }
        let heads = targets.iter().map(|target| Head::of(target, &headers));
        Ok(Self {
            heads: heads.collect(),
            requests,
            length,
            concurrency: options.concurrency.get(),
            arrivals,
            pace,
            clients: options.clients,
            wait: options.wait,
            timeout: options.timeout,
            seed: options.seed,
            policy: options.policy,
            check: options.check,
            key_header: options.key_header.clone(),
            method: options.method.clone(),
            body: Bytes::from(options.body.clone()),
            targets,
        })
    }

    /// Returns the most requests of the run.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the longest time of the run.
    pub fn length(&self) -> Duration {
        self.length
    }

    pub(super) fn threads(&self) -> usize {
        let one = self.check || self.wait || self.arrivals.is_some() || self.pace.is_some();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = usize::try_from(self.concurrency).unwrap_or(usize::MAX);
        if one { 1 } else { processors.min(workers) }
    }

    /// Returns the number of nodes that the judge's requests go to.
    pub(super) fn nodes(&self) -> u16 {
        u16::try_from(self.targets.len()).unwrap_or(u16::MAX)
    }

    /// Returns the server and the client of the n-th request.
    pub(super) fn turn(&self, number: u64) -> (usize, u32) {
        let clients = u64::from(self.clients);
        let nodes = self.targets.len() as u64;
        let client = u32::try_from(number % clients).unwrap_or(0);
        // Each client uses all nodes, whatever divisor the two numbers share.
        let node = (number / clients + number % clients) % nodes;
        (usize::try_from(node).unwrap_or(0), client)
    }

    /// Returns the part of the n-th answer of a thread that is read.
    pub(super) fn reading(&self, number: u64) -> Reading {
        const ALL: u64 = 1_000;
        const EACH: u64 = 64;
        if self.check {
            Reading::All
        } else if self.wait || number < ALL || number.is_multiple_of(EACH) {
            Reading::Headers
        } else {
            Reading::Status
        }
    }

    /// Returns the request of a client to a server, by its number.
    pub(super) fn request(&self, node: usize, client: u32) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        if let Some(head) = self.heads.get(node) {
            *request.uri_mut() = head.path.clone();
            request.headers_mut().clone_from(&head.headers);
        }
        if self.clients > 1
            && let Ok(key) = HeaderValue::from_str(&format!("loadtest-{client}"))
        {
            let headers = request.headers_mut();
            headers.insert(self.key_header.clone(), key);
        }
        request
    }
}

impl Head {
    fn of(target: &Target, headers: &HeaderMap) -> Self {
        let mut headers = headers.clone();
        // Both come from a parsed URL.
        let path = target.path.parse();
        if let Ok(host) = HeaderValue::from_str(&target.host) {
            headers.entry(HOST).or_insert(host);
        }
        Self {
            path: path.unwrap_or_else(|_| Uri::from_static("/")),
            headers,
        }
    }
}

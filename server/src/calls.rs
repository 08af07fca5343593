//! The connections to the upstream over which calls of gRPC go.
//!
//! The client of hyper-util keeps connections for each authority of its requests, and here each client chooses one. Here calls share
//! a connection, whatever authorities they have, until so many are under way on it that the upstream may take no more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::ServiceExt;

use crate::BoxError;
use crate::server::LARGEST_WINDOW;
use crate::stall::{RequestBody, Watched};

/// Sends calls to one upstream.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    upstream: Uri,
    connector: HttpsConnector<HttpConnector>,
    connections: Arc<Mutex<Vec<Connection>>>,
    /// Is held while a connection opens, so that the calls of that time share it.
    opening: Arc<tokio::sync::Mutex<()>>,
}

/// The most calls that are under way on a connection before another one opens. Servers take 100 at least, by the advice of RFC 9113,
/// section 6.5.2; beyond that, the calls of one client would keep those of others waiting.
const MOST: usize = 100;

/// The bytes of one response that may wait for the client. Those of all have no other bound, or a few clients that take nothing would
/// leave the others without responses.
const UNTAKEN: u32 = 64 * 1024;

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Watched<RequestBody>>,
    /// Each call that is under way has a clone.
    calls: Arc<()>,
}

/// A connection for one call, and that the call is under way.
type Begun = (SendRequest<Watched<RequestBody>>, UnderWay);

/// A call that is under way, in the extensions of its response: it lasts as long as the body does.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Connection {
    fn calls(&self) -> usize {
        Arc::strong_count(&self.calls) - 1
    }

    fn begin(&self) -> Begun {
        (self.sender.clone(), UnderWay(Arc::clone(&self.calls)))
    }
}

/// A call that got no response.
#[derive(Debug)]
pub(crate) struct NoResponse {
    pub(crate) has_connected: bool,
    pub(crate) error: BoxError,
}

impl Calls {
    pub(crate) fn new(upstream: Uri, connector: HttpsConnector<HttpConnector>) -> Self {
        Self {
            upstream,
            connector,
            connections: Arc::default(),
            opening: Arc::default(),
        }
    }

    pub(crate) async fn request(
        &self,
        mut call: Request<Watched<RequestBody>>,
    ) -> Result<Response<Incoming>, NoResponse> {
        let mut may_try_again = true;
        loop {
            let (mut connection, call_under_way) =
                self.connection().await.map_err(|error| NoResponse {
                    has_connected: false,
                    error,
                })?;
            let mut error = match connection.try_send_request(call).await {
                Ok(mut response) => {
                    response.extensions_mut().insert(call_under_way);
                    return Ok(response);
                }
                Err(error) => error,
            };
            match error.take_message() {
                // The upstream has closed the connection before it took the call.
                Some(unsent) if may_try_again => {
                    may_try_again = false;
                    call = unsent;
                }
                _ => {
                    return Err(NoResponse {
                        has_connected: true,
                        error: error.into_error().into(),
                    });
                }
            }
        }
    }

    /// Returns a connection that takes another call. While a further one opens, calls go over those that are full, and the upstream keeps
    /// them waiting; if it does not open, so does the call that would have begun it.
    async fn connection(&self) -> Result<Begun, BoxError> {
        if let Some(begun) = self.begin(MOST) {
            return Ok(begun);
        }
        let _opening = match self.opening.try_lock() {
            Ok(opening) => opening,
            Err(_) => match self.begin(usize::MAX) {
                Some(begun) => return Ok(begun),
                None => self.opening.lock().await,
            },
        };
        if let Some(begun) = self.begin(MOST) {
            return Ok(begun);
        }
        match self.open().await {
            Ok(opened) => {
                let begun = opened.begin();
                self.connections().push(opened);
                Ok(begun)
            }
            Err(error) => self.begin(usize::MAX).ok_or(error),
        }
    }

    /// Begins a call on a connection with fewer calls than this. Of the connections without a call, one stays for the next.
    fn begin(&self, most: usize) -> Option<Begun> {
        let mut connections = self.connections();
        let mut is_one_idle = false;
        connections.retain(|it| {
            let is_idle = it.calls() == 0;
            let is_needed = !(is_idle && is_one_idle);
            let stays = is_needed && !it.sender.is_closed();
            is_one_idle |= is_idle && stays;
            stays
        });
        let free = connections.iter().find(|it| it.calls() < MOST);
        let least = || connections.iter().min_by_key(|it| it.calls());
        let open = free.or_else(least)?;
        (open.calls() < most).then(|| open.begin())
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> Result<Connection, BoxError> {
        let stream = self
            .connector
            .clone()
            .oneshot(self.upstream.clone())
            .await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(UNTAKEN)
            .initial_connection_window_size(LARGEST_WINDOW);
        let (sender, driver) = builder.handshake(stream).await?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!("the connection to the upstream broke off: {error}");
            }
        });
        Ok(Connection {
            sender,
            calls: Arc::default(),
        })
    }
}

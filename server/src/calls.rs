//! The connection to the upstream over which calls of gRPC go.
//!
//! The client of hyper-util keeps connections for each authority of its requests, and here each client chooses one. This is
//! a single connection, whatever authorities the calls have.

use std::sync::Arc;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Mutex;
use tower::ServiceExt;

use crate::BoxError;
use crate::server::LARGEST_WINDOW;
use crate::stall::{RequestBody, Watched};

/// Sends calls to one upstream.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    upstream: Uri,
    connector: HttpsConnector<HttpConnector>,
    /// The lock is held while a connection opens, so that the calls of that time share it.
    connection: Arc<Mutex<Option<Connection>>>,
}

/// The bytes of one response that may wait for the client. Those of all have no other bound, or a few clients that take nothing would
/// leave the others without responses.
const UNTAKEN: u32 = 64 * 1024;

type Connection = SendRequest<Watched<RequestBody>>;

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
            connection: Arc::default(),
        }
    }

    pub(crate) async fn request(
        &self,
        mut call: Request<Watched<RequestBody>>,
    ) -> Result<Response<Incoming>, NoResponse> {
        let mut may_try_again = true;
        loop {
            let mut connection = self.connection().await.map_err(|error| NoResponse {
                has_connected: false,
                error,
            })?;
            let mut error = match connection.try_send_request(call).await {
                Ok(response) => return Ok(response),
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

    async fn connection(&self) -> Result<Connection, BoxError> {
        let mut place = self.connection.lock().await;
        if let Some(open) = place.as_ref().filter(|it| !it.is_closed()) {
            return Ok(open.clone());
        }
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
        let (opened, driver) = builder.handshake(stream).await?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!("the connection to the upstream broke off: {error}");
            }
        });
        *place = Some(opened.clone());
        Ok(opened)
    }
}

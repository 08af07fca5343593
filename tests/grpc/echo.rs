//! A service with a method of each kind, written by hand so that no protoc is needed, with servers and clients.
//! clients of it.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};
use tower_ratelimit::middleware::OverLimit;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{Algorithm, Decision, ManualClock, MemoryStore, Policy, RateLimitLayer, key};

/// Repeats the request, in one message or several. The word `abort` ends a stream of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo;

pub(crate) const UNARY: &str = "/test.Echo/Unary";
pub(crate) const CLIENT_STREAM: &str = "/test.Echo/ClientStream";
pub(crate) const SERVER_STREAM: &str = "/test.Echo/ServerStream";
pub(crate) const BOTH_STREAM: &str = "/test.Echo/BothStream";

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

type Messages = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

async fn unary(request: Request<String>) -> Result<Response<String>, Status> {
    let extensions = request.extensions();
    let mut said = request.get_ref().clone();
    if extensions.get::<OverLimit>().is_some() {
        said.push_str(", over the limit");
    }
    if let Some(decision) = extensions.get::<Decision>() {
        let (name, outcome) = decision.binding().unwrap();
        write!(said, ", {} left of {name}", outcome.remaining()).unwrap();
    }
    Ok(Response::new(said))
}

async fn client_stream(request: Request<Streaming<String>>) -> Result<Response<String>, Status> {
    let words: Vec<String> = request.into_inner().collect::<Result<_, _>>().await?;
    Ok(Response::new(words.join(" ")))
}

async fn server_stream(request: Request<String>) -> Result<Response<Messages>, Status> {
    let words: Vec<_> = request.get_ref().split(' ').map(str::to_owned).collect();
    let words = tokio_stream::iter(words).map(|word| match &*word {
        "abort" => Err(Status::aborted("as it is told")),
        _ => Ok(word),
    });
    Ok(Response::new(Box::pin(words)))
}

async fn both_stream(request: Request<Streaming<String>>) -> Result<Response<Messages>, Status> {
    Ok(Response::new(Box::pin(request.into_inner())))
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<String, String>::default());
            Ok(match request.uri().path() {
                UNARY => grpc.unary(service_fn(unary), request).await,
                CLIENT_STREAM => {
                    let method = service_fn(client_stream);
                    grpc.client_streaming(method, request).await
                }
                SERVER_STREAM => {
                    let method = service_fn(server_stream);
                    grpc.server_streaming(method, request).await
                }
                BOTH_STREAM => grpc.streaming(service_fn(both_stream), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// A server on its own port, until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts the server that `serve` makes of a listener.
    pub(crate) async fn start<F>(serve: impl FnOnce(TcpListener) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            task: tokio::spawn(serve(listener)),
        }
    }

    /// A tonic server of [`Echo`] with this layer around all of its services.
    pub(crate) async fn echo(layer: RateLimitLayer) -> Self {
        Self::start(|listener| async move {
            let incoming = TcpListenerStream::new(listener);
            let server = Server::builder().layer(layer).add_service(Echo);
            server.serve_with_incoming(incoming).await.unwrap();
        })
        .await
    }

    pub(crate) async fn client(&self) -> Client {
        let endpoint = Endpoint::try_from(format!("http://{}", self.address)).unwrap();
        Client::of(endpoint.connect().await.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The client of [`Echo`], by tonic.
#[derive(Clone)]
pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub(crate) fn of(channel: Channel) -> Self {
        Self(tonic::client::Grpc::new(channel))
    }

    /// Sends a text, and returns the answer.
    pub(crate) async fn say(&mut self, word: &str) -> Result<String, Status> {
        let said = self.call(UNARY, Request::new(word.to_owned())).await;
        said.map(Response::into_inner)
    }

    pub(crate) async fn call(
        &mut self,
        path: &'static str,
        request: Request<String>,
    ) -> Result<Response<String>, Status> {
        self.0.ready().await.unwrap();
        let path = PathAndQuery::from_static(path);
        self.0.unary(request, path, ProstCodec::default()).await
    }

    /// Sends these words to the method of this kind, and returns all answers.
    pub(crate) async fn stream(
        &mut self,
        path: &'static str,
        words: &[&str],
    ) -> Result<Vec<String>, Status> {
        self.0.ready().await.unwrap();
        let (grpc, method, codec) = (
            &mut self.0,
            PathAndQuery::from_static(path),
            ProstCodec::<String, String>::default(),
        );
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let one = Request::new(words.join(" "));
        let many = Request::new(tokio_stream::iter(words));
        let answers = match path {
            CLIENT_STREAM => {
                let answer = grpc.client_streaming(many, method, codec).await?;
                return Ok(vec![answer.into_inner()]);
            }
            SERVER_STREAM => grpc.server_streaming(one, method, codec).await?,
            BOTH_STREAM => grpc.streaming(many, method, codec).await?,
            _ => {
                return grpc
                    .unary(one, method, codec)
                    .await
                    .map(|answer| vec![answer.into_inner()]);
            }
        };
        answers.into_inner().collect::<Result<_, _>>().await
    }
}

/// Returns a policy with one key for all clients.
pub(crate) fn global(name: &str, algorithm: impl Into<Algorithm>) -> Policy<Http> {
    Policy::new(name, algorithm).key(key::global())
}

/// Returns a store under a clock that stands still until it is moved.
pub(crate) fn still() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::new();
    (clock.clone(), MemoryStore::new().clock(clock))
}

/// Returns a call of no server, with this content type.
pub(crate) fn post(content_type: &str) -> http::Request<String> {
    let request = http::Request::post(UNARY).header("content-type", content_type);
    request.body(String::new()).unwrap()
}

/// Returns the response of a layer to a call, without a server around it.
pub(crate) async fn answered<B: Send + 'static>(
    layer: &RateLimitLayer,
    request: http::Request<B>,
) -> http::Response<String> {
    use http_body_util::BodyExt;
    use tower::{Layer, ServiceExt};

    let hello = service_fn(|_: http::Request<B>| async {
        Ok::<_, Infallible>(http::Response::new(
            http_body_util::Full::<bytes::Bytes>::from("hello"),
        ))
    });
    let response = layer.layer(hello).oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    http::Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap())
}

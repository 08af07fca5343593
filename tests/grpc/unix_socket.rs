//! A tonic server on a Unix socket.

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request};
use tower::service_fn;
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, Proxies};
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer};

use crate::echo::{Client, Echo, UNARY};

/// Returns a client of a server that counts by this key, one call a day.
async fn client(name: &str, key: Extractor<ClientIp>) -> Client {
    let policy = Policy::new("client", FixedWindow::per_day(1)).key(key);
    let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
    let file = format!("tower-ratelimit-grpc-{name}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(file);
    let _of_a_process_before = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let server = Server::builder().layer(layer).add_service(Echo);
        let incoming = UnixListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    });
    let connect = service_fn(move |_: http::Uri| {
        let path = path.clone();
        async move {
            let socket = UnixStream::connect(&path).await;
            // Both ends have it now.
            let _ = std::fs::remove_file(&path);
            socket.map(TokioIo::new)
        }
    });
    let endpoint = Endpoint::from_static("http://unix.socket");
    Client::of(endpoint.connect_with_connector(connect).await.unwrap())
}

async fn ask(client: &mut Client, told: &str) -> Result<(), Code> {
    let mut request = Request::new("a".to_owned());
    let told = told.parse().unwrap();
    request.metadata_mut().insert("x-forwarded-for", told);
    let answer = client.call(UNARY, request).await;
    answer.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn a_socket_has_no_address_unless_its_other_end_is_trusted_to_tell_one() {
    let mut untrusted = client("untrusted", key::client_ip()).await;
    assert_eq!(ask(&mut untrusted, "192.0.2.1").await, Err(Code::Internal));

    let proxied = key::client_ip().behind(Proxies::unix_socket(), Forwarding::XForwardedFor);
    let mut trusted = client("trusted", proxied).await;
    assert_eq!(ask(&mut trusted, "192.0.2.1").await, Ok(()));
    let again = ask(&mut trusted, "192.0.2.1").await;
    assert_eq!(again, Err(Code::ResourceExhausted));
    assert_eq!(ask(&mut trusted, "192.0.2.2").await, Ok(()));
}

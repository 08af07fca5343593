//! The events that the page follows, over real sockets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower_ratelimit_ops::admin::{self, Access, Handle};

use crate::admin::{app, ask, client, layer, send};

/// Over real sockets.
struct Served {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    ended: tokio::task::JoinHandle<io::Result<()>>,
}

async fn serve() -> Served {
    let (stop, stopped) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel::<()>();
    let until = async {
        let _ = ended.await;
    };
    let layer = layer();
    let page = Handle::from(&layer).client(client).until(until);
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest("/dashboard", admin::router(page, Access::loopback()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let signal = async move {
        let _ = stopped.await;
        let _ = end.send(());
    };
    let serving = axum::serve(listener, service).with_graceful_shutdown(signal);
    Served {
        address,
        stop: Some(stop),
        ended: tokio::spawn(serving.into_future()),
    }
}

/// Opens the stream, and reads until the first event or the end of the response.
async fn view(address: SocketAddr) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /dashboard/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer
        .windows(7)
        .any(|at| at == b"data: {" || at == b"\"error\"")
    {
        let read = socket.read_buf(&mut answer).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
    }
    (socket, String::from_utf8(answer).unwrap())
}

/// In the service itself, where no second passes meanwhile.
#[tokio::test(start_paused = true)]
async fn sixteen_of_twenty_viewers_are_served_and_one_that_leaves_frees_a_place() {
    let app = app(Access::loopback());
    let open = || async { send(&app, ask("/dashboard/events").body(Body::empty()).unwrap()).await };
    let mut served = Vec::new();
    for number in 0..20 {
        let answer = open().await;
        assert_eq!(answer.status(), if number < 16 { 200 } else { 503 });
        served.push(answer);
    }
    assert_eq!(served[0].headers()["content-type"], "text/event-stream");
    drop(served.remove(0));
    served.push(open().await);
    assert_eq!(served.last().unwrap().status(), 200);
    assert_eq!(open().await.status(), 503);
}

/// Their connections take the events until the buffers of the system are full, which takes minutes. Once, no other viewer was
/// served meanwhile.
#[tokio::test(start_paused = true)]
async fn viewers_that_read_nothing_lose_their_places_to_others_after_ten_seconds() {
    let service = serve().await;
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(view(service.address).await);
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    for _ in 0..16 {
        let (socket, answer) = view(service.address).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        silent.push((socket, answer));
    }
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_viewers() {
    let mut service = serve().await;
    let mut viewers = Vec::new();
    for _ in 0..3 {
        let (socket, answer) = view(service.address).await;
        assert!(answer.starts_with("HTTP/1.1 200 "));
        viewers.push(socket);
    }
    service.stop.take().unwrap().send(()).unwrap();
    let ended = timeout(Duration::from_secs(60), service.ended).await;
    ended.expect("it ends").unwrap().unwrap();
    // The viewers are still there: the service ended the streams.
    for socket in &mut viewers {
        socket.read_to_end(&mut Vec::new()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_does_not_read_is_dropped() {
    let app = app(Access::loopback());
    let open = || async { send(&app, ask("/dashboard/events").body(Body::empty()).unwrap()).await };
    let mut viewers = Vec::new();
    for _ in 0..16 {
        viewers.push(open().await);
    }
    assert_eq!(open().await.status(), 503);
    // One viewer reads on, and fifteen do not.
    let mut reader = viewers.pop().unwrap().into_body();
    for _ in 0..12 {
        let event = reader.frame().await.unwrap().unwrap();
        assert!(event.data_ref().unwrap().starts_with(b"data: {"));
    }
    for _ in 0..15 {
        assert_eq!(open().await.status(), 200);
    }
    assert!(
        reader.frame().await.is_some(),
        "the reader has kept its place"
    );
    let dropped = viewers.pop().unwrap().into_body();
    let rest = dropped.collect().await.unwrap().to_bytes();
    assert_eq!(rest.windows(7).filter(|at| *at == b"data: {").count(), 1);
}

//! One client that sends as much of one thing as it can, beside another client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratelimitd::server::Bounds;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::scene::{LONG, Scene, head, listener};

/// Ten requests a minute for each host.
const TEN: &str = "[policies.host]\nquota = \"10/minute\"\nkey = { header = \"host\" }\n";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET http://a/`
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// How long a server that still reads lets a client wait at most.
const STUCK: Duration = Duration::from_secs(2);

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const REFUSED_STREAM: u8 = 7;
const ENHANCE_YOUR_CALM: u8 = 11;

/// Requests that are reset at once.
pub(crate) fn resets(many: u32) -> Vec<u8> {
    let mut frames = Vec::new();
    for stream in (1..2 * many).step_by(2) {
        frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        frames.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
    }
    frames
}

/// A connection of HTTP/2 with one request, which stays.
pub(crate) fn request() -> Vec<u8> {
    let headers = frame(HEADERS, END_HEADERS | END_STREAM, 1, GET);
    [greeting(), headers].concat()
}

/// The first bytes of a connection of HTTP/2.
pub(crate) fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// A connection of HTTP/2 that has begun.
async fn connect(scene: &Scene) -> TcpStream {
    let mut stream = scene.connect().await;
    stream.write_all(&greeting()).await.unwrap();
    stream
}

/// Returns the payload of the first frame of this kind.
async fn find(stream: &mut (impl AsyncRead + Unpin), kind: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == kind {
            return payload;
        }
    }
}

/// Returns the reason for which the server ends the connection.
async fn farewell(stream: &mut (impl AsyncRead + Unpin)) -> u8 {
    find(stream, GO_AWAY).await[7]
}

#[tokio::test]
async fn requests_that_are_reset_at_once_are_counted_and_leave_other_clients_their_answers() {
    let (listener, upstream) = listener().await;
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reached);
    // It answers the other client alone.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                if head(&mut stream).await.contains("host: other") {
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(response).await.unwrap();
                } else {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    });
    let scene = Scene::before(&upstream, TEN).await;
    let mut flood = connect(&scene).await;
    let frames = resets(10_000);
    let (mut answers, mut requests) = flood.split();
    let flooding = async {
        // The server may hang up meanwhile.
        let _ = requests.write_all(&frames).await;
        let _ = requests.shutdown().await;
    };
    let reading = async {
        assert_eq!(farewell(&mut answers).await, ENHANCE_YOUR_CALM);
    };
    let other = async {
        let request = "GET / HTTP/1.1\r\nhost: other\r\nconnection: close\r\n\r\n";
        assert_eq!(scene.ask(request).await.status(), 200);
    };
    timeout(LONG, async { tokio::join!(flooding, reading, other) })
        .await
        .unwrap();
    let reached = reached.load(Ordering::Relaxed);
    assert!(reached <= 10, "{reached} requests reached the upstream");
}

#[tokio::test]
async fn a_head_without_an_end_is_cut_off() {
    let scene = Scene::new(TEN).await;
    // Frames that are large, small and empty.
    for size in [16_384, 1, 0] {
        let mut flood = connect(&scene).await;
        let begun = frame(HEADERS, END_STREAM, 1, GET);
        flood.write_all(&begun).await.unwrap();
        let more = frame(CONTINUATION, 0, 1, &vec![0; size]);
        let (mut answers, mut requests) = flood.into_split();
        let flooding =
            tokio::spawn(async move { while requests.write_all(&more).await.is_ok() {} });
        assert_eq!(
            timeout(LONG, farewell(&mut answers)).await,
            Ok(ENHANCE_YOUR_CALM)
        );
        timeout(LONG, flooding).await.unwrap().unwrap();
    }
}

/// Each is answered, by a server whose answers nobody takes.
#[tokio::test]
async fn pings_and_settings_leave_other_clients_their_answers() {
    let scene = Scene::new(TEN).await;
    for (kind, payload) in [(PING, &[0_u8; 8][..]), (SETTINGS, &[])] {
        let mut flood = connect(&scene).await;
        let more = frame(kind, 0, 0, payload).repeat(1_000);
        // Until the server reads no more, since its own answers are stuck.
        let mut sent = 0;
        while let Ok(written) = timeout(STUCK, flood.write_all(&more)).await {
            sent += 1;
            assert!(sent < 100_000, "{kind}: it keeps what it cannot send");
            if written.is_err() {
                break;
            }
        }
        let request = "GET / HTTP/1.1\r\nhost: other\r\nconnection: close\r\n\r\n";
        let answer = timeout(LONG, scene.ask(request)).await.unwrap();
        assert_eq!(answer.status(), 200, "{kind}");
    }
}

#[tokio::test]
async fn streams_beyond_the_bound_are_refused() {
    // It takes connections and answers none of them.
    let (_listener, upstream) = listener().await;
    let bounds = Bounds {
        streams: 3,
        ..Bounds::default()
    };
    let scene = Scene::within(bounds, &upstream, TEN).await;
    let mut flood = connect(&scene).await;
    let settings = find(&mut flood, SETTINGS).await;
    let most = settings.chunks(6).find(|it| it[..2] == [0, 3]).unwrap();
    assert_eq!(most[2..], [0, 0, 0, 3]);
    // From here on the server may take it that the client knows.
    let known = frame(SETTINGS, 1, 0, &[]);
    flood.write_all(&known).await.unwrap();
    for stream in [1, 3, 5, 7] {
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, GET);
        flood.write_all(&request).await.unwrap();
    }
    let refused = find(&mut flood, RESET).await;
    assert_eq!(refused, [0, 0, 0, REFUSED_STREAM]);
}

use super::*;
use crate::{certificate, full};
use std::pin::Pin;
use std::task::{Context, Waker};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tower_ratelimit_config::Config;

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &str = "\0\0\0\x04\0\0\0\0\0";
const PING: &str = "\0\0\x08\x06\0\0\0\0\x0012345678";
/// `:method: GET` and no end of the head.
const HALF_HEAD: &str = "\0\0\x01\x01\0\0\0\0\x01\x02";
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

const PEER: &str = "192.0.2.1:1";

/// How long a client may do nothing.
const IDLE: Duration = Duration::from_secs(75);

/// Returns the client's side of a connection that holds this many bytes on the way.
fn client<F>(
    bytes: usize,
    answer: impl Fn(Request<Incoming>, Heads) -> F + Send + Sync + 'static,
) -> DuplexStream
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let bounds = Bounds {
        age: None,
        ..Bounds::default()
    };
    client_within(bounds, bytes, answer)
}

fn client_within<F>(
    bounds: Bounds,
    bytes: usize,
    answer: impl Fn(Request<Incoming>, Heads) -> F + Send + Sync + 'static,
) -> DuplexStream
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (client, stream) = duplex(bytes);
    let server = Server::new(bounds, watch::channel(Phase::Ready).1);
    let peer: SocketAddr = PEER.parse().unwrap();
    let place = server.places.take(peer.ip(), false).unwrap();
    tokio::spawn(async move {
        let builder = server.builder(false, &Tasks::default());
        let _ = server.connection(&builder, stream, place, answer).await;
    });
    client
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_opens_as_the_server_stops_gets_its_answer() {
    for sent in [true, false] {
        let (mut client, stream) = duplex(1 << 16);
        let phase = watch::Sender::new(Phase::Stopped);
        let server = Server::new(Bounds::default(), phase.subscribe());
        let start = Instant::now();
        let waiting = vec![(stream, PEER.parse().unwrap())];
        let accept = || pending::<io::Result<(DuplexStream, SocketAddr)>>();
        let answers = Answers::Operators(Router::new());
        let serving = tokio::spawn(server.serve_each(accept, || waiting, answers));
        if sent {
            sleep(ON_ITS_WAY / 2).await;
            client.write_all(REQUEST.as_bytes()).await.unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.contains("HTTP/1.1 404"), sent, "{answer}");
        assert_eq!(answer.contains("connection: close"), sent, "{answer}");
        serving.await.unwrap();
        assert!(start.elapsed() <= ON_ITS_WAY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_speak_tls_delays_no_stop() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let name = format!("ratelimitd-silent-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let files = certificate::Files {
        certificate: folder.join("certificate.pem"),
        key: folder.join("key.pem"),
        client_ca: None,
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let certificate = Certificate::read("listen", files).unwrap();
    std::fs::remove_dir_all(folder).unwrap();

    let (_client, stream) = duplex(1 << 16);
    let phase = watch::Sender::new(Phase::Stopped);
    let server = Server::new(Bounds::default(), phase.subscribe()).over_tls(certificate);
    let start = Instant::now();
    let waiting = vec![(stream, PEER.parse().unwrap())];
    let accept = || pending::<io::Result<(DuplexStream, SocketAddr)>>();
    let answers = Answers::Operators(Router::new());
    server.serve_each(accept, || waiting, answers).await;
    assert!(start.elapsed() <= ON_ITS_WAY);
}

async fn empty(_: Request<Incoming>, _: Heads) -> Response<Body> {
    Response::new(full(""))
}

/// Waits until the other side has closed, in an hour at most.
async fn close(client: &mut (impl AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // A connection that breaks off has closed too.
    let closed = timeout(Duration::from_secs(3600), client.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the connection stays");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_request_is_closed() {
    let cases = [
        String::new(),
        PREFACE[..20].to_owned(),
        PREFACE.to_owned(),
        [PREFACE, SETTINGS].concat(),
        [PREFACE, SETTINGS, HALF_HEAD].concat(),
        "\r\n".to_owned(),
        REQUEST[..20].to_owned(),
    ];
    for sent in cases {
        let start = Instant::now();
        let mut client = client(1 << 16, empty);
        client.write_all(sent.as_bytes()).await.unwrap();
        close(&mut client).await;
        assert!(start.elapsed() >= FIRST, "{sent:?}");
        assert!(start.elapsed() <= FIRST + CLOSING, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_does_not_keep_a_connection() {
    for (begun, byte) in [(REQUEST[..20].to_owned(), "x"), (String::new(), "\r\n")] {
        let start = Instant::now();
        let (mut client, mut sender) = tokio::io::split(client(1 << 16, empty));
        sender.write_all(begun.as_bytes()).await.unwrap();
        let bytes = async {
            while sender.write_all(byte.as_bytes()).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = close(&mut client) => {}
            () = bytes => {}
        }
        assert!(start.elapsed() <= FIRST + CLOSING + Duration::from_secs(1));
    }
}

/// The time in which a connection gets requests.
const AGE: Duration = Duration::from_secs(60);

fn aging() -> Bounds {
    Bounds {
        age: Some(AGE),
        ..Bounds::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http_1_that_has_had_its_time_ends_with_its_next_response() {
    let start = Instant::now();
    let mut client = client_within(aging(), 1 << 16, empty);
    let mut ask = async || {
        client.write_all(REQUEST.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    };
    assert!(!ask().await.contains("connection"));
    sleep(AGE.mul_f64(0.89)).await;
    assert!(!ask().await.contains("connection"));
    sleep(AGE.mul_f64(0.22)).await;
    // It was not closed while the client could have sent this.
    assert!(ask().await.contains("\r\nconnection: close\r\n"));
    close(&mut client).await;
    assert!(start.elapsed() < 2 * AGE);
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http_2_that_has_had_its_time_ends_with_the_requests_that_have_begun() {
    let slow = |_, _| async {
        sleep(2 * AGE).await;
        Response::new(full("done"))
    };
    let start = Instant::now();
    let client = client_within(aging(), 1 << 16, slow);
    let mut builder = hyper::client::conn::http2::Builder::new(Tasks::default());
    let opened = builder.timer(TokioTimer::new());
    let (mut sender, ends) = opened.handshake(TokioIo::new(client)).await.unwrap();
    let ends = tokio::spawn(ends);
    let request = Request::get("http://a/").body(full("")).unwrap();
    let response = sender.send_request(request.map(BodyExt::boxed_unsync));
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    assert_eq!(start.elapsed(), 2 * AGE);
    // Without the GOAWAY it would have stayed as long as it is not idle.
    assert!(sender.is_closed() || sender.ready().await.is_err());
    ends.await.unwrap().unwrap();
    assert!(start.elapsed() < 2 * AGE + CLOSING);
}

#[tokio::test(start_paused = true)]
async fn connections_that_began_together_do_not_end_together() {
    let mut ends = Vec::new();
    for _ in 0..100 {
        let activity = Activity::new(IDLE);
        let _open = activity.ask(true);
        let begun = Instant::now();
        grow_old(&activity, Some(Duration::from_secs(100))).await;
        ends.push(begun.elapsed().as_secs());
    }
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    assert!(
        (90..100).contains(first) && (100..=110).contains(last),
        "{ends:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn pings_are_no_requests() {
    let start = Instant::now();
    let (mut client, mut sender) = tokio::io::split(client(1 << 16, empty));
    let greeting = [PREFACE, SETTINGS].concat();
    sender.write_all(greeting.as_bytes()).await.unwrap();
    let pings = async {
        while sender.write_all(PING.as_bytes()).await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = close(&mut client) => {}
        () = pings => {}
    }
    assert!(start.elapsed() <= FIRST + CLOSING + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_may_keep_a_connection_for_a_minute_between_requests() {
    let mut client = client(1 << 16, empty);
    let mut head = [0; 16];
    for _ in 0..3 {
        client.write_all(REQUEST.as_bytes()).await.unwrap();
        client.read_exact(&mut head).await.unwrap();
        sleep(Duration::from_secs(61)).await;
    }
    let start = Instant::now();
    close(&mut client).await;
    assert!(start.elapsed() <= IDLE + CLOSING);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_a_slow_upstream_is_not_silent() {
    let slow = |_, _| async {
        sleep(10 * IDLE).await;
        Response::new(full("done"))
    };
    let mut client = client(1 << 16, slow);
    client.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut head = [0; 15];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_a_response_is_closed_and_a_slow_one_is_not() {
    const LARGE: usize = 1 << 20;
    let large = |_, _| async {
        let pieces = std::iter::repeat_n(bytes::Bytes::from(vec![b'x'; LARGE / 64]), 64);
        let frames = pieces.map(|piece| Ok(http_body::Frame::data(piece)));
        let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
        Response::new(body.boxed_unsync())
    };
    for pause in [Duration::from_secs(60), IDLE + 2 * CLOSING] {
        let mut client = client(1 << 16, large);
        client.write_all(REQUEST.as_bytes()).await.unwrap();
        let mut taken = 0;
        let mut piece = vec![0; 1 << 15];
        loop {
            sleep(pause).await;
            // Without more, all has arrived, and the connection waits for the next request.
            let Ok(Ok(more @ 1..)) = timeout(pause, client.read(&mut piece)).await else {
                break;
            };
            taken += more;
        }
        assert_eq!(taken > LARGE, pause < IDLE, "{taken} {pause:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_before_it_takes_much_memory() {
    let mut client = client(1 << 20, empty);
    let head = format!(
        "{}x: {}",
        &REQUEST[..16],
        "x".repeat(2 * Bounds::default().head_size)
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

/// Returns whether the other side has closed already, having sent nothing.
fn is_closed(client: &mut DuplexStream) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let mut byte = [0];
    Pin::new(client)
        .poll_read(&mut context, &mut ReadBuf::new(&mut byte))
        .is_ready()
}

/// A gateway without an upstream.
fn gateway() -> Gateway {
    let limits = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");
    let limits = Config::read(limits).unwrap().watch().unwrap();
    Gateway::new(limits, None)
}

#[tokio::test]
async fn silent_connections_of_one_client_leave_the_others_their_places() {
    const MANY: usize = 230;
    let (opened, accepted) = mpsc::unbounded_channel();
    let accepted = Arc::new(Mutex::new(accepted));
    let accept = move || {
        let accepted = Arc::clone(&accepted);
        async move {
            let next = accepted.lock().await.recv().await;
            next.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
        }
    };
    let server = Server::new(Bounds::default(), watch::channel(Phase::Ready).1);
    let places = server.places().clone();
    tokio::spawn(server.serve_each(accept, Vec::new, Answers::Gateway(gateway())));
    let open = |peer: &str| {
        let (client, server) = duplex(1 << 16);
        let peer: SocketAddr = peer.parse().unwrap();
        opened.send((server, peer)).unwrap();
        client
    };
    let mut silent: Vec<_> = (0..MANY).map(|_| open(PEER)).collect();
    let request = REQUEST.replace(" / ", " /_limit/check ");
    for (peer, expected) in [("192.0.2.2:1", "404"), ("127.0.0.1:1", "200")] {
        let mut client = open(peer);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head[9..], expected.as_bytes(), "{peer}");
    }
    // Those beyond the bound were closed before the others were accepted.
    let mut closed = 0;
    for client in &mut silent {
        // A task that reads without a pause finds nothing to read.
        tokio::task::yield_now().await;
        closed += usize::from(is_closed(client));
    }
    assert_eq!(closed, MANY - 100);
    assert_eq!(places.refused(), (MANY as u64 - 100, 0));
}

#[tokio::test]
async fn a_peer_that_is_no_proxy_finds_nothing_below_the_reserved_path() {
    let gateway = gateway();
    for (peer, path, expected) in [
        ("127.0.0.1:1", "/_limit/check", "200"),
        ("127.0.0.1:1", "/_limit/status", "200"),
        ("192.0.2.1:1", "/_limit/check", "404"),
        ("192.0.2.1:1", "/_limit/status", "404"),
        ("[2001:db8::1]:1", "/_limit/check", "404"),
    ] {
        let peer = peer.parse().unwrap();
        let gateway = gateway.clone();
        let mut client = client(1 << 16, move |request, heads| {
            let client = Client {
                peer,
                scheme: "http",
                heads,
            };
            gateway.clone().answer(request, client)
        });
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(&answer[9..12], expected, "{peer} {path}");
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// `POST http://a/`, with a body to come.
const POST: &[u8] = b"\x83\x86\x84\x41\x01a";

/// Begins a connection of HTTP/2, and waits until the server has sent its settings.
async fn greet(client: &mut DuplexStream) {
    let greeting = [PREFACE, SETTINGS].concat();
    client.write_all(greeting.as_bytes()).await.unwrap();
    // Time passes only once nothing else happens.
    sleep(Duration::from_secs(1)).await;
}

/// Returns the bytes that a connection grants for the bodies of all of its requests, and of each.
async fn granted(client: &mut DuplexStream) -> (u32, u32) {
    let (mut of_all, mut of_each) = (65_535, 65_535);
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; number(&[0, head[0], head[1], head[2]]) as usize];
        client.read_exact(&mut payload).await.unwrap();
        match (head[3], head[4]) {
            (4, 0) => {
                let window = payload.chunks(6).rfind(|it| it[..2] == [0, 4]);
                of_each = window.map_or(of_each, |it| number(&it[2..]));
            }
            (8, _) if number(&head[5..]) == 0 => of_all += number(&payload),
            (8, _) => of_each += number(&payload),
            // The answer to the ping that came after all else.
            (6, 1) => return (of_all, of_each),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http_2_takes_little_of_requests_that_nothing_reads() {
    let keep = |request: Request<Incoming>, _| async move {
        pending::<()>().await;
        drop(request);
        Response::new(full(""))
    };
    let mut client = client(1 << 20, keep);
    greet(&mut client).await;
    let mut sent = Vec::new();
    for stream in (1..=15).step_by(2) {
        sent.extend(frame(1, 4, stream, POST));
        sent.extend((0..2).flat_map(|_| frame(0, 0, stream, &[0; 16 * 1024])));
    }
    sent.extend(PING.bytes());
    client.write_all(&sent).await.unwrap();
    // Nothing more is granted for the bytes that have come.
    assert_eq!(granted(&mut client).await, (256 * 1024, 128 * 1024));
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_proxy_do_not_take_the_room_of_each_other() {
    let (mut client, stream) = duplex(1 << 16);
    let server = Server::new(Bounds::default(), watch::channel(Phase::Ready).1);
    let place = server.places.take([192, 0, 2, 1].into(), true).unwrap();
    tokio::spawn(async move {
        let builder = server.builder(true, &Tasks::default());
        let _ = server.connection(&builder, stream, place, empty).await;
    });
    greet(&mut client).await;
    client.write_all(PING.as_bytes()).await.unwrap();
    assert_eq!(granted(&mut client).await, (100 * 128 * 1024, 128 * 1024));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_has_little_of_each_response_read_for_it() {
    const PIECE: usize = 8 * 1024;
    const ON_THE_WAY: usize = 1 << 16;
    let read = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let endless = {
        let read = Arc::clone(&read);
        move |_, _| {
            let read = Arc::clone(&read);
            async move {
                let pieces = std::iter::repeat_with(move || {
                    read.fetch_add(PIECE, std::sync::atomic::Ordering::Relaxed);
                    Ok(http_body::Frame::data(bytes::Bytes::from(vec![
                        b'x';
                        PIECE
                    ])))
                });
                let body = http_body_util::StreamBody::new(tokio_stream::iter(pieces));
                Response::new(body.boxed_unsync())
            }
        }
    };
    let mut client = client(ON_THE_WAY, endless);
    let largest = LARGEST_WINDOW.to_be_bytes();
    let mut sent = PREFACE.as_bytes().to_vec();
    // The client would take all there is.
    sent.extend(frame(4, 0, 0, &[&[0, 4], &largest[..]].concat()));
    sent.extend(frame(8, 0, 0, &(LARGEST_WINDOW - 65_535).to_be_bytes()));
    let streams = usize::try_from(Bounds::default().streams).unwrap();
    for stream in (1..).step_by(2).take(streams) {
        sent.extend(frame(1, 5, stream, POST));
    }
    client.write_all(&sent).await.unwrap();
    // Time passes only once nothing else happens.
    sleep(Duration::from_secs(1)).await;
    let read = read.load(std::sync::atomic::Ordering::Relaxed);
    let most = streams * (16 * 1024 + PIECE) + 2 * ON_THE_WAY;
    assert!(streams * PIECE <= read && read <= most, "{read} of {most}");
}

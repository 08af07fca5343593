//! Questions of a proxy at `/_limit/check`: of fields that contradict each other none is believed, and the limits see the path that was
//! sent. A `traceparent` goes into the log of refusals, whatever it is.

#![no_main]

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use libfuzzer_sys::fuzz_target;
use ratelimitd::phase::Phase;
use ratelimitd::server::{Answers, Bounds, Server};
use ratelimitd::socket::Socket;
use ratelimitd::{Gateway, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tower_ratelimit_config::{Config, Format};
use tower_ratelimit_fuzz::fields;

const LIMITS: &str = "
[lists]
deny = [{ path = \"/dear/*\" }, { method = \"PUT\" }]
[policies.all]
quota = \"1000000/second\"
key = \"global\"
";

/// What a proxy may send of the original request, each by one of these.
const METHODS: [&str; 2] = ["x-original-method", "x-forwarded-method"];
const URIS: [&str; 3] = ["x-original-uri", "x-original-url", "x-forwarded-uri"];
const HOSTS: [&str; 1] = ["x-forwarded-host"];

struct Scene {
    runtime: Runtime,
    path: PathBuf,
    _phase: watch::Sender<Phase>,
}

thread_local! {
    static SCENE: Scene = Scene::new();
}

fuzz_target!(|text: &[u8]| {
    let sent = fields(text);
    // These belong to the connection, and to its own reading.
    let others = [
        "connection",
        "content-length",
        "expect",
        "host",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    if others.iter().any(|name| sent.contains_key(*name)) {
        return;
    }
    let status = SCENE.with(|scene| scene.ask(&sent));
    assert!(matches!(status, 200 | 400 | 403 | 431), "{status}");
    let groups = [&METHODS[..], &URIS, &HOSTS];
    if groups.iter().any(|group| contradict(&sent, group)) {
        assert!(matches!(status, 400 | 431), "{status}");
    } else if status == 200 {
        let method =
            one(&sent, &METHODS).map(|method| Method::from_bytes(method).expect("it was taken"));
        assert_ne!(method, Some(Method::PUT));
        if let Some(uri) = one(&sent, &URIS) {
            let uri = Uri::try_from(uri).expect("it was taken");
            assert!(!uri.path().starts_with("/dear/"), "{uri}");
        }
    }
});

fn values<'a>(sent: &'a HeaderMap, names: &'a [&str]) -> impl Iterator<Item = &'a [u8]> {
    let all = names.iter().flat_map(|name| sent.get_all(*name));
    all.map(|value| value.as_bytes())
}

fn one<'a>(sent: &'a HeaderMap, names: &'a [&str]) -> Option<&'a [u8]> {
    values(sent, names).next()
}

fn contradict(sent: &HeaderMap, names: &[&str]) -> bool {
    let first = one(sent, names);
    values(sent, names).any(|value| Some(value) != first)
}

impl Scene {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("it can be built");
        let path =
            std::env::temp_dir().join(format!("ratelimitd-questions-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let config = Config::builder()
            .parse(LIMITS, Format::Toml)
            .expect("the file is good");
        let layer = config.layer().expect("the file is good");
        let gateway = Gateway::new(Limits::Text { config, layer }, None).log_refusals(1);
        let phase = watch::Sender::new(Phase::Ready);
        let server = Server::new(Bounds::default(), phase.subscribe());
        runtime.block_on(async {
            let listener = UnixListener::bind(&path).expect("the path is free");
            tokio::spawn(server.serve(Socket::Unix(listener), Answers::Gateway(gateway)));
        });
        Self {
            runtime,
            path,
            _phase: phase,
        }
    }

    /// Returns the status of the answer.
    fn ask(&self, sent: &HeaderMap) -> u16 {
        let mut question =
            b"GET /_limit/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\n".to_vec();
        for (name, value) in sent {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                question.extend_from_slice(part);
            }
        }
        question.extend_from_slice(b"\r\n");
        let mut answer = Vec::new();
        self.runtime.block_on(async {
            let mut stream = UnixStream::connect(&self.path)
                .await
                .expect("the server is there");
            // The server may close the connection before it has taken all.
            let _ = stream.write_all(&question).await;
            let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer));
            assert!(end.await.is_ok(), "the connection stays open");
        });
        let answer = String::from_utf8_lossy(&answer);
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no answer: {answer:?}"))
    }
}

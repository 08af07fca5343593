//! Questions of a proxy at `/_limit/check`: of fields that contradict each other none is believed, and the limits see the path that was
//! sent. A `traceparent` goes into the log of refusals, whatever it is.

#![no_main]

use http::{HeaderMap, Method, Uri};
use libfuzzer_sys::fuzz_target;
use ratelimitd::server::Answers;
use ratelimitd::{Gateway, Limits};
use tower_ratelimit_config::{Config, Format};
use tower_ratelimit_fuzz::{Served, fields, status};

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

thread_local! {
    static SERVED: Served = serve();
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
    let status = SERVED.with(|served| ask(served, &sent));
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

fn serve() -> Served {
    let config = Config::builder()
        .parse(LIMITS, Format::Toml)
        .expect("the file is good");
    let layer = config.layer().expect("the file is good");
    let gateway = Gateway::new(Limits::Text { config, layer }, None).log_refusals(1);
    Served::new("questions", Answers::Gateway(gateway))
}

/// Returns the status of the answer.
fn ask(served: &Served, sent: &HeaderMap) -> u16 {
    let mut question = b"GET /_limit/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\n".to_vec();
    for (name, value) in sent {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            question.extend_from_slice(part);
        }
    }
    question.extend_from_slice(b"\r\n");
    status(&served.exchange(&[&question])).0
}

//! The keys of a request. What stands behind the first cookie, credential or parameter of a name changes nothing, and a path is
//! made plain once.

#![no_main]

use std::sync::LazyLock;

use http::{HeaderValue, Request, Uri};
use libfuzzer_sys::fuzz_target;
use tower_ratelimit::key::{self, Extract, Head, Key, Missing};
use tower_ratelimit_fuzz::request;

/// All of them. A secret is drawn once.
static KEYS: LazyLock<Vec<Box<dyn Extract>>> = LazyLock::new(|| {
    vec![
        Box::new(key::api_key()),
        Box::new(key::bearer_token()),
        Box::new(key::cookie("sid")),
        Box::new(key::query("q")),
        Box::new(key::header("x-tenant")),
        Box::new(key::metadata("x-tenant")),
        Box::new(key::metadata("x-tenant-bin")),
        Box::new(key::method()),
        Box::new(key::grpc_service()),
        Box::new(key::grpc_method()),
        Box::new(key::mcp_name()),
        Box::new(key::json("model")),
        Box::new(key::header("x-tenant").or(key::query("q"))),
        Box::new(key::header("x-tenant").and(key::query("q"))),
        Box::new(key::query("q").prefix("a")),
    ]
});

fuzz_target!(|text: &[u8]| {
    let Some(request) = request(text) else { return };
    let keys = all(&request);
    for (name, value) in [
        ("authorization", "Bearer another"),
        ("x-api-key", "another"),
        ("cookie", "sid=another"),
        ("x-tenant", "another"),
    ] {
        if request.headers().contains_key(name) {
            let mut longer = request.clone();
            longer
                .headers_mut()
                .append(name, HeaderValue::from_static(value));
            let changed = all(&longer);
            for (index, (key, changed)) in keys.iter().zip(changed).enumerate() {
                // A cookie that was missing may be found in the new line.
                assert!(
                    *key == changed || name == "cookie" && key.is_err(),
                    "{name}: key {index}"
                );
            }
        }
    }
    if let (Some(query), Ok(_)) = (request.uri().query(), &keys[3]) {
        let path = request.uri().path();
        let uri = format!("{path}?{query}&q=another").parse::<Uri>();
        if let Ok(uri) = uri {
            let mut longer = request.clone();
            *longer.uri_mut() = uri;
            assert_eq!(all(&longer)[3], keys[3]);
        }
    }

    let head = Head::of(&request);
    let normal = head.normal_path();
    assert!(head.any_reading(|path| path == normal), "{normal}");
    if head.has_one_reading() {
        assert!(!head.any_reading(|path| path != head.path()));
    }
    if let Some(plain) = head.plain_path() {
        assert_eq!(plain, head.path());
        let segments = |path: &str| path.matches('/').count();
        assert!(!head.any_reading(|path| segments(path) != segments(plain)));
    }
    // What is left of an escape may be one with what stands behind it.
    let mut escapes = head.path().split('%').skip(1);
    let is_whole = |rest: &str| rest.bytes().take_while(u8::is_ascii_hexdigit).count() >= 2;
    let are_whole = escapes.all(is_whole);
    if let (true, Ok(uri)) = (are_whole, normal.parse::<Uri>()) {
        let mut again = request.clone();
        *again.uri_mut() = uri;
        assert_eq!(Head::of(&again).normal_path(), normal);
    }
});

fn all(request: &Request<()>) -> Vec<Result<Key, Missing>> {
    let head = Head::of(request);
    let keys: Vec<_> = KEYS.iter().map(|key| key.extract(&head)).collect();
    for (key, found) in KEYS.iter().zip(&keys) {
        assert_eq!(key.extract(&head), *found, "twice the same");
    }
    keys
}

//! The key that each extractor makes of a request, and of a request that is written to confuse it.

use axum::Router;
use axum::body::Body;
use axum::routing::{any, get as route_get};
use http::{HeaderValue, Method, Request, StatusCode};
use tower::{Layer, ServiceExt};
use tower_ratelimit::key::{self, Extract, Head, IntoKey, Key, Missing, Secret};
use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket};

use crate::exchange::{ask, get, now};

pub(crate) fn read(extractor: &impl Extract, request: &Request<()>) -> Result<Key, Missing> {
    extractor.extract(&Head::of(request))
}

/// `GET /` with these headers, of any bytes that a header can have.
pub(crate) fn sent(fields: &[(&'static str, &[u8])]) -> Request<()> {
    let mut request = get();
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(*name, value);
    }
    request
}

fn to(target: &str) -> Request<()> {
    Request::get(target).body(()).unwrap()
}

fn secret() -> Secret {
    Secret::new([7; 32]).unwrap()
}

#[track_caller]
fn bearer(authorization: &[u8]) -> Result<Key, Missing> {
    let request = sent(&[("authorization", authorization)]);
    read(&key::bearer_token().hashed(&secret()), &request)
}

#[test]
fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
    let token = secret().hash("aZ09-._~+/==");
    for scheme in ["Bearer ", "bearer ", "BEARER ", "bEaReR   "] {
        let sent = format!("{scheme}aZ09-._~+/==");
        assert_eq!(bearer(sent.as_bytes()), Ok(token), "{sent}");
    }
    assert_ne!(bearer(b"Bearer az09-._~+/=="), Ok(token));
    assert_ne!(bearer(b"Bearer aZ09-._~+/="), Ok(token));
}

#[test]
fn a_malformed_bearer_token_is_missing_by_the_client() {
    for wrong in [
        &b""[..],
        b"Bearer",
        b"Bearer ",
        b"Bearer =",
        b"Bearertoken",
        b"Bearer\ttoken",
        b"Bearer a=b",
        b"Bearer a b",
        b"Bearer a,b",
        b"Bearer a:b",
        b"Bearer \"a\"",
        b"Bearer \xc3\xa9",
        b"Bearer \xff",
        b"Basic YTpi",
        b"Digest token",
        b" Bearer token",
    ] {
        let shown = wrong.escape_ascii();
        assert_eq!(bearer(wrong), Err(Missing::ByClient), "{shown}");
    }
    let none = read(&key::bearer_token(), &get());
    assert_eq!(none, Err(Missing::ByClient));
}

#[test]
fn the_first_of_two_authorizations_counts() {
    let two = sent(&[
        ("authorization", b"Bearer a"),
        ("authorization", b"Bearer b"),
    ]);
    let token = key::bearer_token().hashed(&secret());
    assert_eq!(read(&token, &two), Ok(secret().hash("a")));
    let basic_first = sent(&[
        ("authorization", b"Basic a"),
        ("authorization", b"Bearer b"),
    ]);
    assert_eq!(read(&token, &basic_first), Err(Missing::ByClient));
}

#[test]
fn tokens_and_cookies_are_hashed_with_the_secret_of_the_process_unless_another_is_given() {
    let request = sent(&[("authorization", b"Bearer a"), ("cookie", b"sid=a")]);
    let of_the_process = Secret::of_the_process().unwrap().hash("a");
    assert_eq!(read(&key::bearer_token(), &request), Ok(of_the_process));
    assert_eq!(read(&key::cookie("sid"), &request), Ok(of_the_process));

    let given = secret().hash("a");
    assert_ne!(given, of_the_process);
    let token = key::bearer_token().hashed(&secret());
    assert_eq!(read(&token, &request), Ok(given));
    assert_eq!(
        read(&key::cookie("sid").hashed(&secret()), &request),
        Ok(given)
    );
    // The result of a closure over a token is hashed as well.
    let mapped = token.map(|token: &str| token.to_uppercase());
    assert_eq!(read(&mapped, &request), Ok(secret().hash("A")));
    let mapped = key::cookie("sid").hashed(&secret());
    let mapped = mapped.map(|value: &str| value.to_uppercase());
    assert_eq!(read(&mapped, &request), Ok(secret().hash("A")));
}

#[test]
fn secrets_are_in_no_debug_form() {
    let secret = Secret::new("correct horse battery").unwrap();
    let request = sent(&[
        ("authorization", b"Bearer hunter2"),
        ("cookie", b"sid=hunter2"),
        ("x-api-key", b"hunter2"),
    ]);
    let token = key::bearer_token().hashed(&secret);
    let cookie = key::cookie("sid").hashed(&secret);
    let header = key::header("x-api-key").hashed(&secret);
    let keys = [
        read(&token, &request),
        read(&cookie, &request),
        read(&header, &request),
    ];
    let shown = format!("{secret:?} {token:?} {cookie:?} {header:?} {keys:?}");
    assert_eq!(
        shown.matches("Ok(Key(secret))").count(),
        3,
        "all are hashed: {shown}"
    );
    for part in ["hunter2", "correct", "battery", "[99, 111"] {
        assert!(!shown.contains(part), "{shown}");
    }
}

#[track_caller]
fn sid(lines: &[&[u8]]) -> Result<Key, Missing> {
    let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
    read(&key::cookie("sid").hashed(&secret()), &sent(&lines))
}

#[test]
fn a_cookie_is_found_among_all_lines_and_the_first_counts() {
    let value = Ok(secret().hash("v=1"));
    for lines in [
        &[&b"sid=v=1"[..]][..],
        &[b"a=b; sid=v=1"],
        &[b"a=b;sid=v=1;sid=2"],
        &[b"a=b", b"c=d; sid=v=1; e=f", b"sid=2"],
        &[b" \t sid = v=1 \t; a=b"],
        &[b"sid=\"v=1\""],
        &[b";;=;sid;Sid=2;xsid=2;sidx=2;\xff=\xff; sid=v=1"],
    ] {
        let shown: Vec<_> = lines.iter().map(|line| line.escape_ascii()).collect();
        assert_eq!(sid(lines), value, "{shown:?}");
    }
    assert_eq!(sid(&[b"sid="]), Ok(secret().hash("")), "empty is there");
    assert_eq!(sid(&[b"sid=\xff"]), Ok(secret().hash([0xff])));
    assert_eq!(sid(&[b"sid=\""]), Ok(secret().hash("\"")));
}

#[test]
fn a_cookie_that_is_not_there_is_left_out_by_the_client() {
    for lines in [
        &[][..],
        &[&b""[..]][..],
        &[b"sid"],
        &[b"SID=1"],
        &[b"a=sid=1"],
        &[b"\"sid=1\""],
        &[b"sid2=1", b"a=1; xsid=1"],
        &[b"sid\xff=1"],
    ] {
        assert_eq!(sid(lines), Err(Missing::ByClient), "{lines:?}");
    }
}

#[test]
fn a_cookie_whose_name_is_none_is_an_error_or_a_panic_at_start_up() {
    for wrong in ["", "a b", "a=b", "a;b", "a\n", "é", "\"a\"", "a,b"] {
        let error = key::try_cookie(wrong).unwrap_err();
        assert_eq!(error.field(), "cookie", "{wrong:?}");
    }
    for right in ["sid", "SID", "__Host-sid", "a!#$%&'*+.^_`|~"] {
        assert!(key::try_cookie(right).is_ok(), "{right}");
    }
    assert!(std::panic::catch_unwind(|| key::cookie("a b")).is_err());
}

#[test]
fn the_nine_methods_are_told_apart_and_inventions_are_one() {
    let method = |name: &str| {
        let name = Method::from_bytes(name.as_bytes()).unwrap();
        let request = Request::builder().method(name).body(()).unwrap();
        read(&key::method(), &request).unwrap()
    };
    let nine = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    let mut keys: Vec<Key> = nine.into_iter().map(method).collect();
    let invented = method("BREW");
    for name in ["get", "PROPFIND", "other", "OTHER", "*", &"X".repeat(1000)] {
        assert_eq!(method(name), invented, "{name}");
    }
    keys.push(invented);
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{key:?} {index}");
    }
}

#[test]
fn a_parameter_is_decoded_and_the_first_counts() {
    let read = |target: &str| read(&key::query("q"), &to(target));
    for (target, value) in [
        ("/?q=a", "a"),
        ("/?q=a&q=b", "a"),
        ("/?p=b&q=a", "a"),
        ("/?%71=a", "a"),
        ("/?q=%61", "a"),
        ("/?q=a+b", "a b"),
        ("/?q=a%2Bb%26c%3Dd", "a+b&c=d"),
        ("/?q=a=b", "a=b"),
        ("/?q=%0A%0D%00", "\n\r\0"),
        ("/?q=%C3%A9", "é"),
        ("/?q=%FF", "\u{fffd}"),
        ("/?q=%zz%", "%zz%"),
        ("/?q=", ""),
        ("/?q", ""),
        ("/?&&q&", ""),
    ] {
        assert_eq!(read(target), Ok(value.into_key()), "{target}");
    }
    for target in ["/", "/?", "/?Q=a", "/?qq=a", "/?p=q", "/q=a", "/?=q"] {
        assert_eq!(read(target), Err(Missing::ByClient), "{target}");
    }
}

#[test]
fn the_global_key_is_one_that_no_client_can_send() {
    let global = read(&key::global(), &get());
    assert_eq!(global, read(&key::global(), &to("/elsewhere?x=y")));
    assert_eq!(global, Ok(Key::GLOBAL));
}

#[test]
fn no_value_that_a_client_sends_is_a_key_of_ours() {
    let ours = [Key::MISSING, Key::GLOBAL, secret().hash("global")];
    for value in [&b""[..], b"global", b"missing", b"\x80", b"\xff\xff"] {
        let request = sent(&[("x-key", value)]);
        let key = read(&key::header("x-key"), &request).unwrap();
        assert!(!ours.contains(&key), "{}", value.escape_ascii());
    }
    // Every kind of key, byte by byte, as the value of a parameter.
    for byte in 0_u8..=255 {
        for rest in ["", "%00", "%00%00", &"%00".repeat(16), &"%00".repeat(45)] {
            let key = read(&key::query("q"), &to(&format!("/?q=%{byte:02x}{rest}"))).unwrap();
            assert!(!ours.contains(&key), "{byte} {rest}");
        }
    }
}

#[test]
fn hostile_values_are_keys_of_48_bytes_or_none() {
    assert_eq!(size_of::<Key>(), 48);
    let long = "x".repeat(1_000_000);
    let cookie = format!("a={long}; sid={long}");
    let request = |last: &str| {
        sent(&[
            ("x-key", format!("{long}{last}").as_bytes()),
            ("cookie", format!("{cookie}{last}").as_bytes()),
            ("authorization", format!("Bearer {long}{last}").as_bytes()),
        ])
    };
    let (a, b) = (request("a"), request("b"));
    let header = key::header("x-key");
    let extractors: [(&str, &dyn Extract); 4] = [
        ("header", &header),
        ("cookie", &key::cookie("sid")),
        ("bearer", &key::bearer_token()),
        ("two", &key::header("x-key").and(key::header("cookie"))),
    ];
    for (name, extractor) in extractors {
        let key = |request| extractor.extract(&Head::of(request)).unwrap();
        assert_eq!(key(&a), key(&a), "{name}");
        assert_ne!(key(&a), key(&b), "{name}");
    }

    // A header cannot contain these bytes, and a decoded parameter can.
    let values = ["", "%00", "%00%00", "%0A", "*", "%2A", "[a-z]", "?", "%20"];
    let mut keys: Vec<Key> = values
        .iter()
        .map(|value| read(&key::query("q"), &to(&format!("/?q={value}"))).unwrap())
        .collect();
    assert_eq!(keys[4], keys[5], "spellings of one value");
    keys.remove(5);
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{index}");
    }
}

/// Sends a request for a target to this router.
fn status(router: &Router, method: &str, target: &str) -> StatusCode {
    let request = Request::builder().method(method).uri(target);
    ask(router, request.body(Body::empty()).unwrap()).status
}

fn once(key: impl Extract) -> RateLimitLayer {
    let policy = Policy::new("once", TokenBucket::per_day(1)).key(key);
    RateLimitLayer::builder().policy(policy).build().unwrap()
}

#[test]
fn routes_are_told_apart_by_their_paths_as_they_were_written() {
    let nested = Router::new().route("/{id}", any(|| async {}));
    let router = Router::new()
        .route("/users/{id}", any(|| async {}))
        .route("/about", any(|| async {}))
        .nest("/nested", nested)
        .layer(once(key::matched_path()));
    for (target, expected) in [
        ("/users/1", 200),
        ("/users/2?q", 429),
        ("/about", 200),
        ("/nested/1", 200),
        ("/nested/2", 429),
        // All requests without a route have one key.
        ("/nothing", 404),
        ("/nowhere", 429),
        ("/users/%7Bid%7D", 429),
    ] {
        assert_eq!(status(&router, "GET", target), expected, "{target}");
    }
    assert_eq!(status(&router, "POST", "/about"), 429);
}

#[test]
fn a_route_is_its_method_and_its_path() {
    let router = Router::new()
        .route("/a", any(|| async {}))
        .route("/b", any(|| async {}))
        .layer(once(key::route()));
    for (method, target, expected) in [
        ("GET", "/a", 200),
        ("GET", "/a", 429),
        ("POST", "/a", 200),
        ("GET", "/b", 200),
        ("BREW", "/a", 200),
        ("STEEP", "/a", 429),
    ] {
        let answer = status(&router, method, target);
        assert_eq!(answer, expected, "{method} {target}");
    }
}

#[test]
fn around_a_router_and_not_in_it_no_path_is_the_servers_fault() {
    let router = Router::new().route("/", route_get(|| async {}));
    let around = once(key::route()).layer(router);
    let request = Request::new(Body::empty());
    let answer = now(around.oneshot(request)).unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);

    let Err(Missing::ByServer(diagnostic)) = read(&key::matched_path(), &get()) else {
        panic!("the path is there");
    };
    assert_eq!(diagnostic.code(), "TRL007");
}

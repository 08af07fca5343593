//! Keys, and requests without one.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use tower_ratelimit::key::Secret;

use super::{from, pass};
use crate::scene::{config, get, layer, now, send};

#[test]
fn keys_count_what_they_say() {
    let two = |name: &'static str, one: &'static str, other: &'static str| {
        [get("/").header(name, one), get("/").header(name, other)]
    };
    assert_eq!(pass("#key \"global\"", [get("/"), Request::post("/")]), 1);
    assert_eq!(pass("#key \"method\"", [get("/"), Request::post("/")]), 2);
    assert_eq!(
        pass(
            "#key \"client_ip\"",
            [from([192, 0, 2, 1]), from([192, 0, 2, 2])]
        ),
        2
    );
    assert_eq!(
        pass(
            "#key \"peer_ip\"",
            [from([192, 0, 2, 1]), from([192, 0, 2, 1])]
        ),
        1
    );
    assert_eq!(pass("#key \"api_key\"", two("x-api-key", "one", "two")), 2);
    assert_eq!(
        pass(
            "#key { api_key = \"x-token\" }",
            two("x-token", "one", "two")
        ),
        2
    );
    assert_eq!(
        pass(
            "#key { header = \"x-tenant\" }",
            two("x-tenant", "one", "two")
        ),
        2
    );
    assert_eq!(
        pass("#key { cookie = \"sid\" }", two("cookie", "sid=1", "sid=2")),
        2
    );
    assert_eq!(
        pass(
            "#key { query = \"user\" }",
            [get("/?user=1"), get("/?user=2"), get("/a?user=2")]
        ),
        2
    );
    assert_eq!(
        pass(
            "#key \"bearer_token\"",
            two("authorization", "Bearer a", "Bearer b")
        ),
        2
    );
    assert_eq!(
        pass(
            "#key { hashed = { header = \"x-a\" } }",
            two("x-a", "1", "2")
        ),
        2
    );
}

/// A node of an older version makes the same key.
#[test]
fn a_key_that_is_hashed_twice_is_hashed_twice() {
    let text =
        "[policies.a]\nquota = \"9/hour\"\nkey = { hashed = { hashed = { header = \"x-a\" } } }\n";
    let layer = layer(&config(text));
    let secret = Secret::of_the_process().unwrap();
    let limiter = layer.limiter();
    for key in [secret.hash(secret.hash("1")), secret.hash("2")] {
        let block = limiter.block(key, Duration::from_secs(60));
        now(block).unwrap();
    }
    assert_eq!(send(&layer, get("/").header("x-a", "1")).status, 429);
    assert_eq!(send(&layer, get("/").header("x-a", "2")).status, 200);
}

#[test]
fn keys_combine() {
    let both = [
        get("/").header("x-a", "1").header("x-b", "1"),
        get("/").header("x-a", "1").header("x-b", "2"),
        get("/").header("x-a", "1").header("x-b", "1"),
    ];
    assert_eq!(
        pass("#key [{ header = \"x-a\" }, { header = \"x-b\" }]", both),
        2
    );
    let both = [
        get("/").header("x-a", "1").header("x-b", "1"),
        get("/").header("x-a", "1").header("x-b", "2"),
        get("/").header("x-b", "1"),
    ];
    assert_eq!(
        pass(
            "#key { first_of = [{ header = \"x-a\" }, { header = \"x-b\" }] }",
            both
        ),
        2
    );
    let both = [
        get("/").header("x-a", "1"),
        Request::post("/").header("x-a", "1"),
    ];
    assert_eq!(
        pass("#key { all_of = [{ header = \"x-a\" }, \"method\"] }", both),
        2
    );
}

#[test]
fn the_address_is_that_which_trusted_proxies_tell() {
    let forwarded = |peer: [u8; 4]| {
        ["198.51.100.1", "198.51.100.2"].map(|client| from(peer).header("x-forwarded-for", client))
    };
    let behind =
        "[proxies]\nnetworks = \"10.0.0.0/8\"\nheader = \"x-forwarded-for\"\n#key \"client_ip\"";
    assert_eq!(pass(behind, forwarded([10, 0, 0, 1])), 2);
    assert_eq!(pass(behind, forwarded([192, 0, 2, 1])), 1);
    let hops = "[proxies]\nhops = 1\nheader = \"X-Forwarded-For\"\n#key \"client_ip\"";
    assert_eq!(pass(hops, forwarded([192, 0, 2, 1])), 2);
    let sites = [[2_u16, 1], [2, 2]].map(|[a, b]| {
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, 0, 1);
        get("/").extension(SocketAddr::from((address, 1)))
    });
    assert_eq!(pass("#key { client_ip = { ipv6_prefix = 48 } }", sites), 1);
}

#[test]
fn requests_without_a_key_are_treated_as_the_file_says() {
    for (on_missing_key, statuses) in [
        ("\"shared\"", [200, 429]),
        ("\"skip\"", [200, 200]),
        ("401", [401, 401]),
    ] {
        let config = config(&format!(
            "[policies.a]\nquota = \"1/day\"\nkey = {{ header = \"x-a\" }}\non_missing_key = {on_missing_key}"
        ));
        let layer = layer(&config);
        let got = [(); 2].map(|()| send(&layer, get("/")).status);
        assert_eq!(got, statuses, "{on_missing_key}");
    }
}

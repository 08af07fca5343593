//! Each setting of a file does what the builder does.

mod keys;
mod layers;
mod limits;
mod requests;

use std::net::SocketAddr;

use crate::scene::{config, get, layer, send};

/// Returns how many of these requests pass, under one a day for each key.
fn pass(says: &str, requests: impl IntoIterator<Item = http::request::Builder>) -> usize {
    let config = config(&format!(
        "{says}\n[policies.a]\nquota = \"1/day\"\n{}",
        KEY.replace("KEY", says_key(says))
    ));
    let layer = layer(&config);
    let passed = requests
        .into_iter()
        .filter(|_| true)
        .map(|request| send(&layer, request));
    passed.filter(|answer| answer.status == 200).count()
}

const KEY: &str = "key = KEY";

/// The key stands in a comment of its own line, `#key …`.
fn says_key(says: &str) -> &str {
    says.lines()
        .find_map(|line| line.strip_prefix("#key "))
        .unwrap()
}

fn from(address: [u8; 4]) -> http::request::Builder {
    get("/").extension(SocketAddr::from((address, 1)))
}

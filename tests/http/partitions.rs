//! Partition keys: they show which requests are counted together, and do not show the key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sfv::{FieldType, List, ListEntry, Parser};
use tower_ratelimit::key::{self, Secret};
use tower_ratelimit::response::Dialect;
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer};

use crate::exchange::{Behind, Hello, Received, ask, get_with};

/// Two policies by user and one by tenant.
fn service(secret: &Secret, dialects: &[Dialect]) -> Hello {
    let user = || key::header("x-user");
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(1)).key(user()))
        .policy(Policy::new("day", FixedWindow::per_day(9)).key(user()))
        .policy(Policy::new("tenant", FixedWindow::per_day(99)).key(key::header("x-tenant")))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .dialects(dialects.iter().copied())
        .partition_keys(secret);
    Hello::behind(&layer.build().unwrap())
}

fn send(service: &Hello, user: u32, tenant: u32) -> Received {
    ask(service, get_with([("x-user", user), ("x-tenant", tenant)]))
}

/// Returns the name and the partition key of each item, and the header without the partition keys.
fn partitions(field: &str) -> (Vec<(String, Vec<u8>)>, String) {
    let mut list: List = Parser::new(field).parse().unwrap();
    assert_eq!(list.serialize().as_deref(), Some(field), "not canonical");
    let mut partitions = Vec::new();
    for entry in &mut list {
        let ListEntry::Item(item) = entry else {
            panic!("an inner list: {entry:?}");
        };
        let (name, key) = item.params.pop().unwrap();
        assert_eq!(name.as_str(), "pk");
        let key = key.as_byte_sequence().unwrap().to_vec();
        let name = item.bare_item.as_string().unwrap().to_string();
        // Zero pad bits and padding, or this would refuse it.
        let written = format!(";pk=:{}:", STANDARD.encode(&key));
        assert!(field.contains(&written));
        partitions.push((name, key));
    }
    (partitions, list.serialize().unwrap())
}

fn of<'a>(partitions: &'a [(String, Vec<u8>)], policy: &str) -> &'a [u8] {
    let (_, key) = partitions.iter().find(|(name, _)| name == policy).unwrap();
    key
}

#[test]
fn both_fields_have_the_partition_key_of_each_policy() {
    let secret = Secret::new([7; 32]).unwrap();
    let service = service(&secret, &[Dialect::Draft11]);
    let answer = send(&service, 1, 8);
    let (policies, plain) = partitions(answer.field("ratelimit-policy").unwrap());
    assert_eq!(
        plain,
        r#""minute";q=1;w=60, "day";q=9;w=86400, "tenant";q=99;w=86400"#
    );
    let (limits, plain) = partitions(answer.field("ratelimit").unwrap());
    assert_eq!(
        plain,
        r#""minute";r=0;t=60, "day";r=8;t=86400, "tenant";r=98;t=86400"#
    );
    assert_eq!(policies, limits);
    assert!(policies.iter().all(|(_, key)| key.len() == 16));
    // The same key gives the same partition key, and other keys give others.
    assert_eq!(of(&policies, "minute"), of(&policies, "day"));
    assert_ne!(of(&policies, "minute"), of(&policies, "tenant"));

    let refusal = send(&service, 1, 8);
    assert_eq!(refusal.status, 429);
    let (denied, plain) = partitions(refusal.field("ratelimit").unwrap());
    assert_eq!(plain, r#""minute";r=0;t=60"#);
    assert_eq!(of(&denied, "minute"), of(&policies, "minute"));
    assert_eq!(
        partitions(refusal.field("ratelimit-policy").unwrap()).0,
        policies
    );

    let (other, _) = partitions(send(&service, 2, 8).field("ratelimit").unwrap());
    assert_ne!(of(&other, "minute"), of(&policies, "minute"));
    assert_eq!(of(&other, "tenant"), of(&policies, "tenant"));
}

#[test]
fn another_secret_tells_other_keys() {
    let keys = [7, 8].map(|byte| {
        let secret = Secret::new([byte; 32]).unwrap();
        let answer = send(&service(&secret, &[Dialect::Draft11]), 1, 8);
        let (partitions, _) = partitions(answer.field("ratelimit").unwrap());
        of(&partitions, "minute").to_vec()
    });
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn other_dialects_omit_the_partition_key() {
    let secret = Secret::new([7; 32]).unwrap();
    let answer = send(
        &service(&secret, &[Dialect::Draft07, Dialect::GitHub]),
        1,
        8,
    );
    assert_eq!(
        answer.field("ratelimit"),
        Some("limit=1, remaining=0, reset=60")
    );
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
    let answer = send(
        &service(&secret, &[Dialect::GitHub, Dialect::Draft11]),
        1,
        8,
    );
    assert!(answer.field("ratelimit").unwrap().contains(";pk=:"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
}

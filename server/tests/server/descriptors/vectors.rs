//! Which limit a descriptor has, by the cases of `envoyproxy/ratelimit`.

use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use ratelimitd::ratelimit::explain;

use super::{Scene, With, codes, descriptor};
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;

pub(super) const FILE: &str = "
domain: shop
descriptors:
- key: key1
  value: value1
  descriptors:
  - key: subkey1
    rate_limit: { unit: second, requests_per_unit: 5 }
  - key: subkey1
    value: subvalue1
    rate_limit: { unit: SECOND, requests_per_unit: 10 }
- key: key2
  rate_limit: { unit: minute, requests_per_unit: 20 }
- key: key2
  value: value2
  rate_limit: { unit: minute, requests_per_unit: 30 }
- key: key2
  value: value3
- key: key5
  value: value5
  rate_limit: { unit: day, requests_per_unit: 15 }
  descriptors:
  - key: subkey5
    value: subvalue5
    rate_limit: { unit: day, requests_per_unit: 25 }
- key: wild
  value: foo*
  rate_limit: { unit: minute, requests_per_unit: 20 }
- key: midWild
  value: bar*b
  rate_limit: { unit: minute, requests_per_unit: 20 }
- key: multiWild
  value: foo*bar*baz
  rate_limit: { unit: minute, requests_per_unit: 20 }
- key: file
  value: test1
  rate_limit: { unit: minute, requests_per_unit: 50 }
- key: file
  value: test*
  rate_limit: { unit: minute, requests_per_unit: 100 }
  share_threshold: true
- key: order
  value: a*
  rate_limit: { unit: hour, requests_per_unit: 1 }
- key: order
  value: ab*
  rate_limit: { unit: hour, requests_per_unit: 2 }
- key: order
  rate_limit: { unit: hour, requests_per_unit: 3 }
- key: none
  rate_limit: { unit: week, requests_per_unit: 0 }
- key: free
  rate_limit: { unlimited: true }
- key: number
  value: 7
  rate_limit: { unit: month, requests_per_unit: 7 }
- key: year
  rate_limit: { unit: Year, requests_per_unit: 8, name: yearly }
";

/// Limits of which one replaces another.
pub(super) const REPLACING: &str = "
domain: shop
descriptors:
- key: k1
  value: v1
  descriptors:
  - key: user
    value: u
    rate_limit: { unit: hour, requests_per_unit: 5, name: n }
- key: k2
  value: v2
  descriptors:
  - key: user
    value: u
    rate_limit: { unit: hour, requests_per_unit: 10, replaces: [{ name: n }] }
- key: k3
  rate_limit: { unlimited: true, replaces: [{ name: n }] }
";

/// Limits whose keys and values are one text when they are joined.
pub(super) const ALIKE: &str = "
domain: shop
descriptors:
- key: a_b
  rate_limit: { unit: hour, requests_per_unit: 1 }
- key: a
  value: b
  rate_limit: { unit: hour, requests_per_unit: 2 }
- key: a
  descriptors:
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 3 }
";

/// The entries of a request, and the limit with its unit and its path.
type Case<'a> = (&'a [(&'a str, &'a str)], Option<(u32, Unit, &'a str)>);

#[tokio::test]
async fn a_descriptor_has_the_limit_at_its_last_entry() {
    use Unit::{Day, Hour, Minute, Month, Second, Week, Year};
    let scene = Scene::new(FILE);
    let cases: [Case<'_>; 32] = [
        (&[("key1", "value1")], None),
        (
            &[("key1", "value1"), ("subkey1", "x")],
            Some((5, Second, "key1_value1.subkey1")),
        ),
        (
            &[("key1", "value1"), ("subkey1", "subvalue1")],
            Some((10, Second, "key1_value1.subkey1_subvalue1")),
        ),
        (&[("key1", "other"), ("subkey1", "x")], None),
        (&[("key1", "value1"), ("subkey1", "x"), ("more", "y")], None),
        (&[("subkey1", "x")], None),
        (&[("key2", "a")], Some((20, Minute, "key2"))),
        (&[("key2", "")], Some((20, Minute, "key2"))),
        (&[("key2", "value2")], Some((30, Minute, "key2_value2"))),
        (&[("key2", "value3")], None),
        (&[("key2", "a"), ("key2", "b")], None),
        (&[("key5", "value5")], Some((15, Day, "key5_value5"))),
        (
            &[("key5", "value5"), ("subkey5", "subvalue5")],
            Some((25, Day, "key5_value5.subkey5_subvalue5")),
        ),
        (&[("key5", "value5"), ("subkey5", "other")], None),
        (&[("wild", "foo1")], Some((20, Minute, "wild_foo*"))),
        (&[("wild", "foo")], Some((20, Minute, "wild_foo*"))),
        (&[("wild", "fo")], None),
        (&[("midWild", "barxb")], Some((20, Minute, "midWild_bar*b"))),
        (&[("midWild", "bar")], None),
        (
            &[("multiWild", "fooXbarYbaz")],
            Some((20, Minute, "multiWild_foo*bar*baz")),
        ),
        (&[("multiWild", "fooXbaz")], None),
        (&[("file", "test1")], Some((50, Minute, "file_test1"))),
        (&[("file", "test2")], Some((100, Minute, "file_test*"))),
        (&[("order", "abc")], Some((1, Hour, "order_a*"))),
        (&[("order", "ab*")], Some((2, Hour, "order_ab*"))),
        (&[("order", "b")], Some((3, Hour, "order"))),
        (&[("none", "x")], Some((0, Week, "none"))),
        (&[("free", "x")], Some((u32::MAX, Unit::Unknown, "free"))),
        (&[("number", "7")], Some((7, Month, "number_7"))),
        (&[("number", "8")], None),
        (&[("year", "2026")], Some((8, Year, "year"))),
        (&[("unknown", "x")], None),
    ];
    for (entries, expected) in cases {
        let answer = scene.ask(vec![descriptor(entries).at(0)]).await;
        let status = &answer.statuses[0];
        let list = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let explained = explain(scene.folder.0.as_path(), "shop", list.collect()).unwrap();
        match expected {
            None => {
                assert_eq!(
                    (status.current_limit.as_ref(), status.limit_remaining),
                    (None, 0),
                    "{entries:?}"
                );
                assert!(explained.contains(": no limit\n"), "{explained}");
            }
            Some((u32::MAX, _, path)) => {
                assert_eq!(
                    (status.current_limit.as_ref(), status.limit_remaining),
                    (None, u32::MAX)
                );
                assert!(explained.contains(&format!(": {path}\n")), "{explained}");
            }
            Some((requests, unit, path)) => {
                let limit = status.current_limit.as_ref().unwrap();
                assert_eq!(
                    (limit.requests_per_unit, limit.unit()),
                    (requests, unit),
                    "{entries:?}"
                );
                assert_eq!(limit.name, if unit == Year { "yearly" } else { "" });
                assert!(explained.contains(&format!(": {path}\n")), "{explained}");
            }
        }
    }
}

#[tokio::test]
async fn values_that_share_a_threshold_are_counted_together_and_others_apart() {
    let scene = Scene::new(FILE);
    let left =
        |answer: &ratelimitd::envoy::messages::envoy::service::ratelimit::v3::RateLimitResponse| {
            answer.statuses[0].limit_remaining
        };
    for (value, expected) in [("test2", 99), ("test3", 98), ("test*", 97), ("test1", 49)] {
        assert_eq!(
            left(&scene.ask(vec![descriptor(&[("file", value)])]).await),
            expected,
            "{value}"
        );
    }
    for (value, expected) in [("foo1", 19), ("foo2", 19), ("foo1", 18)] {
        assert_eq!(
            left(&scene.ask(vec![descriptor(&[("wild", value)])]).await),
            expected,
            "{value}"
        );
    }
}

#[tokio::test]
async fn a_limit_replaces_others_of_the_same_request() {
    let scene = Scene::new(REPLACING);
    let first = descriptor(&[("k1", "v1"), ("user", "u")]);
    let second = descriptor(&[("k2", "v2"), ("user", "u")]);
    let answer = scene.ask(vec![first.clone(), second.clone()]).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::Ok]);
    assert_eq!(answer.statuses[0].current_limit, None);
    assert_eq!(answer.statuses[1].limit_remaining, 9);
    assert_eq!(scene.remaining(&first).await, 5, "it was not charged");

    let unlimited = descriptor(&[("k3", "x")]);
    let answer = scene.ask(vec![first.clone(), unlimited]).await;
    assert_eq!(answer.statuses[0].current_limit, None);
    // Alone it counts.
    assert_eq!(scene.ask(vec![first]).await.statuses[0].limit_remaining, 4);
}

#[tokio::test]
async fn keys_that_are_one_text_when_they_are_joined_stay_apart() {
    let scene = Scene::new(ALIKE);
    for (entries, expected) in [
        (&[("a_b", "")][..], 1),
        (&[("a", "b")], 2),
        (&[("a", "x"), ("b", "y_z")], 3),
        (&[("a", "x_b"), ("b", "z")], 3),
    ] {
        assert_eq!(
            scene.remaining(&descriptor(entries)).await,
            expected,
            "{entries:?}"
        );
    }
    let one = descriptor(&[("a", "x"), ("b", "y")]);
    let other = descriptor(&[("a", "x_b_y"), ("b", "")]);
    assert_eq!(scene.pass(&one, [3, 1]).await, [true, false]);
    assert_eq!(scene.pass(&other, [3, 1]).await, [true, false]);
}

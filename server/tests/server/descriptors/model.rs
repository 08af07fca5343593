//! The same requests through our service and through a slow and obvious model of theirs.
//!
//! The trace has none of the keys that collide there and not here: texts that are equal once they are joined by `_`; windows of two
//! units that begin in the same second; a limit of the request and that of the file. The name of a counter keeps these apart. A second
//! test asks for these alone.

use std::collections::HashMap;
use std::env;
use std::time::Duration;

use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimitd::envoy::messages::envoy::r#type::v3::RateLimitUnit;
use ratelimitd::ratelimit::Options;

use super::{START, Scene, With, descriptor, request};

/// How many requests there are, unless `DESCRIPTOR_REQUESTS` says another number.
const REQUESTS: u32 = 5_000;

pub(super) const FILE: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: { unit: minute, requests_per_unit: 7 }
- key: tenant
  value: gold
  rate_limit: { unit: hour, requests_per_unit: 60 }
- key: tenant
  value: free
- key: path
  value: /api/*
  rate_limit: { unit: second, requests_per_unit: 3 }
- key: path
  value: /files/*
  share_threshold: true
  rate_limit: { unit: minute, requests_per_unit: 20 }
- key: path
  shadow_mode: true
  rate_limit: { unit: minute, requests_per_unit: 4 }
- key: none
  rate_limit: { unit: day, requests_per_unit: 0 }
- key: all
  rate_limit: { unlimited: true }
- key: user
  descriptors:
  - key: method
    value: POST
    rate_limit: { unit: minute, requests_per_unit: 5, name: writes }
  - key: method
    rate_limit: { unit: minute, requests_per_unit: 15, replaces: [{ name: writes }] }
";

/// A limit of the file: requests, seconds, shadow, name, replaced name, and the pattern in place of the value.
struct Rule {
    path: &'static [(&'static str, &'static str)],
    limit: Option<(u32, u64)>,
    is_shadow: bool,
    name: &'static str,
    replaces: &'static str,
    is_shared: bool,
}

const fn rule(path: &'static [(&'static str, &'static str)], limit: Option<(u32, u64)>) -> Rule {
    Rule {
        path,
        limit,
        is_shadow: false,
        name: "",
        replaces: "",
        is_shared: false,
    }
}

/// In the order of the file. The limit of `all` is none.
const RULES: [Rule; 11] = [
    rule(&[("tenant", "")], Some((7, 60))),
    rule(&[("tenant", "gold")], Some((60, 3_600))),
    rule(&[("tenant", "free")], None),
    rule(&[("path", "/api/*")], Some((3, 1))),
    Rule {
        is_shared: true,
        ..rule(&[("path", "/files/*")], Some((20, 60)))
    },
    Rule {
        is_shadow: true,
        ..rule(&[("path", "")], Some((4, 60)))
    },
    rule(&[("none", "")], Some((0, 86_400))),
    rule(&[("all", "")], Some((u32::MAX, 0))),
    rule(&[("user", "")], None),
    Rule {
        name: "writes",
        ..rule(&[("user", ""), ("method", "POST")], Some((5, 60)))
    },
    Rule {
        replaces: "writes",
        ..rule(&[("user", ""), ("method", "")], Some((15, 60)))
    },
];

/// Their service: counters by name in a map, of which each request adds to all of its own.
#[derive(Default)]
struct Theirs {
    counters: HashMap<String, u64>,
}

/// The status of a descriptor: the code, the limit, what remains, and the seconds until the window ends.
type Status = (Code, Option<u32>, u32, u64);

impl Theirs {
    fn ask(
        &mut self,
        descriptors: &[RateLimitDescriptor],
        hits: u64,
        now: u64,
    ) -> (Code, Vec<Status>) {
        let of_file = |descriptor: &RateLimitDescriptor| match descriptor.limit {
            None => Self::find(descriptor),
            Some(_) => None,
        };
        let mut found: Vec<Option<(String, &Rule)>> = descriptors.iter().map(of_file).collect();
        let replaced: Vec<&str> = found
            .iter()
            .flatten()
            .map(|(_, rule)| rule.replaces)
            .collect();
        for found in &mut found {
            if found
                .as_ref()
                .is_some_and(|(_, rule)| !rule.name.is_empty() && replaced.contains(&rule.name))
            {
                *found = None;
            }
        }
        let mut overall = Code::Ok;
        let statuses = descriptors.iter().zip(found).map(|(descriptor, found)| {
            let hits = descriptor.hits_addend.unwrap_or(hits);
            let (name, requests, seconds, is_shadow) = match (&descriptor.limit, found) {
                (Some(own), _) => {
                    let seconds = match own.unit() {
                        RateLimitUnit::Second => 1,
                        RateLimitUnit::Minute => 60,
                        _ => unreachable!("no other unit is in the trace"),
                    };
                    let name = descriptor
                        .entries
                        .iter()
                        .map(|entry| format!("{}_{}_", entry.key, text(&entry.value)));
                    (
                        format!("own_{}", name.collect::<String>()),
                        own.requests_per_unit,
                        seconds,
                        false,
                    )
                }
                (None, None) => return (Code::Ok, None, 0, 0),
                (
                    None,
                    Some((
                        _,
                        Rule {
                            limit: Some((u32::MAX, _)),
                            ..
                        },
                    )),
                ) => {
                    return (Code::Ok, None, u32::MAX, 0);
                }
                (None, Some((name, rule))) => {
                    let (requests, seconds) = rule.limit.unwrap();
                    (name, requests, seconds, rule.is_shadow)
                }
            };
            let window = now / seconds * seconds;
            let counter = self
                .counters
                .entry(format!("shop_{name}{seconds}_{window}"))
                .or_default();
            *counter += hits;
            let is_over = *counter > u64::from(requests);
            let code = if is_over && !is_shadow {
                Code::OverLimit
            } else {
                Code::Ok
            };
            if code == Code::OverLimit {
                overall = Code::OverLimit;
            }
            let left = u64::from(requests).saturating_sub(*counter);
            (
                code,
                Some(requests),
                u32::try_from(left).unwrap(),
                seconds - now % seconds,
            )
        });
        let statuses = statuses.collect();
        (overall, statuses)
    }

    /// Returns the name of the counter, and the limit.
    fn find(descriptor: &RateLimitDescriptor) -> Option<(String, &'static Rule)> {
        let mut path: Vec<(&str, &str)> = Vec::new();
        let mut name = String::new();
        let mut last = None;
        for entry in &descriptor.entries {
            let below = RULES.iter().filter(|rule| {
                rule.path.len() == path.len() + 1 && rule.path[..path.len()] == path[..]
            });
            let below: Vec<&Rule> = below
                .filter(|rule| rule.path[path.len()].0 == entry.key)
                .collect();
            let value = |rule: &&&Rule| rule.path[path.len()].1;
            let asked = text(&entry.value);
            let exact = below
                .iter()
                .find(|rule| value(rule) == asked && !asked.is_empty());
            let pattern = below.iter().find(|rule| {
                value(rule)
                    .strip_suffix('*')
                    .is_some_and(|prefix| asked.starts_with(prefix))
            });
            let any = below.iter().find(|rule| value(rule).is_empty());
            let rule = *exact.or(pattern).or(any)?;
            let step = rule.path[path.len()];
            let counted = if rule.is_shared { step.1 } else { asked };
            name.extend([&*entry.key, "_", counted, "_"]);
            path.push(step);
            last = Some(rule);
        }
        let rule = last?;
        rule.limit.map(|_| (name, rule))
    }
}

/// A random descriptor. No two of them are the same text when their keys and values are joined by `_`.
fn text(value: &[u8]) -> &str {
    str::from_utf8(value).unwrap()
}

fn any_descriptor(random: &mut fastrand::Rng) -> RateLimitDescriptor {
    let one = |random: &mut fastrand::Rng, values: &[&'static str]| {
        random.choice(values.to_vec()).unwrap()
    };
    let tenant = ["gold", "free", "ann", "bob", "eve"];
    let path = [
        "/api/a", "/api/b", "/files/1", "/files/2", "/files/3", "/", "/x",
    ];
    let any = match random.u32(..10) {
        0..=2 => descriptor(&[("tenant", one(random, &tenant))]),
        3..=5 => descriptor(&[("path", one(random, &path))]),
        6 => descriptor(&[
            ("user", one(random, &tenant)),
            ("method", one(random, &["GET", "POST"])),
        ]),
        7 => descriptor(&[("user", one(random, &tenant))]),
        8 => descriptor(&[(one(random, &["none", "all", "unknown"]), "x")]),
        _ => descriptor(&[
            ("tenant", one(random, &tenant)),
            ("path", one(random, &path)),
        ]),
    };
    match random.u32(..12) {
        0 => {
            let unit = [RateLimitUnit::Second, RateLimitUnit::Minute];
            any.under(random.u32(1..6), random.choice(unit).unwrap())
        }
        1 | 2 => any.at(random.u64(1..5)),
        _ => any,
    }
}

#[tokio::test]
async fn a_trace_has_the_same_answers_as_theirs() {
    let requests =
        env::var("DESCRIPTOR_REQUESTS").map_or(REQUESTS, |number| number.parse().unwrap());
    let scene = Scene::with(
        FILE,
        Options {
            charge_refused: true,
            ..Options::default()
        },
    );
    let mut theirs = Theirs::default();
    let mut random = fastrand::Rng::with_seed(43);
    let mut now = START;
    let mut codes = [0_u32; 3];
    for number in 0..requests {
        let descriptors: Vec<_> = (0..random.u32(1..4))
            .map(|_| any_descriptor(&mut random))
            .collect();
        let mut request = request(descriptors.clone());
        request.hits_addend = if random.u32(..4) == 0 {
            random.u32(..4)
        } else {
            0
        };
        let hits = u64::from(request.hits_addend.max(1));
        let answer = scene.answer(request).await.unwrap();
        let statuses = answer.statuses.iter().map(|status| {
            let limit = status
                .current_limit
                .as_ref()
                .map(|limit| limit.requests_per_unit);
            let reset = status
                .duration_until_reset
                .map_or(0, |reset| reset.seconds.try_into().unwrap());
            (status.code(), limit, status.limit_remaining, reset)
        });
        let ours = (answer.overall_code(), statuses.collect());
        let expected = theirs.ask(&descriptors, hits, now);
        assert_eq!(
            ours, expected,
            "request {number} at {now}: {descriptors:?} at {hits}"
        );
        codes[usize::try_from(i32::from(expected.0)).unwrap()] += 1;
        if random.u32(..3) == 0 {
            let step = random.u64(..4);
            now += step;
            scene.clock.advance(Duration::from_secs(step));
        }
    }
    let [unknown, passed, refused] = codes;
    assert!(
        unknown == 0 && passed > requests / 5 && refused > requests / 5,
        "{codes:?}"
    );
}

/// The entries of a descriptor, and a limit of its own.
type Asked<'a> = (&'a [(&'a str, &'a str)], Option<(u32, RateLimitUnit)>);

/// The keys that collide there: each pair has one counter of theirs, and two of ours.
#[tokio::test]
async fn keys_that_collide_there_are_the_differences_that_there_are() {
    let minute = (1, RateLimitUnit::Minute);
    let same_second = (1, RateLimitUnit::Hour);
    let pairs: [[Asked<'_>; 2]; 4] = [
        // Texts that are equal once they are joined by `_`.
        [(&[("a_b", "c")], None), (&[("a", "b_c")], None)],
        [(&[("a", "b_c_d")], None), (&[("a", "b"), ("c", "d")], None)],
        // Windows of two units that begin in the same second: the unit is no part of the name.
        [
            (&[("a", "x")], Some(minute)),
            (&[("a", "x")], Some(same_second)),
        ],
        // A limit of the request and that of the file.
        [(&[("a", "y")], None), (&[("a", "y")], Some(minute))],
    ];
    let file = "
domain: shop
descriptors:
- key: a_b
  rate_limit: { unit: minute, requests_per_unit: 1 }
- key: a
  rate_limit: { unit: minute, requests_per_unit: 1 }
  descriptors:
  - key: c
    rate_limit: { unit: minute, requests_per_unit: 1 }
";
    let scene = Scene::with(
        file,
        Options {
            charge_refused: true,
            ..Options::default()
        },
    );
    let mut theirs: HashMap<String, u32> = HashMap::new();
    let mut differences = Vec::new();
    for pair in pairs {
        for (entries, own) in pair {
            let asked = descriptor(entries);
            let asked = own.map_or(asked.clone(), |(limit, unit)| asked.under(limit, unit));
            let ours = scene.ask(vec![asked]).await.overall_code();
            let joined = entries.iter().map(|(key, value)| format!("{key}_{value}_"));
            // All windows of the trace begin at `START`.
            let name = format!("shop_{}{START}", joined.collect::<String>());
            let counter = theirs.entry(name).or_default();
            *counter += 1;
            let expected = if *counter > 1 {
                Code::OverLimit
            } else {
                Code::Ok
            };
            if ours != expected {
                assert_eq!((ours, expected), (Code::Ok, Code::OverLimit), "{entries:?}");
                differences.push((entries, own));
            }
        }
    }
    // The second of each pair.
    let expected: Vec<_> = pairs.into_iter().map(|[_, second]| second).collect();
    assert_eq!(differences, expected);
}

//! Files with the mistakes of newcomers: each mistake is reported once, at its place, with a remedy.

use crate::scene::{mistakes, mistakes_in_json};

/// The place and the setting of each mistake of a file, and words of its message.
type ExpectedMistakes = &'static [(&'static str, &'static str)];

#[track_caller]
fn assert_told(text: &str, found: &[String], told: ExpectedMistakes) {
    assert_eq!(found.len(), told.len(), "{text}\n{found:#?}");
    for (found, (place, says)) in found.iter().zip(told) {
        assert!(
            found.starts_with(&format!("<text>{place}: ")),
            "{text}\n{found}"
        );
        assert!(found.contains(says), "{text}\n{found}");
    }
}

const POLICY: &str = "[policies.a]\nkey = \"client_ip\"\nquota = \"5/minute\"\n";

#[test]
fn of_a_policy() {
    let wrong: &[(&str, ExpectedMistakes)] = &[
        (
            "key = \"client_ip\"\nquota = 100/minute",
            &[(":3:12", "text stands in quotes, such as \"100/minute\"")],
        ),
        ("= 100/minute", &[(":2:1", "keys cannot be empty")]),
        (
            "quota = 100",
            &[(":2:9: policies.a.quota", "write a limit and a period")],
        ),
        (
            "kye = \"client_ip\"\nqouta = \"5/minute\"",
            &[
                (":2:1: policies.a.kye", "did you mean \"key\"?"),
                (":3:1: policies.a.qouta", "did you mean \"quota\"?"),
            ],
        ),
        (
            "key = 5\nquota = 07:32:00",
            &[
                (
                    ":2:7: policies.a.key",
                    "5 is not a key; write \"client_ip\"",
                ),
                (":3:9: policies.a.quota", "is not a quota"),
            ],
        ),
        (
            "key = \"global\"\nlimit = 99999999999999999999\nper = \"minute\"",
            &[(
                ":3:9: policies.a.limit",
                "is out of range; give a whole number from 0 to 4294967295",
            )],
        ),
        (
            "key = \"global\"\nlimit = \"unlimited\"\nper = \"minute\"",
            &[(
                ":3:9: policies.a.limit",
                "is not a whole number; write digits without quotes",
            )],
        ),
        (
            "key = \"global\"\nquota = \"5/month\"",
            &[(
                ":3:9: policies.a.quota",
                "write algorithm = \"calendar-month\"",
            )],
        ),
        (
            "key = \"global\"\nquota = \"１００/minute\"",
            &[(":3:9: policies.a.quota", "`limit` cannot be \"１００\"")],
        ),
        (
            "key = { heder = \"x-a\" }\nquota = \"5/minute\"\nwhen = { methd = \"GET\" }\nsettle = { hedaer = \"x\" }",
            &[
                (":2:9: policies.a.key.heder", "did you mean \"header\"?"),
                (":4:10: policies.a.when[0]", "did you mean \"method\"?"),
                (
                    ":5:12: policies.a.settle.hedaer",
                    "did you mean \"header\"?",
                ),
            ],
        ),
        (
            "key = \"global\"\nalgorithm = \"fixed window\"\nquota = \"5/minute\"",
            &[(
                ":3:13: policies.a.algorithm",
                "did you mean \"fixed-window\"?",
            )],
        ),
        (
            "key = \"global\"\noperation = \"method\"\noperations = { GET = \"5/minute\" }",
            &[(":1:1: policies.a", "or give `other` among the operations")],
        ),
    ];
    for (text, told) in wrong {
        let has_key = text.contains("key") || text.contains("kye");
        let text = if has_key {
            format!("[policies.a]\n{text}")
        } else {
            format!("[policies.a]\n{text}\nkey = \"global\"")
        };
        assert_told(&text, &mistakes(&text), told);
    }
}

#[test]
fn of_a_calendar() {
    let wrong: &[(&str, ExpectedMistakes)] = &[
        (
            "algorithm = \"calendar-month\"\nquota = \"100/month\"\nzone = \"UTC\"",
            &[(
                ":4:9: policies.a.quota",
                "calendar-month has no `quota`; give `limit` and `zone`",
            )],
        ),
        (
            "algorithm = \"calendar-day\"\nlimit = 5\nzone = \"CEST\"",
            &[(":5:8: policies.a.zone", "`zone` cannot be \"CEST\"")],
        ),
    ];
    for (text, told) in wrong {
        let text = format!("[policies.a]\nkey = \"global\"\n{text}");
        assert_told(&text, &mistakes(&text), told);
    }
}

#[test]
fn of_the_whole() {
    let wrong: &[(&str, ExpectedMistakes)] = &[
        (
            "[policy.a]\nkey = \"global\"",
            &[(":1:2: policy", "did you mean \"policies\"?")],
        ),
        (
            "[[policies]]\nname = \"a\"",
            &[(
                ":1:1: policies",
                "write each policy under its name, [policies.NAME]",
            )],
        ),
        (
            "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\n\n[policies.a]\nkey = \"global\"\nquota = \"2/day\"",
            &[(
                ":5:11",
                "the name is there twice, first in line 1; leave one",
            )],
        ),
        (
            "[policies.a]\nkey == \"global\"\nquota = \"5/minute\" \"x\"",
            &[(":2:6", "extra `=`"), (":3:20", "unexpected key or value")],
        ),
    ];
    for (text, told) in wrong {
        assert_told(text, &mistakes(text), told);
    }
    let beside: &[(&str, ExpectedMistakes)] = &[
        (
            "[proxies]\nnetworks = [\"10.0.0.0/8\", \"fe80::/200\"]\nheader = \"X Forwarded\"",
            &[
                (
                    ":5:27: proxies.networks[1]",
                    "\"fe80::/200\" is not a network; write one such as",
                ),
                (
                    ":6:10: proxies.header",
                    "\"X Forwarded\" is not the name of a header",
                ),
            ],
        ),
        (
            "[proxies]\nnetwroks = \"10.0.0.0/8\"\nheader = \"x-forwarded-for\"",
            &[(":5:1: proxies.netwroks", "did you mean \"networks\"?")],
        ),
        (
            "[responses]\ndialects = [\"github\", \"x-ratelimit\"]",
            &[(
                ":5:23: responses.dialects[1]",
                "it writes `x-ratelimit-limit`, as the one of line 5 does",
            )],
        ),
        (
            "[lists]\nallow = \"GET\"\nexempt_paths = \"/health\"",
            &[
                (
                    ":5:9: lists.allow",
                    "text is not a table; write its fields in braces",
                ),
                (
                    ":6:16: lists.exempt_paths",
                    "\"/health\" is not a list; write it in brackets",
                ),
            ],
        ),
        (
            "[plans.free]\na = 5\n[plan_of]\nheder = \"x\"\nfrom = \"10.0.0.0/8\"",
            &[
                (":1:1", "`default_plan` is missing"),
                (":7:1: plan_of[0]", "did you mean \"header\"?"),
            ],
        ),
    ];
    for (text, told) in beside {
        let text = format!("{POLICY}{text}");
        assert_told(&text, &mistakes(&text), told);
    }
}

#[test]
fn in_json() {
    let wrong: &[(&str, ExpectedMistakes)] = &[
        ("", &[(":1:1", "the file is empty")]),
        ("[]", &[("", "a list is not a table")]),
        ("{\n  // limits\n}", &[(":2:3", "JSON has no comments")]),
        (
            r#"{ "policies": { "a": { "key": ["client_ip", null], "limit": "10k", "per": 60, "soft": "true" } } }"#,
            &[
                (": policies.a.limit", "write 10000"),
                (": policies.a.per", "60 is not text"),
                (": policies.a.key[1]", "null is not a key"),
                (": policies.a.soft", "\"true\" is not true or false"),
            ],
        ),
        (
            r#"{ "policies": { "a": { "key": "global", "quota": "1/day" }, "a": {} } }"#,
            &[(": policies.a", "\"a\" is there twice; leave one")],
        ),
    ];
    for (text, told) in wrong {
        assert_told(text, &mistakes_in_json(text), told);
    }
}

/// Each of many unknown names was compared with each of many known ones.
#[test]
fn of_many_names_the_first_mistakes_have_a_hint() {
    let policy = |number| format!("[policies.p{number}]\nkey = \"global\"\nquota = \"1/day\"\n");
    let policies: String = (0..5_000).map(policy).collect();
    let wrong: Vec<String> = (0..90).map(|number| format!("q{number} = 1")).collect();
    let wrong = wrong.join("\n");
    let text = format!(
        "default_plan = \"a\"\n{policies}[plan_of]\nkey = \"client_ip\"\nplans = {{}}\n[plans.a]\n{wrong}"
    );
    let found = mistakes(&text);
    let hints = found.iter().filter(|found| found.contains("did you mean"));
    assert_eq!((found.len(), hints.count()), (90, 40), "{found:#?}");
}

#[test]
fn an_unlimited_quota_is_a_quota() {
    use tower_ratelimit_config::Config;

    let policy = "[policies.a]\nkey = \"client_ip\"\nquota = \"unlimited\"\n";
    let config: Config = policy.parse().unwrap();
    assert_eq!(config.understood().rows()[0].says(), "unlimited");
    let found = mistakes(&format!("{policy}burst = 5"));
    assert!(
        found[0].contains("`burst` contradicts `quota` (line 3)"),
        "{found:?}"
    );
}

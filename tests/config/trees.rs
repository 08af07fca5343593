//! Trees in a file: levels above each other, with the settings that they share.

use std::fs;

use http::request::Builder;
use tower_ratelimit::{ManualClock, Micros, SharedStore};
use tower_ratelimit_config::{Config, Format};

use crate::folder::Folder;
use crate::scene::{Received, config, get, layer, mistakes, mistakes_in_json, send};
use crate::support::items::{Map, OneByOne};

const SPEND: &str = r#"
[policies.spend]
algorithm = "fixed-window"
@COST@
levels = [
    { name = "org", key = { header = "x-org" }, quota = "10/hour" },
    { name = "team", key = { header = "x-team" }, quota = "6/hour" },
    { name = "user", key = { header = "x-user" }, quota = "4/hour", mode = "shadow" },
]
"#;

fn of(org: &str, team: &str) -> Builder {
    get("/")
        .header("x-org", org)
        .header("x-team", team)
        .header("x-user", "ann")
}

fn told(received: &Received) -> (u16, Option<&str>) {
    (received.status, received.limits.as_deref())
}

#[test]
fn the_levels_share_the_settings_of_the_tree() {
    let text = SPEND.replace("@COST@", "cost = 3");
    let layer = layer(&config(&text));
    let first = send(&layer, of("acme", "blue"));
    assert_eq!(
        first.policies.as_deref(),
        Some("\"spend.org\";q=10;w=3600, \"spend.team\";q=6;w=3600")
    );
    assert_eq!(
        told(&first),
        (
            200,
            Some("\"spend.org\";r=7;t=3600, \"spend.team\";r=3;t=3600")
        )
    );
    assert_eq!(told(&send(&layer, of("acme", "blue"))).0, 200);
    assert_eq!(
        told(&send(&layer, of("acme", "blue"))),
        (429, Some("\"spend.team\";r=0;t=3600"))
    );
    assert_eq!(told(&send(&layer, of("acme", "red"))).0, 200);
    assert_eq!(
        told(&send(&layer, of("acme", "red"))),
        (429, Some("\"spend.org\";r=1;t=3600"))
    );
    // A team of another organisation is another team.
    assert_eq!(told(&send(&layer, of("other", "blue"))).0, 200);
    assert_eq!(send(&layer, get("/").header("x-org", "acme")).status, 400);
}

#[test]
fn the_same_file_as_json_has_the_same_levels() {
    let text = r#"{"policies": {"spend": {"levels": [
        {"name": "org", "key": {"header": "x-org"}, "quota": "2/hour"},
        {"name": "team", "key": {"header": "x-team"}, "quota": "1/hour", "on_missing_key": "skip"}
    ]}}}"#;
    let config = Config::builder()
        .parse(text, tower_ratelimit_config::Format::Json)
        .unwrap();
    let layer = layer(&config);
    assert_eq!(send(&layer, of("acme", "blue")).status, 200);
    assert_eq!(
        send(&layer, of("acme", "blue")).limits.as_deref(),
        Some("\"spend.team\";r=0;t=3600")
    );
    assert_eq!(send(&layer, get("/").header("x-org", "acme")).status, 200);
    let nested = text.replace(
        "\"quota\": \"1/hour\"",
        "\"quota\": \"1/hour\", \"levels\": []",
    );
    let told = mistakes_in_json(&nested);
    assert!(told[0].contains("field \"levels\" is unknown"), "{told:#?}");
}

#[test]
fn plans_name_a_level_and_explain_shows_each() {
    let plans = "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = [\"192.0.2.1\"] }\n\
                 [plans.free]\n\"spend.team\" = \"1/hour\"\n[plans.pro]\n\"spend.team\" = \"5/hour\"\n";
    let text = plans.to_owned() + &SPEND.replace("@COST@", "ignore_plans = true");
    let config = config(&text);
    let explained = config.explain(
        &of("acme", "blue").header("x-plan", "pro").body(()).unwrap(),
        None,
        Some("pro"),
    );
    let rows: Vec<_> = explained
        .rows()
        .iter()
        .map(|row| format!("{}: {}", row.policy(), row.says()))
        .collect();
    assert_eq!(
        rows,
        [
            "spend.org: fixed-window 10/hour",
            "spend.team: fixed-window 5/hour",
            "spend.user: fixed-window 4/hour, in shadow",
        ]
    );
    let layer = layer(&config);
    assert_eq!(send(&layer, of("acme", "blue")).status, 200);
    assert_eq!(send(&layer, of("acme", "blue")).status, 429);
    assert_eq!(
        send(&layer, of("acme", "blue").header("x-plan", "pro")).status,
        200
    );
}

#[test]
fn mistakes_have_their_place_and_a_remedy() {
    let of = |from: &str, to: &str| {
        let text = SPEND.replace("@COST@", "");
        assert!(text.contains(from), "{from}");
        mistakes(&text.replace(from, to))
    };
    for (from, to, mistake) in [
        (
            "name = \"team\", ",
            "",
            "policies.spend.levels[1]: `name` is missing; name the level, such as name = \"team\"",
        ),
        (
            "name = \"team\"",
            "name = \"a.b\"",
            "policies.spend.levels[1].name: \"a.b\" is not the name of a level; give one without dots",
        ),
        (
            "name = \"team\"",
            "name = \"org\"",
            "\"spend.org\" is the name of the policy of",
        ),
        (
            "algorithm = \"fixed-window\"",
            "key = \"global\"",
            "policies.spend.key: `key` is that of a level; write it there",
        ),
        (
            "key = { header = \"x-team\" }, ",
            "",
            "policies.spend.levels[1]: `key` is missing; say what is counted apart",
        ),
        (
            "quota = \"6/hour\"",
            "quota = \"6/fortnight\"",
            "policies.spend.levels[1].quota",
        ),
    ] {
        let told = of(from, to);
        assert!(told.iter().any(|told| told.contains(mistake)), "{told:#?}");
    }
    let told = mistakes("[policies.spend]\nlevels = []\n");
    assert!(
        told[0].contains("0 is no number of levels; give one to eight, from the root down"),
        "{told:#?}"
    );
    let told = mistakes("[policies.spend]\nlevels = 3\n");
    assert!(
        told[0].contains("levels: a number is not a list"),
        "{told:#?}"
    );
    let plain = format!("[policies.\"spend.team\"]\nkey = \"global\"\nquota = \"1/hour\"\n{SPEND}");
    let told = mistakes(&plain.replace("@COST@", ""));
    assert!(
        told[0].contains("\"spend.team\" is the name of the policy of"),
        "{told:#?}"
    );
    // What all levels share is wrong once.
    let told = mistakes(&SPEND.replace("@COST@", "mode = \"on\""));
    assert_eq!(told.len(), 1, "{told:#?}");
    let error = SPEND.replace("@COST@", "mode = \"on\"").parse::<Config>();
    assert!(error.unwrap_err().to_string().ends_with("1 mistake"));
    // No descriptor has the keys of a level.
    let envoy = "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\npolicy = \"spend.team\"\n";
    let told = mistakes(&(SPEND.replace("@COST@", "") + envoy));
    assert!(
        told[0].contains("\"spend.team\" is a level of a tree"),
        "{told:#?}"
    );
    // A name means nothing where there is no tree.
    let told = mistakes("[policies.a]\nname = \"b\"\nkey = \"global\"\nquota = \"1/hour\"\n");
    assert!(told[0].contains("field \"name\" is unknown"), "{told:#?}");
}

#[test]
fn levels_may_share_a_quota_and_hours() {
    let text = r#"
        [policies.spend]
        quota = "9/hour"
        hours = { zone = "UTC", limits = { "00:00-24:00" = "2/hour" } }
        levels = [
            { name = "org", key = { header = "x-org" } },
            { name = "team", key = { header = "x-team" }, quota = "1/hour", hours = { zone = "UTC", limits = { "00:00-24:00" = "1/hour" } } },
        ]
    "#;
    let layer = layer(&config(text));
    assert_eq!(send(&layer, of("acme", "blue")).status, 200);
    assert_eq!(send(&layer, of("acme", "blue")).status, 429);
    assert_eq!(send(&layer, of("acme", "red")).status, 200);
    assert_eq!(send(&layer, of("acme", "green")).status, 429);
}

#[test]
fn a_reload_that_adds_or_drops_the_lowest_level_keeps_what_was_used() {
    let folder = Folder::new("levels");
    let level = |name: &str, most: u32| {
        format!(
            "{{ name = \"{name}\", key = {{ header = \"x-{name}\" }}, quota = \"{most}/day\" }}, "
        )
    };
    let tree = |levels: &[String]| format!("[policies.spend]\nlevels = [{}]\n", levels.concat());
    let (org, team, user) = (level("org", 3), level("team", 2), level("user", 1));
    let write = |levels: &[String]| fs::write(folder.file(), tree(levels)).unwrap();
    write(&[org.clone(), team.clone()]);
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let status = |team: &str| send(&watched.layer(), of("acme", team)).status;
    assert_eq!(status("blue"), 200);
    write(&[org.clone(), team, user]);
    watched.reload().unwrap();
    assert_eq!([status("blue"), status("blue")], [200, 429]);
    write(&[org]);
    watched.reload().unwrap();
    assert_eq!([status("red"), status("red")], [200, 429]);
}

const SHARES: &str = r#"
[policies.spend]
algorithm = "fixed-window"
quota = "10/hour"
levels = [
    { name = "org", key = { header = "x-org" } },
    { name = "team", key = { header = "x-team" }, share = 0.4 },
    { name = "user", key = { header = "x-user" }, share = "0.5" },
]
"#;

#[test]
fn a_share_stands_in_place_of_a_quota_also_of_one_of_all_levels() {
    let first = send(&layer(&config(SHARES)), of("acme", "blue"));
    let told = "\"spend.org\";q=10;w=3600, \"spend.team\";q=4;w=3600, \"spend.user\";q=2;w=3600";
    assert_eq!(first.policies.as_deref(), Some(told));
    // The hours of all levels are those of the root, in proportion.
    let hours = "hours = { zone = \"UTC\", limits = { \"00:00-24:00\" = \"5/hour\" } }\nlevels";
    let by_hours = SHARES.replace("levels", hours);
    let first = send(&layer(&config(&by_hours)), of("acme", "blue"));
    let told = "\"spend.org\";q=5;w=3600, \"spend.team\";q=2;w=3600, \"spend.user\";q=1;w=3600";
    assert_eq!(first.policies.as_deref(), Some(told));
    // JSON has the same, and money is money.
    let text = r#"{"policies": {"spend": {"budget": "10.00/day", "cost": "1.00", "levels": [
        {"name": "org", "key": {"header": "x-org"}},
        {"name": "team", "key": {"header": "x-team"}, "share": 0.25, "most": "2.00"}
    ]}}}"#;
    let json = Config::builder().parse(text, tower_ratelimit_config::Format::Json);
    let rows = json.unwrap().understood().to_string();
    assert!(
        rows.contains("spend.team  anchored-window 2500000/day, 2.50 in units of 0.000001"),
        "{rows}"
    );
}

#[test]
fn a_plan_of_the_level_above_gives_a_share_its_limit_and_explain_says_where() {
    let plans = "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = [\"192.0.2.1\"] }\n\
                 [plans.free]\n\"spend.org\" = \"5/hour\"\n[plans.pro]\n\"spend.org\" = \"50/hour\"\n\"spend.user\" = \"30/hour\"\n";
    let config = config(&(plans.to_owned() + SHARES));
    assert_eq!(config.warnings().len(), 0, "{:?}", config.warnings());
    let rows = |plan: &str| {
        let explained = config.explain(&of("acme", "blue").body(()).unwrap(), None, Some(plan));
        let rows = explained.rows().iter();
        rows.map(|row| {
            format!(
                "{}: {}, {}, {}",
                row.policy(),
                row.says(),
                row.rule(),
                row.place()
            )
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(
        rows("free"),
        [
            "spend.org: fixed-window 5/hour, plan free, line 4",
            "spend.team: fixed-window 2/hour, plan free, line 4",
            "spend.user: fixed-window 1/hour, plan free, line 4",
        ]
    );
    assert_eq!(
        rows("pro"),
        [
            "spend.org: fixed-window 50/hour, plan pro, line 6",
            "spend.team: fixed-window 20/hour, plan pro, line 6",
            "spend.user: fixed-window 30/hour, plan pro, line 7",
        ]
    );
}

#[test]
fn a_wrong_share_has_its_place_and_a_remedy() {
    let with = |from: &str, to: &str| {
        assert!(SHARES.contains(from), "{from}");
        mistakes(&SHARES.replace(from, to))
    };
    let team = "policies.spend.levels[1].share: ";
    for (from, to, mistake) in [
        (
            "share = 0.4",
            "share = 0",
            format!("{team}`share` cannot be 0: give a number from 0.000001 to 1, such as 0.4"),
        ),
        (
            "share = 0.4",
            "share = 1.5",
            format!("{team}`share` cannot be 1.5: give a number from 0.000001 to 1, such as 0.4"),
        ),
        (
            "share = 0.4",
            "share = -0.4",
            format!("{team}`share` cannot be -0.4: give"),
        ),
        (
            "share = 0.4",
            "share = \"40 %\"",
            format!("{team}\"40 %\" is not a share; give a number from 0.000001 to 1, such as 0.4"),
        ),
        (
            "share = 0.4",
            "share = nan",
            format!("{team}`share` cannot be NaN: give"),
        ),
        (
            "share = 0.4",
            "share = [0.4]",
            format!("{team}a list is not a share; give"),
        ),
        (
            "share = 0.4",
            "share = 0.4, quota = \"4/hour\"",
            "policies.spend.levels[1].quota: `quota` contradicts `share` (line 7); leave one of them".to_owned(),
        ),
        (
            "share = 0.4",
            "share = 0.4, algorithm = \"token-bucket\"",
            "policies.spend.levels[1].algorithm: `algorithm` contradicts `share`".to_owned(),
        ),
        (
            "key = { header = \"x-org\" }",
            "key = { header = \"x-org\" }, share = 0.4",
            "policies.spend.levels[0].share: nothing is above the root, of which it could have a share; give it a quota, such as \
             quota = \"1000/minute\""
                .to_owned(),
        ),
        (
            "key = { header = \"x-org\" }",
            "key = { header = \"x-org\" }, key_limits = { keys = { acme = \"9/hour\" } }",
            format!(
                "{team}the level above has `key_limits` (line 6), which a share does not follow; give those limits in plans, or \
                 give this level a quota"
            ),
        ),
        (
            "quota = \"10/hour\"",
            "quota = \"unlimited\"",
            format!("{team}`share` cannot be \"spend.org\": give this policy a limit"),
        ),
        (
            "quota = \"10/hour\"",
            "quota = \"10/hour\"\nshare = 0.4",
            "field \"share\" is unknown".to_owned(),
        ),
    ] {
        let told = with(from, to);
        assert!(told.iter().any(|told| told.contains(&mistake)), "{told:#?}");
    }
    // A mistake of a level is told once, and not as one of the levels below.
    for (from, to) in [
        ("name = \"org\", ", ""),
        ("share = 0.4", "share = 0"),
        ("quota = \"10/hour\"", "quota = \"10/fortnight\""),
    ] {
        assert_eq!(with(from, to).len(), 1, "{:#?}", with(from, to));
    }
}

#[test]
fn a_file_and_an_explanation_are_shown_as_a_tree() {
    let plain = "[policies.calls]\nkey = \"global\"\nquota = \"9/hour\"\n";
    let config = config(&(SHARES.to_owned() + plain));
    let understood = config.understood();
    assert_eq!(
        understood.to_string(),
        "spend.org       fixed-window 10/hour    policy  line 4\n  \
           spend.team    fixed-window 4/hour     policy  line 7\n    \
             spend.user  fixed-window 2/hour     policy  line 8\n\
         calls           anchored-window 9/hour  policy  line 12\n"
    );
    let depths: Vec<_> = understood
        .rows()
        .iter()
        .map(tower_ratelimit_config::Row::depth)
        .collect();
    assert_eq!(depths, [0, 1, 2, 0]);
    assert_eq!(understood.rows()[2].policy(), "spend.user");
    let explained = config.explain(
        &get("/").header("x-org", "acme").body(()).unwrap(),
        None,
        None,
    );
    let shown = explained.to_string();
    assert!(
        shown.contains("\n  spend.team    the request has no key"),
        "{shown}"
    );
    // A limiter of the file knows the levels too.
    let limiter = config.limiter().unwrap();
    let levels: Vec<_> = limiter.levels().collect();
    assert_eq!(
        levels,
        [("spend.team", "spend.org"), ("spend.user", "spend.team")]
    );
}

#[test]
fn a_reload_that_changes_a_share_or_a_level_in_the_middle_keeps_what_was_used() {
    let folder = Folder::new("levels-between");
    let org = "{ name = \"org\", key = { header = \"x-org\" }, quota = \"9/day\" }, ";
    let team = "{ name = \"team\", key = { header = \"x-team\" }, share = SHARE }, ";
    let user = "{ name = \"user\", key = { header = \"x-user\" }, quota = \"4/day\" }, ";
    let write = |levels: &[&str]| {
        let text = format!(
            "[policies.spend]\nalgorithm = \"fixed-window\"\nlevels = [{}]\n",
            levels.concat()
        );
        fs::write(folder.file(), text).unwrap();
    };
    let share = |share: &str| team.replace("SHARE", share);
    write(&[org, &share("0.5"), user]);
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let left = || {
        let received = send(&watched.layer(), of("acme", "blue"));
        let limits = received.limits.unwrap_or_default();
        let left = limits.split(", ").map(|one| {
            let (name, rest) = one.split_once(";r=").unwrap();
            format!(
                "{} {}",
                name.trim_matches('"'),
                rest.split(';').next().unwrap()
            )
        });
        (received.status, left.collect::<Vec<_>>().join(", "))
    };
    let told = |status: u16, left: &str| (status, left.to_owned());
    assert_eq!(left(), told(200, "spend.org 8, spend.team 4, spend.user 3"));
    write(&[org, &share("0.3"), user]);
    watched.reload().unwrap();
    assert_eq!(left(), told(200, "spend.org 7, spend.team 1, spend.user 2"));
    write(&[org, &share("0.2"), user]);
    watched.reload().unwrap();
    assert_eq!(left(), told(429, "spend.team 0"));
    let moved = || {
        let config = watched.config();
        let told = config.warnings().iter().map(ToString::to_string);
        let told: String = told.filter(|it| it.contains("other levels")).collect();
        ["spend.org", "spend.team", "spend.user"].map(|level| told.contains(level))
    };
    assert_eq!(moved(), [false; 3]);
    // Without the team, a user of the organisation is another one, and the organisation has used what it has.
    write(&[org, user]);
    watched.reload().unwrap();
    assert_eq!(left(), told(200, "spend.org 6, spend.user 3"));
    assert_eq!(moved(), [false, false, true]);
    watched.reload().unwrap();
    assert_eq!(moved(), [false; 3]);
    // With the team again, its users are those of before, if the time of a store has not ended.
    write(&[org, &share("1"), user]);
    watched.reload().unwrap();
    assert_eq!(moved(), [false, false, true]);
    let (status, now) = left();
    assert_eq!(status, 200);
    assert!(now.starts_with("spend.org 5, spend.team "), "{now}");
}

#[test]
fn a_log_is_replayed_through_a_tree() {
    use http::Request;
    use tower_ratelimit_config::Replayed;

    let replay = config(SHARES).replay().unwrap();
    let refused_by = |second: u64, team: &str, user: &str| {
        let request = Request::get("/")
            .header("x-org", "acme")
            .header("x-team", team);
        // A line whose request does not show its user has it as a key.
        let (request, key) = match second % 2 {
            0 => (request.header("x-user", user), None),
            _ => (request, Some(user)),
        };
        let request = request.body(()).unwrap();
        let at = Micros::new((1_700_000_000 + second) * 1_000_000);
        match replay.decide(at, request, key, None, None) {
            Replayed::Allowed(_) => None,
            Replayed::Refused(decision) => Some(decision.binding().unwrap().0.to_owned()),
            other => panic!("{other:?}"),
        }
    };
    for (second, user) in [(0, "ann"), (1, "ann"), (2, "bob"), (3, "bob")] {
        assert_eq!(refused_by(second, "blue", user), None, "{second}");
    }
    assert_eq!(refused_by(4, "blue", "eve").as_deref(), Some("spend.team"));
    for (second, user) in [(5, "ann"), (6, "ann")] {
        assert_eq!(refused_by(second, "red", user), None, "{second}");
    }
    assert_eq!(refused_by(7, "red", "ann").as_deref(), Some("spend.user"));
    assert_eq!(refused_by(4_000, "blue", "ann"), None);
    // The key of a line is that of no team.
    for key in [None, Some("ann")] {
        let keyless = Request::get("/").header("x-org", "acme").body(()).unwrap();
        let at = Micros::new(1_700_005_000_000_000);
        let replayed = replay.decide(at, keyless, key, None, None);
        assert!(matches!(replayed, Replayed::WithoutKey), "{replayed:?}");
    }
}

const GUARANTEED: &str = r#"
[policies.spend]
algorithm = "fixed-window"
levels = [
    { name = "org", key = { header = "x-org" }, quota = "10/hour" },
    { name = "team", key = { header = "x-team" }, quota = "8/hour", guaranteed = "3/hour" },
]
"#;

#[test]
fn a_level_is_guaranteed_a_part_of_the_level_above() {
    let config = config(GUARANTEED);
    let layer = layer(&config);
    let by = |team: &str| send(&layer, of("acme", team)).status;
    assert_eq!(by("blue"), 200);
    let red: Vec<u16> = (0..8).map(|_| by("red")).collect();
    assert_eq!(red, [200, 200, 200, 200, 200, 200, 200, 429]);
    assert_eq!([by("blue"), by("blue"), by("blue")], [200, 200, 429]);
    let understood = config.understood().to_string();
    assert!(
        understood.contains("fixed-window 8/hour, 3/hour guaranteed"),
        "{understood}"
    );
    let request = of("acme", "blue").body(()).unwrap();
    let explained = config.explain(&request, None, None).to_string();
    assert!(
        explained.contains("fixed-window 8/hour, 3/hour guaranteed"),
        "{explained}"
    );
    // A share may have a guarantee, too.
    let share = GUARANTEED.replace("quota = \"8/hour\"", "share = 0.8");
    let layer = crate::scene::layer(&crate::scene::config(&share));
    let by = |team: &str| send(&layer, of("acme", team)).status;
    assert_eq!(by("blue"), 200);
    let red = (0..9).filter(|_| by("red") == 200).count();
    assert_eq!(red, 7);
}

#[test]
fn a_log_is_replayed_with_guarantees() {
    let replay = config(GUARANTEED).replay().unwrap();
    let at = Micros::new(1_700_000_000_000_000);
    let by = |team: &str| {
        let request = of("acme", team).body(()).unwrap();
        let replayed = replay.decide(at, request, None, None, None);
        replayed.goes_on()
    };
    assert!(by("blue"));
    assert_eq!((0..8).filter(|_| by("red")).count(), 7);
    assert_eq!((0..3).filter(|_| by("blue")).count(), 2);
}

#[test]
fn a_reload_that_adds_or_drops_a_guarantee_keeps_what_was_used() {
    let folder = Folder::new("guarantee");
    let write = |text: &str| fs::write(folder.file(), text).unwrap();
    let without = GUARANTEED.replace(", guaranteed = \"3/hour\"", "");
    write(&without);
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let by = |team: &str| send(&watched.layer(), of("acme", team)).status;
    let count = |team: &str| (0..9).filter(|_| by(team) == 200).count();
    assert_eq!(by("blue"), 200);
    write(GUARANTEED);
    watched.reload().unwrap();
    // From now on the guarantee counts what is used of it: two of its three units are kept, and ten are used in all.
    assert_eq!(by("blue"), 200);
    assert_eq!(count("red"), 6);
    write(&without);
    watched.reload().unwrap();
    assert_eq!(count("red"), 2);
    assert_eq!(by("blue"), 429);
}

#[test]
fn a_guarantee_that_cannot_be_kept_is_told_with_its_line() {
    for (from, to, remedy) in [
        (
            "\"3/hour\"",
            "\"3/minute\"",
            "in the period of the level above",
        ),
        ("\"3/hour\"", "\"11/hour\"", "at most 10"),
        ("\"3/hour\"", "\"9/hour\"", "at most the limit of the level"),
        ("\"3/hour\"", "\"0/hour\"", "at least 1"),
        ("\"3/hour\"", "\"3\"", "such as 100/minute"),
        ("\"3/hour\"", "3", "3 is not text"),
        ("fixed-window", "anchored-window", "a `FixedWindow`"),
        (
            "quota = \"10/hour\"",
            "quota = \"10/hour\", wait_up_to = \"1s\"",
            "`wait_up_to`",
        ),
        (
            "quota = \"10/hour\"",
            "quota = \"10/hour\", hours = { zone = \"UTC\", limits = { \"00:00-24:00\" = \"9/hour\" } }",
            "leave the hours of \"spend.org\" out",
        ),
    ] {
        let told = mistakes(&GUARANTEED.replace(from, to));
        assert_eq!(told.len(), 1, "{to}: {told:#?}");
        assert!(told[0].contains(remedy), "{to}: {told:#?}");
        assert!(told[0].contains("levels[1].guaranteed"), "{to}: {told:#?}");
    }
    let root = "quota = \"10/hour\", guaranteed = \"3/hour\"";
    let told = mistakes(&GUARANTEED.replace("quota = \"10/hour\"", root));
    assert!(told[0].contains("nothing is above the root"), "{told:#?}");
    let calls = "quota = \"5/day\"\nkey = \"client_ip\"\n";
    let group = format!(
        "{GUARANTEED}\n[policies.plan]\n{calls}\n[policies.credits]\n{calls}\n[first_of]\nspend = [\"plan\", \"credits\"]\n"
    );
    let told = mistakes(&group);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("`first_of`"), "{told:#?}");
    let outside = "[policies.a]\nkey = \"global\"\nquota = \"9/hour\"\nguaranteed = \"3/hour\"\n";
    let told = mistakes(outside);
    assert!(
        told[0].contains("field \"guaranteed\" is unknown"),
        "{told:#?}"
    );
}

#[test]
fn a_store_in_redis_keeps_guarantees_as_well() {
    let text = format!("{GUARANTEED}\n[store]\nredis = \"redis://127.0.0.1:1\"\n");
    // A file with a mistake ends the test.
    let _ = config(&text);
}

#[test]
fn a_store_of_the_program_that_keeps_no_guarantees_is_refused() {
    let map = Map::new(&ManualClock::new());
    let built = Config::builder().store(SharedStore::new(map.clone()));
    assert!(built.parse(GUARANTEED, Format::Toml).is_ok());
    let store = SharedStore::new(OneByOne(map));
    let parsed = Config::builder()
        .store(store)
        .parse(GUARANTEED, Format::Toml);
    let error = parsed.unwrap_err();
    assert!(error.to_string().contains("keeps no guarantees"), "{error}");
}

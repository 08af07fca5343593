//! Groups of policies of which one pays: the table `first_of`.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use http::Request;
use tower_ratelimit::Micros;
use tower_ratelimit::key::Head;
use tower_ratelimit_config::{Config, Format, Replayed};

use crate::folder::Folder;
use crate::scene::{config, get, layer, mistakes, mistakes_in_json, now, send};

const SPEND: &str = r#"
[policies.plan]
algorithm = "fixed-window"
quota = "1/day"
key = { header = "x-org" }
[policies.credits]
algorithm = "fixed-window"
quota = "2/day"
key = { header = "x-org" }
[policies.pool]
algorithm = "fixed-window"
quota = "3/day"
key = "global"
when = { path = "/pooled/*" }
[policies.all]
algorithm = "fixed-window"
quota = "100/day"
key = "global"

[first_of]
spend = ["plan", "credits", "pool"]
"#;

/// Replaces a part of the file, which has to be there.
fn with(from: &str, to: &str) -> String {
    assert!(SPEND.contains(from), "{from}");
    SPEND.replace(from, to)
}

#[test]
fn the_first_of_the_file_that_has_room_pays() {
    let layer = layer(&config(SPEND));
    let payer = || {
        let received = send(&layer, get("/").header("x-org", "acme"));
        let named = ["plan", "credits", "pool"];
        let named = named.map(|name| received.limits.as_deref().unwrap().contains(name));
        (received.status, named)
    };
    assert_eq!(payer(), (200, [true, false, false]));
    assert_eq!(payer(), (200, [false, true, false]));
    assert_eq!(payer(), (200, [false, true, false]));
    assert_eq!(payer().0, 429);
    let pooled = send(&layer, get("/pooled/a").header("x-org", "acme"));
    assert_eq!(pooled.status, 200);
}

#[test]
fn a_limiter_of_the_file_and_the_same_file_as_json_choose_too() {
    let json = r#"{"policies": {
        "plan": {"key": "global", "quota": "1/day"},
        "credits": {"key": "global", "quota": "1/day"}
    }, "first_of": {"spend": ["credits", "plan"]}}"#;
    let config = Config::builder().parse(json, Format::Json).unwrap();
    let limiter = config.limiter().unwrap();
    let payers = [(); 3].map(|()| {
        let decision = now(limiter.check("ann", 1)).unwrap();
        decision.payer("spend").map(str::to_owned)
    });
    assert_eq!(
        payers,
        [Some("credits"), Some("plan"), None].map(|it| it.map(str::to_owned))
    );
    let told = mistakes_in_json(&json.replace("\"plan\"]", "\"plans\"]"));
    assert!(
        told[0].contains("first_of.spend[1]: policy \"plans\" is unknown"),
        "{told:#?}"
    );
}

#[test]
fn mistakes_have_their_line_and_a_remedy() {
    let list = "[\"plan\", \"credits\", \"pool\"]";
    for (to, mistake) in [
        (
            "[\"plan\", \"credit\"]",
            ":21:18: first_of.spend[1]: policy \"credit\" is unknown; did you mean \"credits\"?",
        ),
        (
            "[\"plan\", \"credits\", \"plan\"]",
            ":21:29: first_of.spend[2]: \"plan\" is a member already (line 21); name each policy once",
        ),
        (
            "[\"plan\", \"credits\"]\nother = [\"pool\", \"plan\"]",
            ":22:18: first_of.other[1]: \"plan\" is a member already (line 21)",
        ),
        (
            "[\"plan\"]",
            ":21:9: first_of.spend: one policy alone always pays; name two or more",
        ),
        ("[]", ":21:9: first_of.spend: one policy alone always pays"),
        ("\"plan\"", ":21:9: first_of.spend: \"plan\" is not a list"),
        ("[\"plan\", 3]", ":21:18: first_of.spend[1]: 3 is not text"),
    ] {
        let told = mistakes(&with(list, to));
        assert!(
            told.iter().any(|told| told.contains(mistake)),
            "{mistake}: {told:#?}"
        );
        assert_eq!(told.len(), 1, "{told:#?}");
    }
    let told = mistakes(&with(
        "[first_of]\nspend = [\"plan\", \"credits\", \"pool\"]",
        "[first_of]",
    ));
    assert!(
        told[0].contains("there is no group; name its policies"),
        "{told:#?}"
    );
    let top = SPEND.replace("[first_of]\nspend = [\"plan\", \"credits\", \"pool\"]", "");
    let told = mistakes(&format!("first_of = [\"plan\", \"credits\"]\n{top}"));
    assert!(
        told[0].contains("first_of: a list is not a table"),
        "{told:#?}"
    );
    let told = mistakes(&with("spend =", "\"\" ="));
    assert!(told[0].contains("first_of"), "{told:#?}");
}

#[test]
fn a_policy_with_a_mistake_is_known_all_the_same() {
    let told = mistakes(&with("quota = \"1/day\"", "quota = \"1/dya\""));
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("policies.plan.quota"), "{told:#?}");
}

#[test]
fn what_does_not_go_with_a_group_is_refused_where_it_stands() {
    let bucket = "algorithm = \"token-bucket\"";
    let all = "quota = \"100/day\"\nkey = \"global\"\n";
    for (option, mistake) in [
        ("wait_up_to = \"1s\"", "policies.all.wait_up_to"),
        (
            "penalty = { refusals = 3, within = \"1min\" }",
            "policies.all.penalty",
        ),
        (
            "hours = { zone = \"UTC\", limits = { \"00:00-24:00\" = \"9/day\" } }",
            "policies.all.hours",
        ),
    ] {
        let told = mistakes(&with(all, &format!("{all}{option}\n")));
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains(":19:"), "{told:#?}");
        assert!(
            told[0].contains(mistake) && told[0].contains("first_of"),
            "{told:#?}"
        );
    }
    let credits = "quota = \"2/day\"\n";
    let told = mistakes(&with(credits, &format!("{credits}soft = true\n")));
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains(":9:") && told[0].contains("policies.credits.soft"),
        "{told:#?}"
    );
    let queue = "algorithm = \"leaky-queue\"\nplaces = 3\nquota = \"100/day\"";
    let told = mistakes(&with(
        "algorithm = \"fixed-window\"\nquota = \"100/day\"",
        queue,
    ));
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains("first_of.spend") && told[0].contains("leaky queue"),
        "{told:#?}"
    );
    let adapt = "[adapt]\nsignals = [\"cpu\", \"memory\"]\n";
    let told = mistakes(
        &(adapt.to_owned()
            + &with(credits, &format!("{credits}adapt = true\n")).replace(
                "algorithm = \"fixed-window\"\nquota = \"2",
                &format!("{bucket}\nquota = \"2"),
            )),
    );
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("policies.credits.adapt"), "{told:#?}");
}

#[test]
fn leases_and_different_slots_of_a_cluster_are_refused() {
    let store = |table: &str| format!("[store]\n{table}\n{SPEND}");
    let leased = store("redis = \"redis://127.0.0.1:1/\"\nlease = \"1s\"");
    let told = mistakes(&leased);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains("first_of") && told[0].contains("`lease`"),
        "{told:#?}"
    );
    let cluster = store("cluster = [\"redis://127.0.0.1:1/\"]");
    let told = mistakes(&cluster);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains("\"plan\"") && told[0].contains("\"all\""),
        "{told:#?}"
    );
    assert!(told[0].contains("same key"), "{told:#?}");
    // The pool has a condition, so that its keys are looked at in requests.
    let one = cluster.replace(
        "quota = \"100/day\"\nkey = \"global\"",
        "quota = \"100/day\"\nkey = { header = \"x-org\" }",
    );
    assert!(one.parse::<Config>().is_ok());
    assert!(
        store("redis = \"redis://127.0.0.1:1/\"")
            .parse::<Config>()
            .is_ok()
    );
}

/// It counts what Envoy asks about, beside the group.
#[test]
fn a_descriptor_may_have_the_limit_of_a_member() {
    let envoy = "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\npolicy = \"plan\"\n";
    let understood = config(&format!("{SPEND}\n{envoy}"))
        .understood()
        .to_string();
    let line = understood
        .lines()
        .find(|line| line.starts_with("shop/tenant"));
    assert!(line.unwrap().contains("fixed-window 1/day"), "{understood}");
}

/// Nothing is known of what it reads, but that it is the same.
#[test]
fn a_function_is_one_key_of_a_cluster_wherever_the_file_names_it() {
    let table = Arc::new(HashMap::from([("a".to_owned(), 1_u64)]));
    let parse = |text: &str| {
        let looked_up = |table: Arc<HashMap<String, u64>>| {
            move |head: &Head<'_>| head.header("x-org").and_then(|org| table.get(org).copied())
        };
        let builder = Config::builder().key("org", looked_up(Arc::clone(&table)));
        let builder = builder.key("other", looked_up(Arc::clone(&table)));
        builder.parse(text, Format::Toml)
    };
    let by = |plan: &str, credits: &str| {
        let policy = |name: &str, function: &str| {
            format!("[policies.{name}]\nquota = \"5/day\"\nkey = {{ function = \"{function}\" }}\n")
        };
        let (plan, credits) = (policy("plan", plan), policy("credits", credits));
        let groups = "[first_of]\nspend = [\"plan\", \"credits\"]\n";
        format!("{plan}{credits}{groups}[store]\ncluster = [\"redis://127.0.0.1:1/\"]\n")
    };
    assert!(parse(&by("org", "org")).is_ok());
    let told = parse(&by("org", "other")).unwrap_err().to_string();
    assert!(
        told.contains("first_of") && told.contains("same key"),
        "{told}"
    );
}

/// What an answer costs beyond the plan goes to the credits.
#[test]
fn a_group_may_spill() {
    let list = "[\"plan\", \"credits\", \"pool\"]";
    let spilling = format!("{{ of = {list}, spill = true }}");
    let config = config(&with(list, &spilling));
    let limiter = config.limiter().unwrap();
    now(limiter.reserve("ann", 1)).unwrap().settle(3);
    let inspection = now(limiter.inspect("ann")).unwrap();
    let used: Vec<_> = inspection
        .policies()
        .map(|(name, told)| (name, told.used()))
        .collect();
    assert!(
        used.contains(&("plan", 1)) && used.contains(&("credits", 2)),
        "{used:?}"
    );
    let understood = config.understood();
    let says = understood.rows().last().unwrap().says().to_owned();
    assert!(says.contains("beyond it goes to the next"), "{says}");

    let told = |to: &str| mistakes(&with(list, to));
    let one = told("{ of = [\"plan\"], spill = true }");
    assert!(
        one[0].contains("first_of.spend.of: one policy alone"),
        "{one:#?}"
    );
    let none = told("{ spill = true }");
    assert!(none[0].contains("`of` is missing"), "{none:#?}");
    let flag = told(&spilling.replace("true", "1"));
    assert!(
        flag[0].contains("first_of.spend.spill: 1 is not true or false"),
        "{flag:#?}"
    );
}

/// A unit of one is a unit of the next.
#[test]
fn members_that_count_other_units_cannot_spill() {
    let of = |spill: bool| {
        format!(
            "[policies.plan]\nbudget = \"5.00/day\"\ncost = 1\nkey = \"global\"\n[policies.credits]\nquota = \"9/day\"\nkey = \"global\"\n\
             [first_of]\nspend = {{ of = [\"plan\", \"credits\"], spill = {spill} }}\n"
        )
    };
    let told = mistakes(&of(true));
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains("\"plan\" and \"credits\" count other units"),
        "{told:#?}"
    );
    assert!(of(false).parse::<Config>().is_ok());
}

#[test]
fn what_was_understood_shows_the_groups() {
    let understood = config(SPEND).understood();
    let row = understood.rows().last().unwrap();
    assert_eq!(row.policy(), "[first_of.spend]");
    assert_eq!(row.says(), "one pays: plan, else credits, else pool");
    assert_eq!(row.place(), "line 21");
}

#[test]
fn explain_says_who_would_pay() {
    let explained = |config: &Config, request: http::request::Builder| -> Vec<String> {
        let explained = config.explain(&request.body(()).unwrap(), None, None);
        let rows = explained.rows().iter();
        rows.map(|row| format!("{}: {}", row.policy(), row.says()))
            .collect()
    };
    let (all, acme) = (config(SPEND), ("x-org", "acme"));
    assert_eq!(
        explained(&all, get("/pooled/a").header(acme.0, acme.1)),
        [
            "plan: fixed-window 1/day, first of spend",
            "credits: fixed-window 2/day, if plan has no room",
            "pool: fixed-window 3/day, if plan and credits have no room",
            "all: fixed-window 100/day",
        ]
    );
    assert_eq!(
        explained(&all, get("/pooled/a")),
        [
            "plan: fixed-window 1/day, together with all requests without a key, and never pays",
            "credits: fixed-window 2/day, together with all requests without a key, and never pays",
            "pool: fixed-window 3/day, first of spend",
            "all: fixed-window 100/day",
        ]
    );
    let refusing = config(&SPEND.replace(
        "key = { header = \"x-org\" }",
        "key = { header = \"x-org\" }\non_missing_key = 401",
    ));
    let rows = explained(&refusing, get("/pooled/a"));
    assert_eq!(
        rows[0],
        "plan: the request has no key, and is refused with 401, unless another policy pays"
    );
    assert_eq!(rows[2], "pool: fixed-window 3/day, first of spend");
    let plans = "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = [\"192.0.2.1\"] }\n[plans.free]\ncredits = \"unlimited\"\n";
    let text = plans.to_owned() + &SPEND.replace("quota", "ignore_plans = true\nquota");
    let text = text.replacen("ignore_plans = true\nquota = \"2", "quota = \"2", 1);
    let rows = explained(&config(&text), get("/pooled/a").header(acme.0, acme.1));
    assert_eq!(rows[1], "credits: counts nothing, if plan has no room");
    assert_eq!(
        rows[2],
        "pool: fixed-window 3/day, and never pays, since credits always has room"
    );
}

#[test]
fn a_log_is_replayed_with_its_payers() {
    let replay = config(SPEND).replay().unwrap();
    let payers = (0..4_u64).map(|second| {
        let at = Micros::new(1_700_000_000_000_000 + second);
        match replay.decide(at, Request::new(()), Some("acme"), None, None) {
            Replayed::Allowed(decision) => decision.payer("spend").unwrap().to_owned(),
            Replayed::Refused(_) => "none".to_owned(),
            other => panic!("{other:?}"),
        }
    });
    let payers: Vec<_> = payers.collect();
    assert_eq!(payers, ["plan", "credits", "credits", "none"]);
}

/// What was used stays used, and without the group all policies are charged.
#[test]
fn a_reload_adds_and_drops_a_group() {
    let folder = Folder::new("first_of");
    let group = "[first_of]\nspend = [\"plan\", \"credits\", \"pool\"]\n";
    let alone = with(group, "");
    fs::write(folder.file(), &alone).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let status = |org: &str| send(&watched.layer(), get("/").header("x-org", org)).status;
    assert_eq!([status("acme"), status("acme")], [200, 429]);
    fs::write(folder.file(), SPEND).unwrap();
    watched.reload().unwrap();
    // Both were charged before.
    assert_eq!([status("acme"), status("acme")], [200, 429]);
    assert_eq!([status("other"), status("other")], [200, 200]);
    fs::write(folder.file(), &alone).unwrap();
    watched.reload().unwrap();
    assert_eq!(status("other"), 429);
    let wrong = with(
        "spend = [\"plan\", \"credits\", \"pool\"]",
        "spend = [\"plan\", \"none\"]",
    );
    fs::write(folder.file(), wrong).unwrap();
    assert!(watched.reload().is_err());
    assert_eq!(status("third"), 200);
}

#[test]
fn a_file_tells_of_what_part_of_a_request_its_keys_are() {
    let keyed = |key: &str| config(&format!("[policies.a]\nquota = \"1/day\"\nkey = {key}\n"));
    let several = keyed(
        r#"{ first_of = [{ cookie = "sid" }, { query = "token" }, { api_key = "x-token" }] }"#,
    );
    assert_eq!(*several.cookies(), ["sid"]);
    assert_eq!(*several.query_fields(), ["token"]);
    assert_eq!(*several.headers(), ["cookie", "x-token"]);
    let global = keyed("\"global\"");
    assert_eq!(*global.cookies(), [] as [&str; 0]);
    assert_eq!(*global.query_fields(), [] as [&str; 0]);
    assert_eq!(*global.headers(), [] as [&str; 0]);
}

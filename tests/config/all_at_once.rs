//! A mistake hides no other mistake, and causes none.

#[cfg(target_os = "linux")]
use std::fs;

use tower_ratelimit_config::{Config, Format};

#[cfg(target_os = "linux")]
use crate::scene::layer;
use crate::scene::mistakes;

/// Returns the settings of the mistakes, in the order of the file.
fn settings(text: &str) -> Vec<String> {
    let found = mistakes(text).into_iter();
    found
        .map(|mistake| mistake.split(": ").nth(1).unwrap().to_owned())
        .collect()
}

#[test]
fn a_wrong_algorithm_hides_no_mistake_beside_it() {
    let text = "[policies.a]\nkey = \"global\"\nalgorithm = \"fixed-widow\"\nlimit = \"10k\"\nper = \"fortnight\"\nburst = \"many\"";
    let wrong = ["algorithm", "limit", "per", "burst"];
    assert_eq!(
        settings(text),
        wrong.map(|field| format!("policies.a.{field}"))
    );
    let text = "[policies.a]\nkey = \"global\"\nalgorithm = \"token-bucket\"\nquota = \"10/fortnight\"\nburst = \"many\"";
    assert_eq!(settings(text), ["policies.a.quota", "policies.a.burst"]);
}

#[test]
fn a_wrong_quota_hides_no_mistake_in_the_limits_that_stand_in_its_place() {
    let text = "
        default_plan = \"free\"
        plan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }
        [policies.a]
        key = { header = \"x-id\" }
        quota = \"10/fortnight\"
        operation = \"method\"
        operations = { GET = \"5/fortnight\", other = true }
        [policies.a.key_limits]
        keys = { ann = \"few\" }
        prefixes = { \"\" = 5, team = { limt = 5 } }
        othr = 5
        [plans.free]
        a = \"5/fortnight\"
        [plans.pro]
        a = \"100/minute\"
    ";
    let wrong = [
        "policies.a.quota",
        "policies.a.operations.GET",
        "policies.a.operations.other",
        "policies.a.key_limits.keys[0]",
        "policies.a.key_limits.prefixes[0]",
        "policies.a.key_limits.prefixes[1][0]",
        "policies.a.key_limits[2]",
        "plans.free.a",
    ];
    assert_eq!(settings(text), wrong);
}

#[test]
fn a_wrong_quota_hides_no_mistake_in_the_hours() {
    let text = "[policies.a]\nkey = \"global\"\nquota = \"10/fortnight\"\n[policies.a.hours]\nzone = \"Europe/Lodnon\"\n\
                limits = { sundy = 5, monday = \"5/fortnight\", tuesday = \"0 times\" }";
    let wrong = [
        "quota",
        "hours.zone",
        "hours.limits.sundy",
        "hours.limits.monday",
        "hours.limits.tuesday",
    ];
    assert_eq!(
        settings(text),
        wrong.map(|field| format!("policies.a.{field}"))
    );
}

#[test]
fn the_limit_of_other_operations_is_wrong_once() {
    let of = |other: &str| {
        settings(&format!(
            "[policies.a]\nkey = \"global\"\noperation = \"method\"\noperations = {{ GET = \"5/minute\", other = {other} }}"
        ))
    };
    assert_eq!(of("\"5/fortnight\""), ["policies.a.operations.other"]);
    assert_eq!(of("true"), ["policies.a.operations.other"]);
    // The table is right, but the period of its policy is unknown.
    assert_eq!(of("5"), ["policies.a"]);
}

#[test]
fn a_policy_without_a_key_tells_its_other_mistakes() {
    let text = "[policies.a]\nquota = \"5/minute\"\nlow_priority = { method = \"get\" }\nreserve = 9\n\
                settle = \"csot\"\ncharge_when = { status = 999 }\non_missing_key = 200";
    let wrong = [
        "policies.a",
        "policies.a.low_priority.method",
        "policies.a.reserve",
        "policies.a.settle",
        "policies.a.charge_when.status",
        "policies.a.on_missing_key",
    ];
    assert_eq!(settings(text), wrong);
}

#[test]
fn each_field_of_a_table_is_read_although_another_is_wrong() {
    let policy = "[policies.a]\nquota = \"5/minute\"\nkey = \"global\"\n";
    let text = format!(
        "{policy}penalty = {{ refusals = \"few\", within = 5, block = 5, times = -1, up_to = 5 }}"
    );
    let wrong = ["refusals", "within", "block", "times", "up_to"];
    assert_eq!(
        settings(&text),
        wrong.map(|field| format!("policies.a.penalty.{field}"))
    );

    let text = policy.replace(
        "\"global\"",
        "{ client_ip = { ipv6_prefix = 200, unwrap_ipv4 = \"x\", without_fallback = 1 } }",
    );
    let wrong = ["ipv6_prefix", "unwrap_ipv4", "without_fallback"];
    assert_eq!(
        settings(&text),
        wrong.map(|field| format!("policies.a.key.client_ip.{field}"))
    );
}

#[test]
fn each_field_of_a_store_is_read_although_another_is_wrong() {
    let text = "[policies.a]\nquota = \"5/minute\"\nkey = \"global\"\n[store]\nredis = 5\nprefix = 5\ndeadline = 5\n\
                slot_ttl = 5\nlease = 5\nnodes = \"few\"";
    let wrong = ["redis", "prefix", "deadline", "slot_ttl", "lease", "nodes"];
    assert_eq!(settings(text), wrong.map(|field| format!("store.{field}")));
}

#[test]
fn a_wrong_policy_hides_no_mistake_of_the_resolver() {
    let text =
        "resolver = { fresh_for = 5 }\n[policies.a]\nquota = \"5/fortnight\"\nkey = \"global\"";
    let wrong = ["resolver", "resolver.fresh_for", "policies.a.quota"];
    assert_eq!(settings(text), wrong);
}

#[test]
fn what_goes_with_another_way_to_find_a_plan_is_refused() {
    let of = |plan_of: &str| {
        let text = format!(
            "default_plan = \"free\"\nplan_of = {plan_of}\n[policies.a]\nquota = \"5/minute\"\nkey = \"global\"\n[plans.free]\na = 5"
        );
        let builder = Config::builder().plan_of("customer", |_| None);
        let error = builder.parse(&text, Format::Toml).unwrap_err();
        let found: Vec<String> = error.mistakes().iter().map(ToString::to_string).collect();
        found.join("\n")
    };
    let told = of("{ function = \"customer\", from = \"10.0.0.0/8\" }");
    assert_eq!(
        told,
        "<text>:2:43: plan_of.from: `from` goes with `header`, which is not there; leave it out"
    );
    let told = of("{ header = \"x-plan\", from = \"10.0.0.0/8\", plans = { ann = \"free\" } }");
    assert!(
        told.contains("plan_of.plans: `plans` goes with `key`"),
        "{told}"
    );
    let told = of("{ key = \"client_ip\", plans = { \"::1\" = \"free\", \"0:0::1\" = \"free\" } }");
    assert!(
        told.contains("it is the same key as that of line 2"),
        "{told}"
    );
}

/// Returns the time of the processor that this thread has used, in nanoseconds.
#[cfg(target_os = "linux")]
fn used() -> u64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    told.split(' ').next().unwrap().parse().unwrap()
}

/// Each name was compared with all others, in ten places: 20,000 policies took ten seconds.
#[cfg(target_os = "linux")]
#[test]
fn a_file_opens_in_a_time_that_grows_as_the_number_of_its_policies() {
    const FEW: u32 = 1_250;
    const TIMES: u32 = 16;
    let takes = |policies: u32| {
        let policies: Vec<String> = (0..policies)
            .map(|number| format!("[policies.a{number}]\nquota = \"5/day\"\nkey = \"client_ip\"\n"))
            .collect();
        let plan: Vec<String> = (0..policies.len())
            .map(|number| format!("a{number} = \"6/day\"\n"))
            .collect();
        let text = format!(
            "default_plan = \"free\"\nplan_of = {{ header = \"x-plan\", from = \"10.0.0.0/8\" }}\n{}[plans.free]\n{}",
            policies.concat(),
            plan.concat()
        );
        let before = used();
        let config = Config::builder().max_bytes(16 << 20);
        drop(layer(&config.parse(&text, Format::Toml).unwrap()));
        used() - before
    };
    let (mut few, mut many) = (u64::MAX, u64::MAX);
    // What else the processor does meanwhile makes it slower, most of all what has more than its caches: 22 times as long has been seen.
    // With one of these places it takes 27 times.
    let is_linear = (0..5).any(|_| {
        few = few.min(takes(FEW));
        many = many.min(takes(TIMES * FEW));
        many < few * u64::from(TIMES) * 3 / 2
    });
    assert!(is_linear, "{few} and {many} ns");
}

/// Each of 20,000 unknown names was once compared with each of 10,000 known ones.
#[test]
fn the_first_unknown_names_have_a_hint_however_many_there_are() {
    let policy =
        |number| format!("policies.policy{number} = {{ quota = \"5/day\", key = \"global\" }}\n");
    let policies: Vec<String> = (0..10_000).map(policy).collect();
    let unknown: Vec<String> = (0..40)
        .map(|number| format!("polcy{number} = 1\n"))
        .collect();
    let (policies, unknown) = (policies.concat(), unknown.concat());
    let text = format!("{policies}[plans.default]\n{unknown}");
    let found = mistakes(&text);
    let hints = found.iter().filter(|told| told.contains("did you mean"));
    let about = found.iter().filter(|told| told.contains("polcy"));
    assert_eq!((hints.count(), about.count()), (20, 40), "{}", found[0]);
    assert!(found[19].contains("did you mean"), "{}", found[19]);
}

/// A file of one long line, and one of many names, have messages that can be shown.
#[test]
fn what_is_told_of_a_file_stays_small_whatever_is_wrong_in_it() {
    let many: Vec<String> = (0..60_000).map(|number| format!("x{number}=1,")).collect();
    let many = many.concat();
    let names: Vec<String> = (0..10_000)
        .map(|number| format!("[policies.p{number}]\n"))
        .collect();
    let names = names.concat();
    let unknown: Vec<String> = (0..20_000)
        .map(|number| format!("q{number} = 1\n"))
        .collect();
    let unknown = unknown.concat();
    for text in [
        format!("policies = {{ a = {{ {many} }} }}"),
        format!("{names}[plans.free]\n{unknown}"),
        format!("[policies.{}]\nx = 1\ny = 2", "x".repeat(900_000)),
        format!(
            "[policies.a]\nkey = \"global\"\nquota = \"{}\"",
            "9".repeat(900_000)
        ),
    ] {
        let error = text.parse::<Config>().unwrap_err();
        let shown = error.to_string();
        assert!(shown.len() < 200_000, "{} bytes", shown.len());
        assert!(format!("{:?}", error.mistakes()).len() < 300_000);
    }
}

#[test]
fn of_a_long_line_the_part_with_the_mistake_is_shown() {
    let many: Vec<String> = (0..2_000)
        .map(|number| format!("\"/way{number}\", "))
        .collect();
    let many = many.concat();
    let text = format!(
        "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\nwhen = {{ path = [{many}], method = \"get\", not = {{ path = [{many}] }} }}"
    );
    let error = text.parse::<Config>().unwrap_err();
    let shown = error.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    let [_, line, caret, _] = lines[..] else {
        panic!("{shown}");
    };
    assert!(line.starts_with(" 4 | …") && line.ends_with('…'), "{shown}");
    let at = caret.chars().position(|c| c == '^').unwrap();
    let marked: String = line.chars().skip(at).take(5).collect();
    assert_eq!(
        (&*marked, caret.trim_start_matches(['|', ' '])),
        ("\"get\"", "^^^^^")
    );
}

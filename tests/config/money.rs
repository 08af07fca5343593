//! A policy with a budget counts the money that the tokens of models cost, by the prices of the file.

use std::convert::Infallible;
use std::fs;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::RateLimitLayer;
use tower_ratelimit::key;
use tower_ratelimit::limiter::Limiter;
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit_config::{Config, Format};

use crate::folder::Folder;
use crate::scene::{config, get, layer, mistakes, mistakes_in_json, now};

const SPEND: &str = "[policies.spend]\nkey = \"global\"\n";
const PRICES: &str = "[prices]\nlarge = { input = 2.50, cached = \"1.25\", output = 10 }\n\
                      small = { input = \"0.15\", output = 0.6 }\n";
const SETTLED: &str = "estimate = \"openai\"\nsettle = \"openai\"\n";

/// A file with one policy that says this.
fn spend(says: &str) -> String {
    format!("{SPEND}{says}\n{PRICES}")
}

fn used(limiter: &Limiter) -> u32 {
    let key = key::global().key_of(()).unwrap();
    let decision = now(limiter.peek(key, 0)).unwrap();
    decision.binding().map_or(0, |(_, outcome)| outcome.used())
}

/// Asks a model for 100 tokens. Its answer has 1,000 tokens of input, of which 200 were read from a cache, and 1,000 of output.
/// Returns the status, and what was charged while the request was under way and when it has ended.
fn ask(read: &ReadJsonLayer, limits: &RateLimitLayer, model: &str) -> (u16, u32, u32) {
    let meanwhile = Arc::new(Mutex::new(0));
    let (note, limiter) = (Arc::clone(&meanwhile), limits.limiter());
    let answer = format!(
        r#"{{"model":"{model}-2026-01-02","usage":{{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000,
            "prompt_tokens_details":{{"cached_tokens":200}}}}}}"#
    );
    let handler = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| {
        *note.lock().unwrap() = used(&limiter);
        let response = Response::builder().header("content-type", "application/json");
        let response = response.body(Full::<Bytes>::from(answer.clone())).unwrap();
        async { Ok::<_, Infallible>(response) }
    });
    let service = read.layer(limits.layer(handler));
    let asked = format!(r#"{{"model":"{model}","max_tokens":100}}"#);
    let request = Request::post("/v1").header("content-type", "application/json");
    let request = request.body(Full::from(asked)).unwrap();
    let response = now(service.oneshot(request)).unwrap();
    let status = response.status().as_u16();
    now(response.into_body().collect()).unwrap();
    let meanwhile = *meanwhile.lock().unwrap();
    (status, meanwhile, used(&limits.limiter()))
}

fn asked(text: &str, model: &str) -> (u16, u32, u32) {
    let config = config(text);
    ask(&config.read_json(), &layer(&config), model)
}

#[test]
fn a_budget_is_charged_what_the_tokens_cost() {
    let text = spend(&format!("budget = \"1.00/day\"\n{SETTLED}"));
    // Two tokens are read and 100 written; then 800 · 2.5 + 200 · 1.25 + 1000 · 10.
    assert_eq!(asked(&text, "large"), (200, 1_005, 12_250));
    assert_eq!(asked(&text, "small"), (200, 61, 750));
    // A model without a price is the dearest.
    assert_eq!(asked(&text, "none"), (200, 1_003, 12_250));
    let other = format!("{text}other = {{ input = 0, output = 1 }}\n");
    assert_eq!(asked(&other, "none"), (200, 100, 1_000));
    let text = spend(&format!(
        "budget = \"5000.00/day\"\nunit = \"0.01\"\n{SETTLED}"
    ));
    assert_eq!(asked(&text, "large"), (200, 1, 2));
    let all = format!(
        "{SPEND}budget = \"1/day\"\n{SETTLED}[prices]\nother = {{ input = 1, output = 2 }}\n"
    );
    assert_eq!(asked(&all, "any"), (200, 201, 3_000));
}

#[test]
fn amounts_of_a_policy_with_a_budget_are_money() {
    let settled = |says: &str| spend(&format!("budget = \"1.00/day\"\n{says}\n"));
    for (says, expected) in [
        (
            "estimate = \"0.02\"\nsettle = \"openai\"",
            (200, 20_000, 12_250),
        ),
        (
            "estimate = 0.02\nsettle = [\"openai\", \"cost\"]",
            (200, 20_000, 12_250),
        ),
        (
            "estimate = 1\nsettle = \"openai\"",
            (200, 1_000_000, 12_250),
        ),
        // 100 tokens of output.
        (
            "estimate = { json = \"max_tokens\", or = 7 }\nsettle = \"openai\"",
            (200, 1_000, 12_250),
        ),
        (
            "estimate = { json = \"none\", or = 7 }\nsettle = \"openai\"",
            (200, 70, 12_250),
        ),
        ("cost = \"0.04\"", (200, 40_000, 40_000)),
        (
            "cost = [{ cost = 0.5, method = \"POST\" }]",
            (200, 500_000, 500_000),
        ),
        (
            "cost = \"0.04\"\nmost = 0.03\n[responses]\ntoo_large_status = 413",
            (413, 0, 0),
        ),
    ] {
        assert_eq!(asked(&settled(says), "large"), expected, "{says}");
    }
}

#[test]
fn a_budget_is_told_in_money() {
    for (says, meaning) in [
        (
            "budget = \"50/day\"",
            "anchored-window 50000000/day, 50.00 in units of 0.000001",
        ),
        (
            "budget = 0.5\nper = \"hour\"",
            "anchored-window 500000/hour, 0.50 in units of 0.000001",
        ),
        (
            "budget = \"1.5 / minute\"\nalgorithm = \"token-bucket\"",
            "token-bucket 1500000/minute, 1.50 in units of 0.000001",
        ),
        (
            "budget = \"1000000/day\"\nunit = 1e-2",
            "anchored-window 100000000/day, 1000000.00 in units of 0.01",
        ),
        (
            "budget = \"250.00\"\nalgorithm = \"calendar-month\"\nzone = \"Europe/Berlin\"",
            "calendar-month 250000000 zone Europe/Berlin, 250.00 in units of 0.000001",
        ),
    ] {
        let config = config(&spend(&format!("{says}\n{SETTLED}")));
        let told = config.understood();
        assert_eq!(told.rows()[0].says(), meaning, "{says}");
    }
    let config = config(&spend("budget = \"50/day\"\ncost = 0.04\n"));
    let request = get("/").body(()).unwrap();
    let told = config.explain(&request, None, None).to_string();
    let says = "spend  anchored-window 50000000/day, 50.00 in units of 0.000001, cost 0.04  policy  line 3\n";
    assert_eq!(told, says);
}

#[test]
fn limits_in_place_of_a_budget_are_money_too() {
    let text = format!(
        "default_plan = \"free\"\nplan_of = {{ header = \"x-plan\", from = \"10.0.0.0/8\" }}\n\
         [policies.spend]\nkey = {{ header = \"x-id\" }}\nbudget = \"1.00/day\"\n{SETTLED}\
         operation = \"method\"\noperations = {{ PUT = \"3.00\" }}\n\
         [policies.spend.key_limits.keys]\nann = 2\nbob = \"unlimited\"\n\
         [plans.free]\nspend = \"0.5/day\"\n[plans.pro]\nspend = \"7.25\"\n{PRICES}"
    );
    let config = config(&text);
    let says = |method: &str, key: &str, plan: &str| {
        let request = Request::builder().method(method).body(()).unwrap();
        let told = config.explain(&request, Some(key), Some(plan));
        let says = told.rows()[0].says().to_owned();
        says.split(',').nth(1).unwrap_or(&says).trim().to_owned()
    };
    assert_eq!(says("GET", "joe", "free"), "0.50 in units of 0.000001");
    assert_eq!(says("GET", "joe", "pro"), "7.25 in units of 0.000001");
    assert_eq!(says("GET", "ann", "pro"), "2.00 in units of 0.000001");
    assert_eq!(says("GET", "bob", "pro"), "counts nothing");
    assert_eq!(says("PUT", "joe", "pro"), "3.00 in units of 0.000001");
}

#[test]
fn limits_at_certain_hours_are_money_too() {
    let text = spend(&format!(
        "budget = \"1.00/hour\"\n{SETTLED}[policies.spend.hours]\nzone = \"UTC\"\n\
         limits = {{ \"22:00-06:00\" = \"2.5\", \"06:00-08:00\" = \"2 times\" }}"
    ));
    let config = config(&text);
    let request = get("/").body(()).unwrap();
    let at = |time: &str| {
        let told = config.explain_at(&request, None, None, time).unwrap();
        let says = told.rows()[0].says().to_owned();
        says.split(", ").nth(1).unwrap().to_owned()
    };
    assert_eq!(at("2026-03-01T12:00"), "1.00 in units of 0.000001");
    assert_eq!(at("2026-03-01T23:00"), "2.50 in units of 0.000001");
    assert_eq!(at("2026-03-01T07:00"), "2.00 in units of 0.000001");
}

#[test]
fn mistakes_in_money_are_told_with_their_lines() {
    let known = "`money` cannot be";
    let decimal = "write a decimal number such as 2.50, from 0 to 18446744073, with at most nine digits behind the point";
    let mut unlike = Vec::new();
    for (says, message) in [
        (
            "budget = \"5000/day\"",
            format!("3:10: policies.spend.budget: {known} \"5000.00\": units of 0.000001 go up to 4294.967295, so take a coarser unit, 0.00001"),
        ),
        (
            "budget = \"0.005/day\"\nunit = 0.01",
            format!("3:10: policies.spend.budget: {known} \"0.005\": it is no whole number of units of 0.01; round it, or take a finer unit"),
        ),
        ("budget = \"1,50/day\"", format!("3:10: policies.spend.budget: {known} \"1,50\": {decimal}")),
        ("budget = \"-1/day\"", format!("3:10: policies.spend.budget: {known} \"-1\": {decimal}")),
        ("budget = true", "3:10: policies.spend.budget: true is not an amount of money; write a decimal number such as 2.50".to_owned()),
        ("budget = \"1/day\"\nunit = 0", "4:8: policies.spend.unit: a unit is not 0; give one such as 0.000001".to_owned()),
        (
            "budget = 1",
            "1:1: policies.spend: `per` is missing; give the period of the budget, as in \"50.00/day\"".to_owned(),
        ),
        (
            "budget = \"1/month\"",
            "3:10: policies.spend.budget: a month has no fixed length; write algorithm = \"calendar-month\" with `zone` and \
             budget = \"250.00\", or days such as 30d".to_owned(),
        ),
        (
            "budget = \"1/day\"\nquota = \"5/day\"",
            "4:9: policies.spend.quota: `quota` contradicts `budget` (line 3); leave one of them".to_owned(),
        ),
        (
            "budget = \"1/day\"\nper = \"day\"",
            "4:7: policies.spend.per: `per` contradicts `budget` (line 3); leave one of them".to_owned(),
        ),
        (
            "budget = \"1/day\"\nalgorithm = \"token-bucket\"\nburst = 5",
            "5:9: policies.spend.burst: `burst` contradicts `budget` (line 3); leave one of them".to_owned(),
        ),
        (
            "budget = \"1/day\"\nconcurrency = 5",
            "3:10: policies.spend.budget: `budget` contradicts `concurrency` (line 4); leave one of them".to_owned(),
        ),
        (
            "quota = \"1/day\"\nunit = 0.01",
            "4:8: policies.spend.unit: `budget` is missing; give the money of the policy, such as budget = \"50.00/day\", or \
             leave `unit` out".to_owned(),
        ),
        (
            "budget = \"1/day\"\nsettle = { json = \"usage.total_tokens\" }",
            "4:19: policies.spend.settle.json: it tells no money; settle a budget by \"openai\", \"anthropic\", \"gemini\", or what \
             code tells".to_owned(),
        ),
        (
            "budget = \"1/day\"\nestimate = 1024",
            "4:12: policies.spend.estimate: 1024.00 is more than the budget; give the money of a request, such as \"0.02\", or \
             let its body say how many tokens it asks for, estimate = \"openai\"".to_owned(),
        ),
        (
            "budget = \"1/day\"\nestimate = \"opnai\"",
            "4:12: policies.spend.estimate: \"opnai\" is unknown; did you mean \"openai\"?".to_owned(),
        ),
        (
            "budget = \"1/day\"\ncost = { json = \"rows\", or = 1 }",
            "4:8: policies.spend.cost: a number of the body is no amount of money; give the amount, or leave `budget` out".to_owned(),
        ),
        (
            "budget = \"1/day\"\ncost = 0.1\nmost = 2",
            "5:8: policies.spend.most: 2.00 is no ceiling; give 0.000001 to 1.00, the limit of the policy".to_owned(),
        ),
        (
            "budget = \"1/day\"\nsettle = \"openai\"\nkey_limits = { other = { limit = 5 } }",
            "5:24: policies.spend.key_limits.other: a table is not a limit of a policy that counts money; write \"250.00\", \
             \"50.00/day\" or \"unlimited\"".to_owned(),
        ),
    ] {
        let settled = if ["settle", "cost", "estimate"].iter().any(|field| says.contains(field)) {
            ""
        } else {
            "settle = \"openai\"\n"
        };
        let found = mistakes(&spend(&format!("{says}\n{settled}")));
        let says_so = |mistake: &String| mistake.starts_with(&format!("<text>:{message}"));
        if !found.iter().any(says_so) {
            unlike.push((says, message, found));
        }
    }
    assert!(unlike.is_empty(), "{unlike:#?}");
    let nothing = mistakes(&spend("budget = \"1/day\""));
    assert_eq!(
        nothing,
        [
            "<text>:3:10: policies.spend.budget: nothing says what a request costs; give `settle`, such as settle = \"openai\", or `cost`"
        ]
    );
    let unpriced = mistakes(&format!("{SPEND}budget = \"1/day\"\n{SETTLED}"));
    let remedy = "the file has no table [prices], which says what tokens cost; add one, such as [prices] gpt-4o = { input = 2.50, output = 10 }";
    let expected = [(4, 12, "estimate"), (5, 10, "settle")].map(|(line, column, field)| {
        format!("<text>:{line}:{column}: policies.spend.{field}: {remedy}")
    });
    assert_eq!(unpriced, expected);
}

#[test]
fn a_budget_of_a_calendar_has_no_period_of_its_own() {
    let of_month = |says: &str| {
        let text = format!("algorithm = \"calendar-month\"\nzone = \"UTC\"\n{says}\n{SETTLED}");
        mistakes(&spend(&text))
    };
    let alone =
        "calendar-month has its period; write the amount alone, such as budget = \"250.00\"";
    assert_eq!(
        of_month("budget = \"1/day\""),
        [format!("<text>:5:10: policies.spend.budget: {alone}")]
    );
    let found = of_month("budget = 1\nlimit = 5");
    assert_eq!(
        found,
        [
            "<text>:6:9: policies.spend.limit: `limit` contradicts `budget` (line 5); leave one of them"
        ]
    );
}

#[test]
fn mistakes_in_prices_are_told_once() {
    let of = |prices: &str| {
        let says = format!("{SPEND}budget = \"1/day\"\n{SETTLED}[prices]\n{prices}");
        let found = mistakes(&says).into_iter();
        let found = found.map(|mistake| mistake.strip_prefix("<text>:").unwrap().to_owned());
        found.collect::<Vec<_>>()
    };
    let missing = "say what a million tokens cost, such as 2.50";
    assert_eq!(
        of("m = { input = 1 }"),
        [format!("7:5: prices.m: `output` is missing; {missing}")]
    );
    let found = of("m = { input = \"1 $\", ouput = 2 }");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].contains("did you mean \"output\"?"), "{found:?}");
    assert!(of("m = 5")[0].starts_with("7:5: prices.m: 5 is not a table"));
    assert_eq!(
        of("\"*\" = { input = 1, output = 2 }"),
        [
            "7:1: prices.\"*\": `prices` cannot be \"*\": give the price of all other models by `other`"
        ]
    );
    assert!(of("")[0].contains("there is no price; add that of a model, or leave `prices` out"));
}

#[test]
fn prices_that_no_policy_needs_are_told() {
    let config = config(&format!("{SPEND}quota = \"5/day\"\n{PRICES}"));
    let warnings: Vec<_> = config.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["<text>:4:1: prices: no policy counts money; leave it out, or give a policy a `budget`"]
    );
}

#[test]
fn numbers_of_json_are_exact_too() {
    let text = |input: &str| {
        format!(
            r#"{{"policies":{{"spend":{{"key":"global","budget":0.1,"per":"day","estimate":"openai","settle":"openai"}}}},
                "prices":{{"large":{{"input":{input},"output":0.1}}}}}}"#
        )
    };
    let config = Config::builder().parse(&text("2.3"), Format::Json).unwrap();
    // 2 · 2.3 + 100 · 0.1, and then 1000 · 2.3 + 1000 · 0.1.
    let asked = ask(&config.read_json(), &layer(&config), "large");
    assert_eq!(asked, (200, 15, 2_400));
    let found = mistakes_in_json(&text("0.1000000000000001"));
    let says = "<text>: prices.large.input: 0.1000000000000001 has more digits than a number of JSON keeps; write it in quotes";
    assert_eq!(found, [says]);
}

#[test]
fn a_reload_changes_prices_and_no_unit() {
    let folder = Folder::new("prices");
    let text = spend(&format!("budget = \"1.00/day\"\n{SETTLED}"));
    fs::write(folder.file(), &text).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    assert_eq!(ask(&watched.read_json(), &watched.layer(), "small").2, 750);
    fs::write(folder.file(), text.replace("output = 0.6", "output = 1.6")).unwrap();
    watched.reload().unwrap();
    assert_eq!(
        ask(&watched.read_json(), &watched.layer(), "small").2,
        750 + 1_750
    );

    fs::write(
        folder.file(),
        text.replace("1.00/day\"", "1.00/day\"\nunit = 0.01"),
    )
    .unwrap();
    let error = watched.reload().unwrap_err().to_string();
    let says = ":4:8: policies.spend: what its keys have used was counted in another unit; give the policy another name, or \
                the unit that it had";
    assert!(error.contains(says), "{error}");
    // Tokens are another unit too.
    fs::write(
        folder.file(),
        text.replace("budget = \"1.00/day\"", "quota = \"1/day\""),
    )
    .unwrap();
    assert!(
        watched
            .reload()
            .unwrap_err()
            .to_string()
            .contains("policies.spend: what its keys")
    );
    let renamed = text.replace("1.00/day\"", "1.00/day\"\nunit = 0.01");
    fs::write(
        folder.file(),
        renamed.replace("policies.spend", "policies.cents"),
    )
    .unwrap();
    watched.reload().unwrap();
}

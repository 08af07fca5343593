//! Settings for ceilings, shares and penalties.

use crate::scene::{config, get, layer, mistakes, send, told};

const API: &str = "[policies.api]\nkey = \"global\"\nquota = \"10/hour\"\n";

#[test]
fn low_priority_leaves_the_reserve() {
    let text = format!("{API}reserve = 4\nlow_priority = {{ path = \"/export/*\" }}");
    let config = config(&text);
    assert_eq!(told(&config, get("/")), "\"api\";q=10;w=3600");
    assert_eq!(told(&config, get("/export/7")), "\"api\";q=6;w=3600");
    let explained = config.explain(&get("/export").body(()).unwrap(), None, None);
    assert_eq!(explained.rows()[0].says(), "anchored-window 6/hour");
}

#[test]
fn a_request_above_the_ceiling_has_the_status_of_the_file() {
    let text = format!(
        "[responses]\ntoo_large_status = 413\n{API}most = 5\ncost = [{{ path = \"/bulk\", cost = 6 }}]"
    );
    let layer = layer(&config(&text));
    assert_eq!(send(&layer, get("/bulk")).status, 413);
    assert_eq!(send(&layer, get("/")).status, 200);
}

#[test]
fn a_penalty_blocks_for_as_long_as_the_file_says() {
    let text = format!(
        "{API}penalty = {{ refusals = 3, within = \"15min\", block = \"2h\", times = 2, up_to = \"1d\", \
         forget_after = \"2d\", extended_by_refusals = true }}\ncost = 10"
    );
    let layer = layer(&config(&text));
    let statuses: Vec<_> = (0..3).map(|_| send(&layer, get("/")).status).collect();
    assert_eq!(statuses, [200, 429, 429]);
    let third = send(&layer, get("/"));
    assert_eq!(third.head.headers["retry-after"], "7200");
}

#[test]
fn a_policy_that_is_not_announced_is_in_no_header() {
    let text =
        format!("{API}[policies.flood]\nkey = \"global\"\nquota = \"1/hour\"\nannounce = false");
    let layer = layer(&config(&text));
    let first = send(&layer, get("/"));
    assert_eq!(
        first.head.headers["ratelimit-policy"],
        "\"api\";q=10;w=3600"
    );
    let second = send(&layer, get("/"));
    assert_eq!(second.status, 429);
    assert!(!second.head.headers.contains_key("ratelimit"));
    assert!(second.head.headers.contains_key("retry-after"));
}

#[test]
fn contradicting_terms_are_a_mistake_with_their_line() {
    let of = |says: &str| mistakes(&format!("{API}{says}"));
    for (says, mistake) in [
        (
            "most = 11",
            "<text>:4:8: policies.api.most: 11 is no ceiling; give 1 to 10, the limit of the policy",
        ),
        (
            "reserve = 10\nlow_priority = { method = \"GET\" }",
            "<text>:4:11: policies.api.reserve: 10 leaves nothing to low priority; give less than 10, the limit of the policy",
        ),
        (
            "reserve = 5",
            "<text>:4:11: policies.api.reserve: `low_priority` is missing; say which requests leave the reserve, or leave \
             `reserve` out",
        ),
        (
            "low_priority = { method = \"GET\" }",
            "<text>:4:16: policies.api.low_priority: `reserve` is missing; say how many units low priority leaves, or leave \
             `low_priority` out",
        ),
        (
            "penalty = { within = \"1min\" }",
            "<text>:4:11: policies.api.penalty: `refusals` is missing; say at how many refusals a key is blocked, such as \
             refusals = 3",
        ),
        (
            "penalty = { refusals = 0, within = \"1min\" }",
            "<text>:4:11: policies.api.penalty: `refusals` cannot be 0: give 1 to 100",
        ),
    ] {
        assert_eq!(of(says), [mistake], "{says}");
    }
    let few = of("penalty = { refusals = 2, within = \"1min\" }");
    assert!(
        few[0].contains("give 3 or more: under policy \"api\""),
        "{few:?}"
    );
    let soft = of("soft = true\npenalty = { refusals = 3, within = \"1min\" }");
    assert_eq!(soft.len(), 1, "{soft:?}");
    assert!(
        soft[0].contains("soft") && soft[0].contains("penalty"),
        "{soft:?}"
    );
}

#[test]
fn requests_at_once_are_a_number_and_plans_have_others() {
    let text = "default_plan = \"pro\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n[policies.at_once]\n\
                key = \"global\"\nconcurrency = 3\n[plans]\npro = { at_once = 5 }\nfree = { at_once = 3 }";
    let pro = config(text);
    assert_eq!(
        told(&pro, get("/")),
        "\"at_once\";q=5;qu=\"concurrent-requests\""
    );
    let explained = pro.explain(&get("/").body(()).unwrap(), None, Some("free"));
    assert_eq!(explained.rows()[0].says(), "concurrency 3");
    let whole = config("[policies.a]\nkey = \"global\"\nalgorithm = \"concurrency 20\"");
    assert_eq!(
        told(&whole, get("/")),
        "\"a\";q=20;qu=\"concurrent-requests\""
    );
}

#[test]
fn terms_that_concurrency_cannot_have_are_a_mistake() {
    let of = |says: &str| {
        mistakes(&format!(
            "[policies.a]\nkey = \"global\"\nconcurrency = 3\n{says}"
        ))
    };
    for (says, field) in [
        ("quota = \"5/day\"", "quota"),
        ("penalty = { refusals = 9, within = \"1s\" }", "penalty"),
    ] {
        let mistakes = of(says);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].contains(field), "{mistakes:?}");
    }
}

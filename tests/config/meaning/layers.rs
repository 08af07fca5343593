//! Layers and limiters of a file: responses, soft policies, shared state, explanations.

use http::Request;

use crate::scene::{config, get, layer, now, send};

#[test]
fn responses_are_as_the_file_says() {
    let config = config(
        r#"
        [policies.a]
        quota = "1/day"
        key = "global"
        [responses]
        dialects = ["x-ratelimit", "draft-11"]
        refusal_status = 503
        refusal_body = { content_type = "text/html", text = "<p>later</p>" }
        "#,
    );
    let layer = layer(&config);
    let allowed = send(&layer, get("/"));
    assert_eq!(allowed.head.headers["x-ratelimit-limit"], "1");
    assert_eq!(allowed.policies.unwrap(), "\"a\";q=1;w=86400");
    let refused = send(&layer, get("/"));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.head.headers["content-type"], "text/html");
    assert_eq!(refused.body, "<p>later</p>");
}

#[test]
fn a_soft_policy_refuses_no_request_and_a_waiting_one_waits() {
    let config = config("[policies.a]\nquota = \"1/day\"\nkey = \"global\"\nsoft = true");
    let layer = layer(&config);
    assert_eq!([(); 2].map(|()| send(&layer, get("/")).status), [200, 200]);
    // A layer waits; code that uses its limiter gets the answer at once.
    let waits =
        "[policies.a]\nquota = \"1/day\"\nkey = \"global\"\nwait_up_to = \"2s\"\nwait_places = 3";
    let limiter = crate::scene::config(waits).limiter().unwrap();
    let allowed = [(); 2].map(|()| now(limiter.check("k", 1)).unwrap().is_allowed());
    assert_eq!(allowed, [true, false]);
}

#[test]
fn a_limiter_has_the_policies_and_the_plans() {
    let config = config(
        "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n[policies.a]\nquota = \"1/day\"\n\
         key = \"global\"\n[plans]\nfree = { a = 1 }\npro = { a = 3 }",
    );
    let limiter = config.limiter().unwrap();
    let check = |plan: &str, cost| {
        crate::scene::now(limiter.plan(plan).check("ann", cost))
            .unwrap()
            .is_allowed()
    };
    assert!(check("pro", 3));
    assert!(!check("pro", 1));
    assert!(!check("free", 1));
}

/// Layers of one configuration share its store, so each sees the charges of the others.
#[test]
fn two_layers_of_a_configuration_share_their_state() {
    let config = config("[policies.a]\nquota = \"1/day\"\nkey = \"global\"");
    let (one, other) = (config.layer().unwrap(), config.layer().unwrap());
    assert_eq!(send(&one, get("/")).status, 200);
    assert_eq!(send(&other, get("/")).status, 429);
}

#[test]
fn a_request_is_explained_with_the_line_of_each_limit() {
    let config = config(
        r#"default_plan = "free"
plan_of = { header = "x-plan", from = "10.0.0.0/8" }
[lists]
deny = { path = "/secret" }
[policies.minute]
quota = "10/minute"
key = { header = "x-tenant" }
cost = [{ method = "POST", cost = 5 }]
[policies.minute.key_limits.keys]
acme = 1000
[policies.posts]
limit = 5
per = "day"
key = "global"
when = { method = "POST" }
[plans.free]
minute = 10
[plans.pro]
minute = 100
"#,
    );
    let understood = config.understood().to_string();
    assert_eq!(
        understood,
        "minute  anchored-window 10/minute  policy  line 6\nposts   anchored-window 5/day      policy  line 12\n"
    );
    let explain = |request: http::request::Builder, key, plan| {
        config
            .explain(&request.body(()).unwrap(), key, plan)
            .to_string()
    };
    assert_eq!(
        explain(get("/"), Some("ann"), Some("pro")),
        "minute  anchored-window 100/minute  plan pro  line 19\nposts   does not apply\n"
    );
    assert_eq!(
        explain(Request::post("/").header("x-tenant", "acme"), None, None),
        "minute  anchored-window 1000/minute, cost 5  key \"acme\"  line 10\n\
         posts   anchored-window 5/day                policy      line 12\n"
    );
    assert_eq!(
        explain(get("/"), None, None),
        "minute  anchored-window 10/minute, together with all requests without a key  plan free  line 17\n\
         posts   does not apply\n"
    );
    assert!(explain(get("/secret"), None, None).contains("denied by a list"));
}

#[test]
fn a_request_is_explained_in_the_modes_of_policies_and_without_its_key() {
    let config = config(
        r#"[policies.refuses]
quota = "10/minute"
key = { header = "x-tenant" }
on_missing_key = 401
[policies.skips]
quota = "10/minute"
key = { header = "x-tenant" }
on_missing_key = "skip"
[policies.shadow]
quota = "20/minute"
key = "global"
mode = "shadow"
[policies.off]
quota = "30/minute"
key = "global"
mode = "off"
"#,
    );
    let request = get("/").body(()).unwrap();
    let explained = config.explain(&request, None, None);
    let said: Vec<_> = explained
        .rows()
        .iter()
        .map(|row| (row.policy(), row.says()))
        .collect();
    assert_eq!(
        said,
        [
            ("refuses", "the request has no key, and is refused with 401"),
            ("skips", "the request has no key"),
            ("shadow", "anchored-window 20/minute, in shadow"),
            ("off", "is off"),
        ]
    );
}

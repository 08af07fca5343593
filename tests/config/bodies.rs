//! Fields of a request's body decide its key, its operation, its cost and its estimate, where a file says so.

use std::convert::Infallible;
use std::fs;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Key;
use tower_ratelimit::limiter::Limiter;
use tower_ratelimit::middleware::{ReadBody, ReadJsonLayer};
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{RateLimitLayer, key};
use tower_ratelimit_config::Config;

use crate::folder::Folder;
use crate::scene::{config, layer, mistakes, now};

const UNITS: &str = "[policies.units]\nkey = \"global\"\nquota = \"1000/hour\"\n";
const MODELS: &str = "[policies.models]\nkey = { json = \"model\" }\nquota = \"1/hour\"\n";

fn post(path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Full::from(body.to_owned())).unwrap()
}

fn plain(path: &str) -> Request<Full<Bytes>> {
    Request::post(path).body(Full::from("hello")).unwrap()
}

/// Sends a request through both layers, and returns the status and what was used while it was under way.
fn send(
    read: &ReadJsonLayer,
    limits: &RateLimitLayer,
    key: Key,
    request: Request<Full<Bytes>>,
) -> (u16, u32) {
    let used = Arc::new(Mutex::new(0));
    let (note, limiter) = (Arc::clone(&used), limits.limiter());
    let handler = service_fn(move |_: Request<ReadBody<Full<Bytes>>>| {
        *note.lock().unwrap() = used_of(&limiter, key);
        async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
    });
    let service = read.layer(limits.layer(handler));
    let status = now(service.oneshot(request)).unwrap().status().as_u16();
    let used = *used.lock().unwrap();
    (status, used)
}

fn used_of(limiter: &Limiter, key: Key) -> u32 {
    let decision = now(limiter.peek(key, 0)).unwrap();
    decision.binding().map_or(0, |(_, outcome)| outcome.used())
}

fn global() -> Key {
    key::global().key_of(()).unwrap()
}

/// Returns the statuses of these requests, one after the other.
fn statuses<const N: usize>(config: &Config, requests: [Request<Full<Bytes>>; N]) -> [u16; N] {
    let limits = layer(config);
    requests.map(|request| send(&config.read_json(), &limits, global(), request).0)
}

/// Returns what a request with this body is charged while it is under way.
fn charged(says: &str, body: &str) -> u32 {
    let config = config(&format!("{UNITS}{says}"));
    send(
        &config.read_json(),
        &layer(&config),
        global(),
        post("/", body),
    )
    .1
}

#[test]
fn a_key_is_a_field_of_the_body() {
    let config = config(MODELS);
    let (small, large) = (r#"{"model":"small"}"#, r#"{"model":"large"}"#);
    let requests = [small, small, large, large, "{}", "{}"].map(|body| post("/", body));
    assert_eq!(statuses(&config, requests), [200, 429, 200, 429, 200, 429]);
    // Without the layer that reads the body, the field is unknown.
    let unread = layer(&config).layer(service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    assert_eq!(now(unread.oneshot(post("/", small))).unwrap().status(), 500);
}

#[test]
fn a_key_may_be_one_of_several() {
    let models = "[policies.models]\nkey = [{ header = \"x-user\" }, { json = \"model\" }]\nquota = \"1/hour\"\n";
    let of = |user: &str, model: &str| {
        let mut request = post("/", &format!("{{\"model\":\"{model}\"}}"));
        request
            .headers_mut()
            .insert("x-user", user.parse().unwrap());
        request
    };
    let requests = [of("a", "x"), of("a", "y"), of("b", "x"), of("a", "x")];
    assert_eq!(statuses(&config(models), requests), [200, 200, 200, 429]);
}

#[test]
fn an_operation_is_a_field_of_the_body() {
    let tools = "[policies.tools]\nkey = \"global\"\nquota = \"9/hour\"\noperation = { json = \"params.name\" }\n\
                 operations = { search = 1 }\n";
    let call = |name: &str| post("/", &format!(r#"{{"params":{{"name":"{name}"}}}}"#));
    let requests = [call("search"), call("search"), call("read")];
    assert_eq!(statuses(&config(tools), requests), [200, 429, 200]);
}

#[test]
fn an_operation_is_a_tool_and_its_header_agrees() {
    let tools = "[policies.tools]\nkey = \"global\"\nquota = \"9/hour\"\noperation = \"mcp_name\"\n\
                 operations = { search = 1 }\n";
    let call = |header: &str, name: &str| {
        let body = format!(r#"{{"method":"tools/call","params":{{"name":"{name}"}}}}"#);
        let mut request = post("/", &body);
        let header = header.parse().unwrap();
        request.headers_mut().insert("mcp-name", header);
        request
    };
    let requests = [
        call("search", "search"),
        call("=?base64?c2VhcmNo?=", "search"),
        call("mail", "search"),
        call("mail", "mail"),
    ];
    assert_eq!(statuses(&config(tools), requests), [200, 429, 400, 200]);
}

#[test]
fn a_cost_and_an_estimate_are_numbers_of_the_body() {
    for (says, body, expected) in [
        ("cost = { json = \"rows\", or = 7 }", r#"{"rows":30}"#, 30),
        (
            "cost = { json = \"rows\", or = 7 }",
            r#"{"rows":30,"rows":40}"#,
            40,
        ),
        ("cost = { json = \"rows\", or = 7 }", r#"{"rows":0}"#, 1),
        ("cost = { json = \"rows\", or = 7 }", "{}", 7),
        (
            "estimate = { json = \"max\", or = 7 }\nsettle = \"cost\"",
            r#"{"max":30}"#,
            30,
        ),
        (
            "estimate = { json = \"max\", or = 7 }\nsettle = \"cost\"",
            r#"{"max":null}"#,
            7,
        ),
        (
            "estimate = \"openai\"\nsettle = \"openai\"",
            r#"{"input":"12345678","max_tokens":5,"n":2}"#,
            12,
        ),
        (
            "estimate = \"anthropic\"\nsettle = \"anthropic\"",
            r#"{"max_tokens":5,"n":2}"#,
            5,
        ),
        (
            "estimate = \"gemini\"\nsettle = \"gemini\"",
            r#"{"generationConfig":{"maxOutputTokens":5,"candidateCount":2}}"#,
            10,
        ),
    ] {
        assert_eq!(charged(says, body), expected, "{says} {body}");
    }
}

#[test]
fn a_body_that_cannot_be_read_is_refused_unless_it_is_for_an_estimate_or_the_file_says_so() {
    let bad = || {
        let mut long = post(
            "/",
            &format!(r#"{{"model":"a","text":"{}"}}"#, "x".repeat(70_000)),
        );
        long.headers_mut().insert("x-long", "1".parse().unwrap());
        [
            long,
            plain("/"),
            post("/", "[]"),
            post("/", r#"{"model":"a","model":"b"}"#),
        ]
    };
    let wide = |key: &str| format!("[policies.models]\nkey = {key}\nquota = \"100/hour\"\n");
    let by_model = wide("{ json = \"model\" }");
    let cost = format!("{UNITS}cost = {{ json = \"rows\", or = 1 }}\n");
    let estimate = format!("{UNITS}estimate = {{ json = \"rows\", or = 1 }}\nsettle = \"cost\"\n");
    let preset = format!("{UNITS}estimate = \"openai\"\nsettle = \"openai\"\n");
    let passing = "[request_body]\nunreadable = \"pass\"\n";
    let refusing = "[request_body]\nunreadable = \"refuse\"\n";
    for (text, expected) in [
        (by_model.clone(), [413, 415, 400, 400]),
        (format!("{by_model}{passing}"), [200, 200, 200, 200]),
        (
            format!("{by_model}mode = \"shadow\"\n"),
            [200, 200, 200, 200],
        ),
        (format!("{by_model}mode = \"off\"\n"), [200, 200, 200, 200]),
        // No text is read, so that none is unclear.
        (cost, [413, 415, 400, 200]),
        (estimate.clone(), [200, 200, 200, 200]),
        (format!("{estimate}{refusing}"), [413, 415, 400, 200]),
        (format!("{preset}{refusing}"), [413, 415, 400, 200]),
        (
            format!("{by_model}[request_body]\nmax_bytes = 80000\n"),
            [200, 415, 400, 400],
        ),
        (
            format!("{by_model}[request_body]\nmax_bytes = 5\n"),
            [413, 415, 413, 413],
        ),
    ] {
        let text = text.replace("quota = \"1000/hour\"", "quota = \"1000000/hour\"");
        let mut expected = expected;
        if text.contains("max_bytes = 5") {
            // `[]` has two bytes.
            expected[2] = 400;
        }
        assert_eq!(statuses(&config(&text), bad()), expected, "{text}");
    }
}

#[test]
fn only_requests_for_which_a_policy_asks_are_read() {
    let lists = "[lists]\nexempt_paths = [\"/health\"]\nallow = { header = { x-inside = \"yes\" } }\ndeny = { path = \"/x\" }\n";
    let text = format!("{MODELS}when = {{ path = \"/chat/*\" }}\n{lists}");
    let mut inside = plain("/chat");
    inside
        .headers_mut()
        .insert("x-inside", "yes".parse().unwrap());
    let requests = [
        plain("/chat"),
        plain("/files"),
        plain("/health"),
        inside,
        plain("/x"),
    ];
    assert_eq!(
        statuses(&config(&text), requests),
        [415, 200, 200, 200, 403]
    );
    let health = format!("{MODELS}{lists}");
    assert_eq!(
        statuses(&config(&health), [plain("/health"), plain("/")]),
        [200, 415]
    );
    assert_eq!(statuses(&config(UNITS), [plain("/")]), [200]);
}

#[test]
fn a_mode_that_is_switched_holds_for_the_reading_too() {
    let config = config(MODELS);
    let limits = layer(&config);
    let status = || send(&config.read_json(), &limits, global(), plain("/")).0;
    assert_eq!(status(), 415);
    config.modes().set("models", Mode::Off).unwrap();
    assert_eq!(status(), 200);
    config.modes().unset("models").unwrap();
    assert_eq!(status(), 415);
}

#[test]
fn a_policy_asks_for_the_usage_of_streams() {
    let text = format!(
        "{UNITS}settle = \"openai\"\ninclude_usage = true\nwhen = {{ path = \"/chat\" }}\n"
    );
    let config = config(&text);
    let limits = layer(&config);
    let arrived = |path: &str, body: &str| {
        let arrived = Arc::new(Mutex::new(Bytes::new()));
        let note = Arc::clone(&arrived);
        let handler = service_fn(move |request: Request<ReadBody<Full<Bytes>>>| {
            let note = Arc::clone(&note);
            async move {
                *note.lock().unwrap() = request.into_body().collect().await?.to_bytes();
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        });
        let service = config.read_json().layer(limits.layer(handler));
        assert_eq!(
            now(service.oneshot(post(path, body))).unwrap().status(),
            200
        );
        let arrived = arrived.lock().unwrap();
        arrived.clone()
    };
    let stream = r#"{"stream":true}"#;
    let asking = r#"{"stream_options":{"include_usage":true},"stream":true}"#;
    assert_eq!(arrived("/chat", stream), asking);
    assert_eq!(arrived("/other", stream), stream);
    // What cannot be read goes on, since no field of it decides.
    assert_eq!(arrived("/chat", "[]"), "[]");
    config.modes().set("units", Mode::Off).unwrap();
    assert_eq!(arrived("/chat", stream), stream);
    let alone = mistakes(&format!("{UNITS}include_usage = true\n"));
    assert_eq!(
        alone,
        [
            "<text>:4:17: policies.units.include_usage: `settle` is missing; say what reads the usage, settle = \"openai\""
        ]
    );
}

#[test]
fn a_plan_may_be_that_of_a_field() {
    let text = "default_plan = \"free\"\nplan_of = { key = { json = \"team\" }, plans = { red = \"pro\" } }\n\
                [policies.units]\nkey = \"global\"\nquota = \"1/hour\"\n[plans.free]\n[plans.pro]\nunits = 2\n";
    let red = || post("/", r#"{"team":"red"}"#);
    let requests = [red(), red(), red(), plain("/")];
    assert_eq!(statuses(&config(text), requests), [200, 200, 429, 415]);
}

#[test]
fn the_reading_follows_the_file() {
    let folder = Folder::new("bodies");
    fs::write(folder.file(), UNITS).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let (read, limits) = (watched.read_json(), watched.layer());
    let status = |request| send(&read, &limits, global(), request).0;
    let small = || post("/", r#"{"model":"small"}"#);
    assert_eq!(
        [status(plain("/")), status(small()), status(small())],
        [200; 3]
    );
    fs::write(folder.file(), MODELS).unwrap();
    watched.reload().unwrap();
    assert_eq!(
        [status(plain("/")), status(small()), status(small())],
        [415, 200, 429]
    );
    watched.modes().set("models", Mode::Off).unwrap();
    assert_eq!([status(plain("/")), status(small())], [200, 200]);
}

#[test]
fn no_body_is_read_of_a_request_that_another_policy_refuses() {
    let folder = Folder::new("bodies-unread");
    let once = "[policies.once]\nkey = \"global\"\nquota = \"1/hour\"\n";
    fs::write(folder.file(), format!("{MODELS}{once}")).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let (read, limits) = (watched.read_json(), watched.layer());
    let ask = |body: StreamBody<_>| {
        let handler = service_fn(async |_: Request<ReadBody<_>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let service = read.layer(limits.layer(handler));
        let asked = now(service.oneshot(post("/", "").map(|_| body)));
        asked.unwrap().status().as_u16()
    };
    let body = |text: &'static str| {
        let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from(text)))];
        StreamBody::new(stream::iter(frames).boxed())
    };
    let never = || StreamBody::new(stream::pending().boxed());
    assert_eq!(ask(body(r#"{"model":"small"}"#)), 200);
    assert_eq!(ask(never()), 429);
    // The file is followed.
    let twice = once.replace('1', "2");
    fs::write(folder.file(), format!("{MODELS}{twice}")).unwrap();
    watched.reload().unwrap();
    assert_eq!(ask(body(r#"{"model":"large"}"#)), 200);
    assert_eq!(ask(never()), 429);
}

#[test]
fn a_file_in_shadow_reads_its_fields_too_and_refuses_no_body() {
    let folder = Folder::new("bodies-shadow");
    fs::write(folder.file(), format!("shadow = \"next.toml\"\n{UNITS}")).unwrap();
    fs::write(folder.file().with_file_name("next.toml"), MODELS).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let (read, limits) = (watched.read_json(), watched.layer());
    let status = |request| send(&read, &limits, global(), request).0;
    let of = |model: &str| post("/", &format!(r#"{{"model":"{model}"}}"#));
    assert_eq!(
        [
            status(of("a")),
            status(of("b")),
            status(of("a")),
            status(plain("/"))
        ],
        [200; 4]
    );
    let shadow = watched.shadow().unwrap();
    // The second request of a model, and not the first of another.
    assert_eq!((shadow.compared(), shadow.would_refuse()), (4, 1));
}

#[test]
fn a_request_without_its_body_is_explained_and_replayed_as_one_without_the_field() {
    let config = config(MODELS);
    let explained = config.explain(&Request::new(()), None, None).to_string();
    assert_eq!(
        explained,
        "models  anchored-window 1/hour, together with all requests without a key  policy  line 3\n"
    );
    let replay = config.replay().unwrap();
    let at = tower_ratelimit::Micros::new(0);
    let goes_on = |key| {
        replay
            .decide(at, Request::new(()), key, None, None)
            .goes_on()
    };
    assert_eq!(
        [None, None, Some("small"), Some("large")].map(goes_on),
        [true, false, true, true]
    );
}

#[test]
fn mistakes_are_told_with_their_lines() {
    let found = mistakes(
        "[policies.a]
key = { json = \"a..b\" }
quota = \"1/hour\"
cost = { json = \"rows\" }

[policies.b]
key = { json = 7 }
quota = \"1/hour\"
estimate = \"opneai\"
settle = \"openai\"

[policies.c]
key = \"global\"
quota = \"1/hour\"
cost = { json = \"rows\", function = \"rows\" }

[policies.d]
key = \"global\"
quota = \"1/hour\"
estimate = { json = \"max\", or = 0 }
settle = \"cost\"

[policies.e]
key = \"global\"
quota = \"1/hour\"
cost = { or = 5 }

[request_body]
max_bytes = \"64k\"
unreadable = \"skip\"
",
    );
    assert_eq!(
        found,
        [
            "<text>:2:16: policies.a.key.json: `json` cannot be \"a..b\": give the names of members with dots between them, such as \
             `params.name`: at most eight, each of 1 to 64 bytes",
            "<text>:4:8: policies.a.cost: `or` is missing; say what a request without the number costs, such as or = 1",
            "<text>:7:16: policies.b.key.json: 7 is not text; write it in quotes",
            "<text>:9:12: policies.b.estimate: \"opneai\" is unknown; did you mean \"openai\"? Known are openai, anthropic, gemini",
            "<text>:15:17: policies.c.cost.json: `json` contradicts `function` (line 15); leave one of them",
            "<text>:20:33: policies.d.estimate.or: a request that costs nothing is never refused; give 1 or more",
            "<text>:26:8: policies.e.cost: `function` is missing; name a function that code has registered, or a field of the body, \
             { json = \"rows\", or = 1 }",
            "<text>:29:13: request_body.max_bytes: \"64k\" is not a whole number; write 64_000",
            "<text>:30:14: request_body.unreadable: \"skip\" is unknown; known are refuse, pass",
        ]
    );
    let config = config(&format!("{UNITS}[request_body]\nmax_bytes = 5\n"));
    let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("no policy reads a body"),
        "{warnings:?}"
    );
    let policy =
        |n: u32| format!("[policies.p{n}]\nkey = {{ json = \"f{n}\" }}\nquota = \"1/hour\"\n");
    let many: Vec<String> = (0..70).map(policy).collect();
    let found = mistakes(&many.concat());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("64 fields"), "{found:?}");
}

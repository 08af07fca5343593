//! Mistakes that stand in a file of limits: the log tells its reader what to write there.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use http_body_util::BodyExt;
use tokio::runtime;
use tower::ServiceExt;
use tower_ratelimit::plan::{Resolved, Resolver};
use tower_ratelimit_config::{Config, Format};

use crate::support::log::{Log, LogLine};

/// A file with a mistake, and what its reader has to write. Each has its own `NAME`, since each diagnostic is logged once for
/// each subject.
struct Case {
    code: &'static str,
    file: &'static str,
    /// What the remedy says, each with what to replace in the file, and with what.
    mended: &'static [(&'static str, &'static str, &'static str)],
}

const CASES: &[Case] = &[
    Case {
        code: "TRL012",
        file: "store.redis = 'redis://127.0.0.1/'\npolicies.NAME = { quota = '9/day', key = 'peer_ip' }",
        mended: &[
            (
                "`nodes = 3` under `[store]`",
                "\npolicies",
                "\nstore.nodes = 3\npolicies",
            ),
            (
                "`on_store_failure = \"refuse\"` of the policy",
                "quota",
                "on_store_failure = 'refuse', quota",
            ),
        ],
    },
    Case {
        code: "TRL013",
        file: "store = { redis = 'redis://127.0.0.1/', nodes = 1 }\n\
               policies.NAME = { quota = '9/day', key = 'api_key' }",
        mended: &[(
            "`secret = { env = \"RATE_LIMIT_SECRET\" }`",
            "policies",
            "secret = 'of thirty-two bytes, or of more'\npolicies",
        )],
    },
    Case {
        code: "TRL015",
        file: "store = { redis = 'redis://127.0.0.1/', nodes = 1 }\nsecret = 'of thirty-two bytes, or of more'\n\
               policies.NAME = { quota = '9/day', key = { header = 'x-api-key' } }",
        mended: &[
            (
                "`key = { hashed = { header = \"x-gateway-key\" } }`",
                "{ header = 'x-api-key' }",
                "{ hashed = { header = 'x-api-key' } }",
            ),
            (
                "`key = \"api_key\"`",
                "{ header = 'x-api-key' }",
                "'api_key'",
            ),
        ],
    },
    Case {
        code: "TRL017",
        file: "default_plan = 'free'\nplan_of = { function = 'NAME' }\nplans.free = { minute = 5 }\n\
               policies.minute = { quota = '9/minute', key = 'peer_ip' }",
        mended: &[(
            "`[plans.NAME]`",
            "plans.free",
            "plans.NAME = { minute = 7 }\nplans.free",
        )],
    },
    Case {
        code: "TRL018",
        file: "default_plan = 'free'\nplan_of = { function = 'free' }\nplans.free = { minute = 5 }\n\
               policies.minute = { quota = '9/minute', key = 'peer_ip' }\n\
               policies.NAME = { quota = '9/day', key = 'peer_ip' }",
        mended: &[(
            "`ignore_plans = true` of the policy",
            "'9/day'",
            "'9/day', ignore_plans = true",
        )],
    },
    Case {
        code: "TRL019",
        file: "default_plan = 'free'\nplan_of = { function = 'of a header' }\n\
               plans = { free = { minute = 5 }, pro = { minute = 7 } }\n\
               policies.minute = { quota = '9/minute', key = 'peer_ip' }",
        mended: &[
            (
                "`plan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }`",
                "{ function = 'of a header' }",
                "{ header = 'x-tier', from = '10.0.0.0/8' }",
            ),
            (
                "`plan_of = { key = \"api_key\", plans = { … } }`",
                "{ function = 'of a header' }",
                "{ key = 'api_key', plans = { k3y-of-ann = 'pro' } }",
            ),
        ],
    },
    Case {
        code: "TRL021",
        file: "resolver.function = 'NAME'\npolicies.minute = { quota = '9/minute', key = 'peer_ip' }",
        mended: &[(
            "`[plans.NAME]`",
            "policies",
            "default_plan = 'NAME'\nplans.NAME = { minute = 7 }\npolicies",
        )],
    },
    Case {
        code: "TRL025",
        file: "policies.NAME = { quota = '99/day', key = 'peer_ip', settle = { header = 'x-cost' } }",
        mended: &[(
            "`settle = [{ header = \"x-cost\" }, \"bytes\"]`",
            "{ header = 'x-cost' }",
            "[{ header = 'x-cost' }, 'bytes']",
        )],
    },
    Case {
        code: "TRL033",
        file: "default_plan = 'NAME'\nplan_of = { function = 'NAME' }\nplans.NAME = { minute = 7 }\n\
               policies.minute = { quota = '9/minute', key = 'api_key', key_limits = { keys = { a = 1 }, other = 2 } }",
        mended: &[("leave out `other` of `key_limits`", ", other = 2", "")],
    },
    Case {
        code: "TRL035",
        file: "store = { redis = 'redis://127.0.0.1/', nodes = 1, lease = '1s' }\n\
               policies.NAME = { quota = '9/day', penalty = { refusals = 9, within = '1min' }, key = 'peer_ip' }",
        mended: &[(
            "`lease = false` of the policy",
            "quota",
            "lease = false, quota",
        )],
    },
];

/// Returns the lines with this code when the file is put into force, and a request comes.
fn logged(file: &str, code: &str, name: &str) -> Vec<LogLine> {
    let named = Some(name.to_owned());
    let plan = Resolved::plan(name);
    let resolver = Resolver::new(move |_: &str| {
        let plan = plan.clone();
        async { Ok::<_, Infallible>(plan) }
    });
    let builder = Config::builder()
        .plan_of("free", |_| Some("free".to_owned()))
        .plan_of("of a header", |head| {
            Some(head.headers().get("x-tier")?.to_str().ok()?.to_owned())
        })
        .plan_of(name, move |_| named.clone())
        .resolver(name, resolver, |_| Some("ann"));
    let ((), mut lines) = Log::of(|| {
        let config = builder.parse(file, Format::Toml);
        let config = config.unwrap_or_else(|error| panic!("{file}\n{error}"));
        let layer = config.layer().unwrap();
        if file.contains("redis") {
            // There is none.
            return;
        }
        let app = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer);
        let request = Request::builder()
            .header("x-api-key", "k3y-of-ann")
            .header("x-tier", "pro")
            .extension(SocketAddr::from(([10, 0, 0, 1], 40_000)));
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let request = request.body(Body::empty()).unwrap();
            let response = app.oneshot(request).await.unwrap();
            response.into_body().collect().await.unwrap();
        });
    });
    lines.retain(|line| line.fields.get("code").is_some_and(|said| said == code));
    lines
}

/// Once, most remedies were in Rust alone, and a plan from a gateway that the file trusts was warned of.
#[test]
fn a_mistake_in_a_file_is_mended_there_as_its_remedy_says() {
    for (number, case) in CASES.iter().enumerate() {
        let name = format!("of-file-{number}");
        let file = case.file.replace("NAME", &name);
        for (_, wrong, right) in case.mended {
            assert!(file.contains(wrong), "{file}");
            let mended = file.replacen(wrong, &right.replace("NAME", &name), 1);
            let lines = logged(&mended, case.code, &name);
            assert!(lines.is_empty(), "{mended}\n{lines:?}");
        }
        // Now, since it is logged once.
        let lines = logged(&file, case.code, &name);
        let [line] = &lines[..] else {
            panic!("{}: {file}\n{lines:?}", case.code);
        };
        let remedy = &line.fields["remedy"];
        let in_file = remedy.split_once("in a file of limits: ");
        let (_, in_file) = in_file.unwrap_or_default();
        for (says, ..) in case.mended {
            assert!(in_file.contains(says), "{}: {remedy}", case.code);
        }
    }
}

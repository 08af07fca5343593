//! Tables of the file that stand for methods of the builders.

use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tower_ratelimit::key::Head;
use tower_ratelimit::{AnchoredWindow, Decision};
use tower_ratelimit_config::{Config, ConfigBuilder, Format};

use crate::scene::{config, get, layer, mistakes, send};

const POLICY: &str = "[policies.a]\nquota = \"2/day\"\nkey = { header = \"x-id\" }\n";

#[test]
fn the_heaviest_keys_are_told_as_the_file_says() {
    let told = |field: &str| {
        let secret = "secret = \"0123456789abcdef0123456789abcdef\"\n";
        let layer = layer(&config(&format!("{secret}{POLICY}{field}\n")));
        for _ in 0..2 {
            send(&layer, get("/").header("x-id", "ann@example.org"));
        }
        let snapshot = layer.monitor().snapshot();
        let heaviest = snapshot.policy("a").unwrap().heaviest.as_ref()?;
        Some(heaviest.keys.first()?.key.clone())
    };
    assert_eq!(told(""), None);
    let hashed = told("top_keys = 5").unwrap();
    assert_eq!(hashed.len(), 16);
    assert_eq!(
        told("top_keys = { most = 5, shown = \"hashed\" }"),
        Some(hashed)
    );
    assert_eq!(
        told("top_keys = { most = 5, shown = \"masked\" }").unwrap(),
        "t:ann…"
    );
    let clear = told("top_keys = { most = 5, shown = \"in-the-clear\" }");
    assert_eq!(clear.unwrap(), "t:ann@example.org");

    let of = |field: &str| mistakes(&format!("{POLICY}{field}\n")).remove(0);
    assert!(of("top_keys = 0").contains("0 keys cannot be told; give 1 to 1000"));
    assert!(of("top_keys = { shown = \"masked\" }").contains("`most` is missing"));
    let wrong = of("top_keys = { most = 5, shown = \"mask\" }");
    assert!(wrong.contains("did you mean \"masked\""), "{wrong}");
}

#[test]
fn limits_can_be_adjusted_if_the_file_says_so() {
    let adjusted = |text: &str| {
        let layer = layer(&config(text));
        layer
            .limiter()
            .adjust_limit("a", None, AnchoredWindow::per_day(5))
    };
    assert!(adjusted(POLICY).is_err());
    assert!(adjusted(&format!("adjustable = true\n{POLICY}")).is_ok());
}

#[test]
fn responses_have_the_decision_if_the_file_says_so() {
    let has_one = |text: &str| {
        let answer = send(&layer(&config(text)), get("/").header("x-id", "ann"));
        answer.head.extensions.get::<Decision>().is_some()
    };
    assert!(!has_one(POLICY));
    assert!(has_one(&format!(
        "{POLICY}[responses]\nexpose_decision_in_response = true\n"
    )));
}

#[test]
fn calls_are_refused_as_the_file_says() {
    let refused = |grpc: &str| {
        let text = format!("{POLICY}on_missing_key = 401\n[responses]\ngrpc = {grpc}\n")
            .replace("2/day", "0/day");
        let call = get("/greeter.Greeter/Hello")
            .header("x-id", "ann")
            .header("content-type", "application/grpc");
        let answer = send(&layer(&config(&text)), call);
        let field = |name: &str| {
            let value = answer.head.headers.get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        (
            answer.status,
            field("grpc-message"),
            field("grpc-retry-pushback-ms").is_some(),
        )
    };
    let message = |text: &str| Some(text.to_owned());
    assert_eq!(
        refused("{}"),
        (200, message("rate%20limit%20exceeded"), false)
    );
    assert_eq!(
        refused("{ message = \"later\", retry_pushback = \"1s\" }"),
        (200, message("later"), true)
    );
    assert_eq!(refused("{ calls = \"never\" }"), (429, None, false));
    let wrong = mistakes(&format!(
        "{POLICY}[responses.grpc]\ncalls = \"alwys\"\nmessage = \"{}\"\n",
        "x".repeat(513)
    ));
    assert!(wrong[0].contains("did you mean \"always\""), "{wrong:?}");
    assert!(wrong[1].contains("longer than 512 bytes"), "{wrong:?}");
}

mod resolver {
    use tower_ratelimit::plan::{Resolved, Resolver};

    use super::*;
    use crate::folder::Folder;

    const PLANS: &str = "
        default_plan = \"free\"
        [policies.a]
        quota = \"1/day\"
        key = { header = \"x-id\" }
        [plans.free]
        a = 1
        [plans.pro]
        a = 7
    ";

    /// Ann has the plan `pro`; every lookup is counted.
    fn builder() -> (ConfigBuilder, Resolver<String>, Arc<AtomicU32>) {
        let lookups = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&lookups);
        let resolver = Resolver::new(move |id: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                Ok::<_, Infallible>(match &*id {
                    "ann" => Resolved::plan("pro"),
                    _ => Resolved::NotFound,
                })
            }
        });
        let customer = |head: &Head<'_>| head.header("x-id").map(str::to_owned);
        let builder = Config::builder().resolver("customers", resolver.clone(), customer);
        (builder, resolver, lookups)
    }

    async fn limit(layer: &tower_ratelimit::RateLimitLayer, id: &str) -> String {
        let answer = crate::scene::sent(layer, get("/").header("x-id", id)).await;
        answer.policies.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_registered_resolver_names_the_plan_of_a_request() {
        let (builder, resolver, lookups) = builder();
        let of_the_file = ["", ", timeout = \"1s\", capacity = 5, in_flight = 2"];
        for (round, options) in (1..).zip(of_the_file) {
            let text = format!("resolver = {{ function = \"customers\"{options} }}\n{PLANS}");
            let config = builder.parse(&text, Format::Toml).unwrap();
            let layer = config.layer().unwrap();
            assert_eq!(limit(&layer, "ann").await, "\"a\";q=7;w=86400");
            assert_eq!(limit(&layer, "ann").await, "\"a\";q=7;w=86400");
            assert_eq!(lookups.load(Ordering::SeqCst), round, "{options}");
        }
        // A file with options has a cache of its own, which is invalidated too.
        let text = format!("resolver = {{ function = \"customers\", timeout = \"1s\" }}\n{PLANS}");
        let layer = builder.parse(&text, Format::Toml).unwrap().layer().unwrap();
        for expected in [3, 4] {
            limit(&layer, "ann").await;
            assert_eq!(lookups.load(Ordering::SeqCst), expected);
            resolver.invalidate(&"ann".to_owned());
        }
        resolver.invalidate_all();
        limit(&layer, "ann").await;
        assert_eq!(lookups.load(Ordering::SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_keeps_what_is_known_unless_the_options_change() {
        let (builder, _, lookups) = builder();
        let folder = Folder::new("resolver");
        let write = |options: &str, limit: u32| {
            let text = format!("resolver = {{ function = \"customers\", {options} }}\n{PLANS}");
            let text = text.replace("a = 7", &format!("a = {limit}"));
            fs::write(folder.file(), text).unwrap();
        };
        write("fresh_for = \"5min\"", 7);
        let watched = builder.read(folder.file()).unwrap().watch().unwrap();
        limit(&watched.layer(), "ann").await;
        write("fresh_for = \"5min\"", 8);
        watched.reload().unwrap();
        let told = limit(&watched.layer(), "ann").await;
        assert_eq!(told, "\"a\";q=8;w=86400");
        assert_eq!(lookups.load(Ordering::SeqCst), 1);
        write("fresh_for = \"6min\"", 8);
        watched.reload().unwrap();
        limit(&watched.layer(), "ann").await;
        assert_eq!(lookups.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn mistakes_of_a_resolver_are_told() {
        let (builder, ..) = builder();
        let of = |table: &str| {
            let text = format!("resolver = {table}\n{PLANS}");
            let error = builder.parse(&text, Format::Toml).unwrap_err();
            error.mistakes()[0].to_string()
        };
        let wrong = of("{ function = \"customer\" }");
        assert!(wrong.contains("did you mean \"customers\""), "{wrong}");
        assert!(of("{ fresh_for = \"1s\" }").contains("`function` is missing"));
        let wrong = of("{ function = \"customers\", capacity = 0 }");
        assert!(wrong.contains("`capacity` cannot be 0"), "{wrong}");
        let wrong = of("{ function = \"customers\", timeout = 5 }");
        assert!(wrong.contains("resolver.timeout"), "{wrong}");
    }
}

/// Without a resolver, the plan has to be found in another way.
#[test]
fn plans_need_a_way_to_find_them() {
    let text = format!("default_plan = \"free\"\n{POLICY}[plans.free]\na = 1\n");
    let wrong = mistakes(&text);
    assert!(wrong[0].contains("`plan_of` is missing"), "{wrong:?}");
}

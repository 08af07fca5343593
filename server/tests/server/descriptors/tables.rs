//! The tables `envoy` of a file of limits.

use std::time::{Duration, Instant};

use ratelimitd::Limits;
use ratelimitd::ratelimit::{Options, RateLimits};
use tower_ratelimit::{ManualClock, MemoryStore, Micros};
use tower_ratelimit_config::{Config, Format};

use super::super::process::{HOST, Server};
use super::super::program::printed;
use super::{Code, Folder, START, codes, descriptor, passes, request};

const FILE: &str = "
[policies.export]
algorithm = \"token-bucket\"
quota = \"2/hour\"
key = \"client_ip\"

[[envoy]]
domain = \"shop\"
entries = [\"tenant\", \"path=/export\"]
policy = \"export\"

[[envoy]]
domain = \"shop\"
entries = [\"tenant=inner\"]
quota = \"unlimited\"

[[envoy]]
domain = \"shop\"
entries = [\"tenant\"]
quota = \"3/minute\"

[[envoy]]
domain = \"shop\"
entries = [\"path=/files/*\"]
algorithm = \"fixed-window\"
quota = \"2/hour\"
together = true
hours = { zone = \"UTC\", limits = { \"22:00-06:00\" = \"2 times\" } }

[[envoy]]
domain = \"shop\"
entries = [\"tried\"]
quota = \"1/hour\"
mode = \"shadow\"

[[envoy]]
domain = \"llm\"
entries = [\"model\"]
quota = \"10/hour\"
charge = \"after\"
";

/// The limits of a text, whose time the test moves.
pub(super) fn scene(text: &str) -> (RateLimits, ManualClock) {
    let clock = ManualClock::at(Micros::new(START * 1_000_000));
    let store = MemoryStore::new().clock(clock.clone());
    let config = Config::builder().store(store).parse(text, Format::Toml);
    let config = config.unwrap();
    let layer = config.layer().unwrap();
    let limits = Limits::Text { config, layer };
    let limits = RateLimits::beside(&limits, None, Options::default());
    (limits.unwrap(), clock)
}

#[tokio::test]
async fn a_table_decides_by_its_own_fields_or_by_a_policy() {
    let (limits, clock) = scene(FILE);
    let ask = async |entries: &[(&str, &str)]| {
        let answer = limits
            .ask(request(vec![descriptor(entries)]), None)
            .await
            .unwrap();
        let status = answer.statuses[0].clone();
        let limit = status.current_limit.map(|limit| limit.requests_per_unit);
        (passes(&answer), limit, status.limit_remaining)
    };
    // A policy of the file, with a count of its own for each value.
    for expected in [(true, Some(2), 1), (true, Some(2), 0), (false, Some(2), 0)] {
        assert_eq!(
            ask(&[("tenant", "gold"), ("path", "/export")]).await,
            expected
        );
    }
    assert_eq!(
        ask(&[("tenant", "blue"), ("path", "/export")]).await,
        (true, Some(2), 1)
    );
    assert_eq!(
        ask(&[("tenant", "blue"), ("path", "/other")]).await,
        (true, None, 0)
    );
    assert_eq!(ask(&[("tenant", "inner")]).await, (true, None, u32::MAX));
    assert_eq!(ask(&[("tenant", "gold")]).await, (true, Some(3), 2));
    // All values of a pattern together, and twice as much at night: it is midnight.
    for (value, left) in [("/files/a", 3), ("/files/b", 2), ("/files/", 1)] {
        assert_eq!(ask(&[("path", value)]).await, (true, Some(4), left));
    }
    clock.advance(Duration::from_secs(7 * 3_600));
    assert_eq!(ask(&[("path", "/files/c")]).await, (true, Some(2), 1));
    for _ in 0..3 {
        assert!(ask(&[("tried", "x")]).await.0);
    }
}

#[tokio::test]
async fn what_is_charged_after_counts_past_the_limit() {
    let (limits, _clock) = scene(FILE);
    let ask = async |hits: u64| {
        let mut question = request(vec![descriptor(&[("model", "m")])]);
        "llm".clone_into(&mut question.domain);
        question.descriptors[0].hits_addend = Some(hits);
        codes(&limits.ask(question, None).await.unwrap())
    };
    assert_eq!(ask(0).await, [Code::Ok]);
    assert_eq!(ask(25).await, [Code::Ok]);
    assert_eq!(ask(0).await, [Code::OverLimit]);
}

#[test]
fn the_program_explains_follows_and_serves_the_tables_of_its_file() {
    let folder = Folder::of(&[("limits.toml", FILE), ("shop.yaml", "domain: files\n")]);
    let file = folder.0.join("limits.toml");
    let file = file.to_str().unwrap();
    let explained = printed(&[
        "explain",
        file,
        "--domain",
        "shop",
        "--entry",
        "tenant=gold",
        "--entry",
        "path=/export",
    ]);
    assert_eq!(
        explained,
        format!(
            "(tenant, gold)(path, /export): token-bucket 2/hour\n  by {file}:7: tenant.path_/export\n  \
             its state: policy \"shop/tenant/path=/export~dbd8c698dab6cd74\"\n"
        )
    );

    let server = Server::start(&[file, "--ratelimit-config", folder.path()]);
    let question =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "gold"}]}]}"#;
    let ask = || super::calls::post(&server.clients, "/json", question).0;
    assert_eq!([ask(), ask(), ask(), ask()], [200, 200, 200, 429]);
    assert!(
        server
            .ops("/status", HOST)
            .contains("\"domains\":\"files, llm, shop\"")
    );

    folder.write("limits.toml", &FILE.replace("3/minute", "5/minute"));
    server.signal("HUP");
    let begun = Instant::now();
    let loads = r#"ratelimitd_descriptor_config_loads_total{result="in force"} 2"#;
    while !server.ops("/metrics", HOST).contains(loads) {
        assert!(begun.elapsed() < Duration::from_secs(60), "not read again");
        std::thread::yield_now();
    }
    let answers: Vec<u16> = std::iter::repeat_with(ask)
        .take_while(|status| *status == 200)
        .collect();
    assert_eq!(answers.len(), 2, "what was used counts on");
}

#[test]
fn a_domain_stands_in_the_file_or_in_the_directory() {
    let folder = Folder::of(&[("shop.yaml", "domain: shop\n")]);
    let config: Config = FILE.parse().unwrap();
    let layer = config.layer().unwrap();
    let limits = Limits::Text { config, layer };
    let read = RateLimits::beside(&limits, Some(folder.0.clone()), Options::default());
    let error = read.unwrap_err().to_string();
    assert!(
        error.contains("shop.yaml:1:9: domain: duplicate domain 'shop'"),
        "{error}"
    );
}

//! Questions about descriptors as JSON, at `/json`: what is no question is told so, and each descriptor has a status.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use ratelimitd::ratelimit::{Options, RateLimits};
use ratelimitd::server::Answers;
use ratelimitd::{Gateway, Limits};
use serde_json::Value;
use tower_ratelimit::MemoryStore;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit_config::{Config, Format};
use tower_ratelimit_fuzz::{Served, status};

const DESCRIPTORS: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: { unit: hour, requests_per_unit: 3 }
- key: path
  value: '/api/*'
  rate_limit: { unit: day, requests_per_unit: 1 }
  descriptors:
  - key: method
    rate_limit: { unlimited: true }
";

const LIMITS: &str = "
[policies.all]
quota = \"1000000/second\"
key = \"global\"
";

thread_local! {
    static SERVED: Served = serve();
}

fuzz_target!(|body: &[u8]| {
    let head = format!(
        "POST /json HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let answer = SERVED.with(|served| served.exchange(&[head.as_bytes(), body]));
    let (status, answer) = status(&answer);
    let asked: Option<Value> = serde_json::from_slice(body).ok();
    match status {
        200 | 429 => {
            let asked = asked.expect("what is no JSON is refused");
            let answer: Value = serde_json::from_slice(answer).expect("the answer is JSON");
            let count = |list: &Value| list.as_array().map_or(0, Vec::len);
            assert_eq!(count(&answer["statuses"]), count(&asked["descriptors"]));
            let is_over = |status: &Value| status["code"] == "OVER_LIMIT";
            let statuses = answer["statuses"].as_array();
            let one_is_over = statuses.is_some_and(|all| all.iter().any(is_over));
            assert_eq!(one_is_over, status == 429, "{answer}");
        }
        400 => assert!(!answer.is_empty(), "it says why"),
        other => panic!("{other}"),
    }
});

fn serve() -> Served {
    let folder = std::env::temp_dir().join(format!("ratelimitd-json-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    fs::write(folder.join("shop.yaml"), DESCRIPTORS).expect("the folder is there");
    let open = |builder: LimiterBuilder| builder.store(MemoryStore::new()).build();
    let limits = RateLimits::read(&folder, Options::default(), open).expect("the file is good");
    let _ = fs::remove_dir_all(&folder);
    let config = Config::builder()
        .parse(LIMITS, Format::Toml)
        .expect("the file is good");
    let layer = config.layer().expect("the file is good");
    let gateway = Gateway::new(Limits::Text { config, layer }, None).answer_descriptors(limits);
    Served::new("json", Answers::Gateway(gateway))
}

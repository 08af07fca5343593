//! The YAML files of Envoy's rate limit service: each mistake has words, and the tables that `import` writes decide alike.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ratelimitd::Limits;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use ratelimitd::ratelimit::{NoAnswer, Options, RateLimits, import, understood};
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::{ManualClock, MemoryStore, Micros};
use tower_ratelimit_config::{Config, DescriptorLimit, Format};

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("ratelimitd-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
});

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("it can be built");
}

fuzz_target!(|text: &[u8]| {
    fs::write(FOLDER.join("fuzz.yaml"), text).expect("the folder is there");
    let store = store();
    let open = move |builder: LimiterBuilder| builder.store(store.clone()).build();
    let limits = match RateLimits::read(&*FOLDER, Options::default(), open) {
        Ok(limits) => limits,
        Err(mistakes) => {
            assert!(!mistakes.to_string().trim().is_empty());
            assert!(understood(&FOLDER).is_err() || mistakes.to_string().contains("limit"));
            return;
        }
    };
    assert!(understood(&FOLDER).is_ok());
    let Ok(imported) = import(&FOLDER) else {
        return;
    };
    if !imported.warnings.is_empty() {
        return;
    }
    let config = Config::builder()
        .store(self::store())
        .parse(&imported.file, Format::Toml);
    let config = config.expect("it was read as it was written");
    let layer = config.layer().expect("it was read as it was written");
    let tables = config.descriptors();
    let config = Limits::Text { config, layer };
    let written = RateLimits::beside(&config, None, Options::default())
        .expect("it was read as it was written");
    for limit in tables.iter().take(20) {
        for _ in 0..2 {
            assert_eq!(
                ask(&limits, limit),
                ask(&written, limit),
                "{}",
                imported.file
            );
        }
    }
});

/// A store that begins at an hour, on a Thursday.
fn store() -> MemoryStore {
    MemoryStore::new().clock(ManualClock::at(Micros::new(1_788_998_400_000_000)))
}

fn ask(limits: &RateLimits, limit: &DescriptorLimit) -> Result<RateLimitResponse, NoAnswer> {
    let entry = |(key, value): (&str, Option<&str>)| Entry {
        key: key.to_owned(),
        value: value.unwrap_or("any").into(),
    };
    let asked = RateLimitRequest {
        domain: limit.domain().to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: limit.entries().map(entry).collect(),
            ..RateLimitDescriptor::default()
        }],
        ..RateLimitRequest::default()
    };
    let mut answer = RUNTIME.with(|runtime| runtime.block_on(limits.ask(asked, None)))?;
    for status in &mut answer.statuses {
        // A table has a period, and no multiple of a unit.
        if let Some(limit) = &mut status.current_limit {
            (limit.unit, limit.unit_multiplier) = (0, None);
        }
    }
    Ok(answer)
}

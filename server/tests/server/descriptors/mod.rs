//! The rate limit service of Envoy, by the files of `envoyproxy/ratelimit`.

pub(crate) mod calls;
mod charging;
mod import;
mod mistakes;
mod model;
mod tables;
mod vectors;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus,
};
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use ratelimitd::envoy::messages::envoy::r#type::v3::RateLimitUnit;
use ratelimitd::ratelimit::{Mistakes, NoAnswer, Options, RateLimits};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::{ManualClock, MemoryStore, Micros};

/// A Thursday, at 00:00:00 UTC: a week of theirs begins.
const START: u64 = 1_788_998_400;

/// A directory that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ratelimitd-descriptors-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Limits of one file, whose time the test moves.
struct Scene {
    folder: Folder,
    limits: RateLimits,
    clock: ManualClock,
}

impl Scene {
    fn new(file: &str) -> Self {
        Self::with(file, Options::default())
    }

    fn with(file: &str, options: Options) -> Self {
        let folder = Folder::of(&[("shop.yaml", file)]);
        let clock = ManualClock::at(Micros::new(START * 1_000_000));
        let store = MemoryStore::new().clock(clock.clone());
        let open = move |builder: LimiterBuilder| builder.store(store.clone()).build();
        let limits = RateLimits::read(folder.path(), options, open).unwrap();
        Self {
            folder,
            limits,
            clock,
        }
    }

    async fn ask(&self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        self.answer(request(descriptors)).await.unwrap()
    }

    async fn answer(&self, request: RateLimitRequest) -> Result<RateLimitResponse, NoAnswer> {
        self.limits.ask(request, None).await
    }

    /// Asks once for each number of hits, and returns whether each request passes.
    async fn pass<const N: usize>(
        &self,
        descriptor: &RateLimitDescriptor,
        hits: [u64; N],
    ) -> [bool; N] {
        let mut passed = [false; N];
        for (passed, hits) in passed.iter_mut().zip(hits) {
            let answer = self.ask(vec![descriptor.clone().at(hits)]).await;
            *passed = passes(&answer);
        }
        passed
    }

    async fn remaining(&self, descriptor: &RateLimitDescriptor) -> u32 {
        self.ask(vec![descriptor.clone().at(0)]).await.statuses[0].limit_remaining
    }
}

fn read(files: &[(&str, &str)]) -> Result<RateLimits, Mistakes> {
    let folder = Folder::of(files);
    RateLimits::read(folder.path(), Options::default(), LimiterBuilder::build)
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).into(),
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    }
}

/// Changes to a descriptor.
trait With {
    fn at(self, hits: u64) -> Self;
    fn under(self, requests: u32, unit: RateLimitUnit) -> Self;
}

impl With for RateLimitDescriptor {
    fn at(mut self, hits: u64) -> Self {
        self.hits_addend = Some(hits);
        self
    }

    fn under(mut self, requests: u32, unit: RateLimitUnit) -> Self {
        self.limit = Some(RateLimitOverride {
            requests_per_unit: requests,
            unit: unit.into(),
            unit_multiplier: None,
        });
        self
    }
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

fn passes(answer: &RateLimitResponse) -> bool {
    match answer.overall_code() {
        Code::Ok => true,
        Code::OverLimit => false,
        Code::Unknown => panic!("{answer:?}"),
    }
}

fn codes(answer: &RateLimitResponse) -> Vec<Code> {
    answer.statuses.iter().map(DescriptorStatus::code).collect()
}

fn header<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut headers = answer.response_headers_to_add.iter();
    let found = headers.find(|header| header.key.eq_ignore_ascii_case(name));
    found.map(|header| &*header.value)
}

fn until_reset(status: &DescriptorStatus) -> Duration {
    let reset = status.duration_until_reset.unwrap();
    Duration::from_secs(reset.seconds.try_into().unwrap())
}

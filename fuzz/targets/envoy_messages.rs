//! What Envoy sends over gRPC. The first byte says which service: `r` asks for the limits of descriptors, where each has a status and
//! the call is answered as the question is without gRPC; anything else asks for those of a request, which is denied with an answer.

#![no_main]

use std::cell::RefCell;
use std::fs;

use axum::Router;
use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use ratelimitd::envoy::messages::envoy::service::auth::v3::CheckResponse;
use ratelimitd::envoy::messages::envoy::service::auth::v3::check_response::HttpResponse;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use ratelimitd::phase::Phase;
use ratelimitd::ratelimit::{NoAnswer, Options, RateLimits};
use ratelimitd::{Gateway, Limits, envoy};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tower::ServiceExt;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::{ManualClock, MemoryStore, Micros};
use tower_ratelimit_config::{Config, Format};

const DESCRIPTORS: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: { unit: hour, requests_per_unit: 3 }
- key: tenant
  value: gold
  rate_limit: { unit: minute, requests_per_unit: 5, name: gold, replaces: [{ name: any }] }
- key: path
  value: '/api/*'
  rate_limit: { unit: day, requests_per_unit: 1 }
  descriptors:
  - key: method
    rate_limit: { unlimited: true }
";

const LIMITS: &str = "
[proxies]
networks = [\"10.0.0.0/8\"]
header = \"x-forwarded-for\"
[policies.address]
quota = \"3/hour\"
key = \"client_ip\"
[policies.tenant]
quota = \"2/hour\"
key = { header = \"x-tenant\" }
when = { path = \"/api/*\" }
[policies.model]
quota = \"2/hour\"
key = { json = \"model\" }
";

/// Twice the same limits of descriptors, one asked over gRPC, and the clock of both.
struct Scene {
    runtime: Runtime,
    clock: ManualClock,
    direct: RateLimits,
    service: RefCell<Router>,
    _phase: watch::Sender<Phase>,
}

thread_local! {
    static SCENE: Scene = Scene::new();
}

fuzz_target!(|bytes: &[u8]| {
    let Some((service, message)) = bytes.split_first() else {
        return;
    };
    SCENE.with(|scene| {
        // Every window begins anew.
        scene
            .clock
            .advance(std::time::Duration::from_secs(7 * 86_400));
        if *service == b'r' {
            scene.rate_limit(message);
        } else {
            scene.check(message);
        }
    });
});

impl Scene {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("ratelimitd-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        fs::write(folder.join("shop.yaml"), DESCRIPTORS).expect("the folder is there");
        let clock = ManualClock::at(Micros::new(1_788_998_400_000_000));
        let read = || {
            let store = MemoryStore::new().clock(clock.clone());
            let open = move |builder: LimiterBuilder| builder.store(store.clone()).build();
            RateLimits::read(&folder, Options::default(), open).expect("the file is good")
        };
        let (direct, limits) = (read(), read());
        let _ = fs::remove_dir_all(&folder);
        let store = MemoryStore::new().clock(clock.clone());
        let config = Config::builder()
            .store(store)
            .parse(LIMITS, Format::Toml)
            .expect("the file is good");
        let layer = config.layer().expect("the file is good");
        let gateway = Gateway::new(Limits::Text { config, layer }, None).answer_descriptors(limits);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("it can be built");
        let phase = watch::Sender::new(Phase::Ready);
        let service = runtime.block_on(async {
            envoy::router(gateway, phase.subscribe()).expect("it can be built")
        });
        Self {
            runtime,
            clock,
            direct,
            service: RefCell::new(service),
            _phase: phase,
        }
    }

    fn rate_limit(&self, message: &[u8]) {
        let answer = self.call(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            message,
        );
        let Ok(asked) = RateLimitRequest::decode(message) else {
            assert!(answer.is_err(), "this is no question");
            return;
        };
        let descriptors = asked.descriptors.len();
        let direct = self.runtime.block_on(self.direct.ask(asked, None));
        match (direct, answer) {
            (Ok(direct), Ok(answer)) => {
                let answer = RateLimitResponse::decode(answer).expect("it is an answer");
                assert_eq!(direct, answer);
                assert_eq!(answer.statuses.len(), descriptors);
                assert_ne!(answer.overall_code(), Code::Unknown);
                let is_over = answer
                    .statuses
                    .iter()
                    .any(|status| status.code() == Code::OverLimit);
                assert_eq!(is_over, answer.overall_code() == Code::OverLimit);
            }
            (Err(NoAnswer::Invalid(_)), Err(code)) => assert_eq!(code, "3"),
            (direct, answer) => panic!("{direct:?}, and over gRPC {answer:?}"),
        }
    }

    fn check(&self, message: &[u8]) {
        let answer = self.call("/envoy.service.auth.v3.Authorization/Check", message);
        let Ok(answer) = answer else { return };
        let answer = CheckResponse::decode(answer).expect("it is an answer");
        let passes = answer.status.is_none_or(|status| status.code == 0);
        match answer.http_response {
            Some(HttpResponse::DeniedResponse(denied)) => {
                let status = denied.status.map_or(0, |status| status.code);
                assert!(!passes && (400..600).contains(&status), "{status}");
            }
            Some(HttpResponse::OkResponse(_)) | None => assert!(passes),
        }
    }

    /// Returns the message of the answer, or the code of gRPC.
    fn call(&self, path: &str, message: &[u8]) -> Result<Bytes, String> {
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).expect("it is short"));
        framed.put_slice(message);
        let request = Request::post(path)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let request = request
            .body(Body::from(framed.freeze()))
            .expect("it is one");
        let service = self.service.borrow().clone();
        self.runtime.block_on(async {
            let response = service.oneshot(request).await.expect("it is answered");
            let early = response.headers().get("grpc-status").cloned();
            let collected = response
                .into_body()
                .collect()
                .await
                .expect("it has no errors");
            let late = collected
                .trailers()
                .and_then(|trailers| trailers.get("grpc-status"))
                .cloned();
            let code = early.or(late).expect("each call has a code");
            match code.to_str().expect("it is a number") {
                "0" => Ok(collected.to_bytes().slice(5..)),
                code => Err(code.to_owned()),
            }
        })
    }
}

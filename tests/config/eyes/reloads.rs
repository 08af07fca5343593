//! Counts go on over a reload.

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::RateLimitLayer;
use tower_ratelimit_config::Config;

struct File(PathBuf);

impl File {
    fn new(text: &str) -> Self {
        let name = format!("eyes-{}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn policy(name: &str, limit: u32) -> String {
    format!("[policies.{name}]\nquota = \"{limit}/day\"\nkey = \"global\"\n")
}

fn send(layer: &RateLimitLayer) {
    let handler = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answer = layer.layer(handler).oneshot(Request::new(Body::empty()));
    runtime.block_on(answer).unwrap();
}

#[test]
fn counts_go_on_over_a_reload_and_its_state_is_told() {
    let file = File::new(&(policy("a", 2) + &policy("gone", 9)));
    let watched = Config::read(&file.0).unwrap().watch().unwrap();
    let layer = watched.layer();
    let monitor = layer.monitor();
    let since = monitor.snapshot().since;
    (0..3).for_each(|_| send(&layer));

    // A handle of the limits before, like a request that began before the reload.
    let before = layer.limiter();
    for limit in 4..=6 {
        file.write(&(policy("new", 100) + &policy("a", limit)));
        watched.reload().unwrap();
        send(&layer);
    }
    let told = || {
        let snapshot = monitor.snapshot();
        let a = snapshot.policy("a").unwrap();
        let new = snapshot.policy("new").unwrap();
        (a.allowed, a.refused, new.allowed, snapshot.requests.allowed)
    };
    assert_eq!(told(), (5, 1, 3, 5));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let charged = runtime.block_on(
        before
            .named([("gone", "x", 1), ("a", "x", 1)])
            .unwrap()
            .check()
            .into_future(),
    );
    assert!(charged.unwrap().is_allowed());
    assert_eq!(told(), (6, 1, 3, 6));
    drop(before);
    assert_eq!(told(), (6, 1, 3, 6));

    let snapshot = monitor.snapshot();
    assert_eq!(snapshot.since, since);
    assert!(snapshot.policy("gone").is_none());
    assert_eq!(snapshot.policy("a").unwrap().limit, Some(6));
    let configuration = snapshot.configuration.as_ref().unwrap();
    assert_eq!(
        (configuration.version, configuration.error.as_deref()),
        (4, None)
    );

    file.write("[policies.a]\nquota = \"many/day\"\nkey = \"global\"\n");
    watched.reload().unwrap_err();
    let snapshot = monitor.snapshot();
    let configuration = snapshot.configuration.as_ref().unwrap();
    assert_eq!(configuration.version, 4);
    assert!(
        configuration
            .error
            .as_ref()
            .unwrap()
            .contains("policies.a.quota")
    );
    assert_eq!(configuration.sha256, watched.status().sha256());
}

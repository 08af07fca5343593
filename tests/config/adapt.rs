//! Limits that follow the load, from the file.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Request;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::factor::Factor;
use tower_ratelimit_adapt::Traffic;
use tower_ratelimit_config::{Config, Format};

use crate::scene::{config, get, layer, mistakes, now, send, told};

/// Returns a closure that returns this load in percent.
fn from(percent: &Arc<AtomicU32>) -> impl Fn() -> Option<f64> + Send + Sync + 'static {
    let percent = Arc::clone(percent);
    move || Some(f64::from(percent.load(Ordering::Relaxed)) / 100.0)
}

const POLICY: &str = "
[policies.api]
quota = \"100/minute\"
key = \"global\"
adapt = true
";

fn quota(config: &Config) -> String {
    told(config, get("/"))
}

#[test]
fn limits_follow_a_signal_that_code_has_registered() {
    let percent = Arc::new(AtomicU32::new(20));
    let text = format!(
        "[adapt]\nsignals = \"queue\"\nimmediate = true\nsteps = [\n{}\n{}\n]\n{POLICY}",
        "{ signals = \"queue\", above = 90, limit = 10 },",
        "{ signals = [\"queue\"], above = 50, limit = 75 },"
    );
    let builder = Config::builder().signal("queue", from(&percent));
    let config = builder.parse(&text, Format::Toml).unwrap();
    let adapt = config.adapt().unwrap();
    for (load, limit) in [(20, 100), (50, 100), (51, 75), (91, 10), (10, 100)] {
        percent.store(load, Ordering::Relaxed);
        adapt.sample();
        assert_eq!(
            quota(&config),
            format!("\"api\";q={limit};w=60"),
            "{load} %"
        );
    }
}

#[test]
fn a_target_a_gradient_and_steps_together_let_the_most_cautious_decide() {
    let percent = Arc::new(AtomicU32::new(150));
    let text = format!(
        "[adapt]\nsignals = [\"cpu\", \"queue\"]\ntargets = {{ queue = 80 }}\ngradients = \"queue\"\n\
         least = 30\nmost = 500\n{POLICY}"
    );
    let builder = Config::builder().signal("queue", from(&percent));
    let config = builder.parse(&text, Format::Toml).unwrap();
    let adapt = config.adapt().unwrap();
    assert_eq!(adapt.factor().least().get(), 300);
    assert_eq!(adapt.factor().most().get(), 5_000);
    adapt.sample();
    assert!(adapt.factor().get().get() < 1_000, "{adapt:?}");
    assert!(adapt.explain().cause().unwrap().starts_with("queue 150 %"));
}

#[test]
fn traffic_and_its_targets_are_signals() {
    let text = format!(
        "[adapt]\nsignals = \"failures\"\nlatency = \"200ms\"\nin_flight = 500\n\
         targets = {{ latency = 100, \"in flight\" = 100, failures = 20 }}\n{POLICY}"
    );
    let builder = Config::builder().traffic(&Traffic::new());
    let config = builder.parse(&text, Format::Toml).unwrap();
    config.adapt().unwrap().sample();
    let loads = config.adapt().unwrap().loads();
    let names: Vec<_> = loads.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["failures", "latency", "in flight"]);
}

#[test]
fn a_class_is_that_of_the_first_rule_that_holds() {
    let text = format!(
        "[adapt]\nsignals = \"cpu\"\nimmediate = true\n{POLICY}class = [\n\
         {{ class = \"critical_plus\", when = {{ path = \"/checkout\" }} }},\n\
         {{ class = \"sheddable_plus\", when = {{ path = \"/hints\" }} }},\n\"critical\"]\n"
    );
    // The file names the kernel's signal; the test sets its readings by hand.
    let config: Config = text.parse().unwrap();
    let factor = config.adapt().unwrap().factor();
    factor.set(Factor::thousandths(500), "a test");
    for (path, left) in [("/checkout", 99), ("/", 98), ("/hints", 96)] {
        let layer = layer(&config);
        assert!(send(&layer, get(path)).limits.is_some());
        factor.set(Factor::ONE, "");
        let limits = send(&layer, get("/checkout")).limits.unwrap();
        assert!(
            limits.starts_with(&format!("\"api\";r={};", left - 1)),
            "{path}: {limits}"
        );
        factor.set(Factor::thousandths(500), "a test");
    }
}

#[test]
fn mistakes_have_their_line_and_say_what_would_be_right() {
    let text = "\
[adapt]
signals = [\"cpu\", \"memroy\"]
least = 0
latency = \"200ms\"
targets = { quue = 80 }
[policies.api]
quota = \"100/minute\"
key = \"global\"
adapt = true
class = \"criticl\"
key_limits = { other = 5 }
[policies.other]
quota = \"100/minute\"
key = \"global\"
class = \"critical\"
";
    let told = mistakes(text);
    let expected = [
        "<text>:3:9: adapt.least: 0 % cannot be; give a whole number of percent from 1 to 100",
        "<text>:10:9: policies.api.class: \"criticl\" is unknown; did you mean \"critical\"? Known are critical_plus, critical, sheddable_plus, sheddable",
        "<text>:11:14: policies.api.key_limits: `key_limits` contradicts `adapt` (line 9); leave one of them",
        "<text>:15:9: policies.other.class: `adapt` is missing; a class matters to policies that follow the load",
    ];
    for line in expected {
        assert!(told.iter().any(|told| told == line), "{line}\nin {told:#?}");
    }
    for (adapt, mistake) in [
        (
            "signals = [\"memroy\"]",
            "<text>:2:12: adapt.signals[0]: signal \"memroy\" is unknown; did you mean \"memory\"?",
        ),
        (
            "latency = \"200ms\"\ntargets = { latency = 100 }",
            "<text>:2:11: adapt.latency: code has registered no traffic to look at; register it with `.traffic(&traffic)`",
        ),
        (
            "signals = \"cpu\"\ntargets = { quue = 80 }",
            "<text>:3:20: adapt.targets.quue: signal \"quue\" is unknown",
        ),
        (
            "answer_time = \"20ms\"\ntargets = { store = 100 }",
            "<text>:2:15: adapt.answer_time: the file has no store in Redis",
        ),
        ("least = 10", "<text>:1:1: adapt: no signal is named"),
        (
            "signals = \"io pressure\"",
            "<text>:1:1: adapt: the standard steps are about `cpu` and `memory`",
        ),
    ] {
        let told = mistakes(&format!("[adapt]\n{adapt}\n{POLICY}"));
        assert!(told[0].starts_with(mistake), "{mistake}\nin {told:#?}");
    }
    let told = mistakes(POLICY);
    assert!(
        told[0].contains("the file has no table [adapt]"),
        "{told:?}"
    );
}

#[test]
fn an_adaptive_concurrency_is_a_layer_of_the_file() {
    assert!(
        config("[policies.a]\nquota = \"1/day\"\nkey = \"global\"")
            .concurrency()
            .is_none()
    );
    let word = config(&format!(
        "concurrency = \"adaptive\"\n[adapt]\nsignals = \"cpu\"\n{POLICY}"
    ));
    assert_eq!(word.concurrency().unwrap().concurrency().limit(), 20);

    let text = "
[concurrency]
start = 2
most = 2
healthy = \"200ms\"
except = { path = \"/health\" }
refusal_status = 429
partitions.checkout = { share = 50, when = { path = \"/checkout\" } }
[policies.a]
quota = \"9/day\"
key = \"global\"
";
    let config = config(text);
    let layer = config.concurrency().unwrap().clone();
    let hello = service_fn(|_: Request<()>| async {
        let body = http_body_util::Full::<bytes::Bytes>::from("hello");
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let service = layer.layer(hello);
    let ask = |path: &str| {
        let request = Request::get(path).body(()).unwrap();
        now(service.clone().oneshot(request)).unwrap()
    };
    let _held = [ask("/"), ask("/")];
    assert_eq!(ask("/").status(), 429);
    assert_eq!(ask("/checkout").status(), 200);
    assert_eq!(ask("/health").status(), 200);

    for (wrong, mistake) in [
        (
            "concurrency = \"adaptve\"",
            "<text>:1:15: concurrency: \"adaptve\" is unknown; did you mean \"adaptive\"?",
        ),
        (
            "concurrency = { start = 0 }",
            "<text>:1:15: concurrency: `start` cannot be 0: give at least `least`",
        ),
        (
            "concurrency = { refusal_status = 500 }",
            "<text>:1:34: concurrency.refusal_status: 500 is no status for it; give 503 or 429",
        ),
    ] {
        let told = mistakes(&format!(
            "{wrong}\n[policies.a]\nquota = \"9/day\"\nkey = \"global\""
        ));
        assert!(told[0].starts_with(mistake), "{mistake}\nin {told:#?}");
    }
}

/// A file that is read again keeps the factor that is sampled.
#[test]
fn a_reload_keeps_the_factor_and_refuses_another_table() {
    let percent = Arc::new(AtomicU32::new(95));
    let path = std::env::temp_dir().join(format!("adapt-{}.toml", std::process::id()));
    let file = |limit: u32, least: u32| {
        format!(
            "[adapt]\nsignals = \"queue\"\nimmediate = true\nleast = {least}\n\
             steps = [{{ signals = \"queue\", above = 90, limit = 50 }}]\n\
             [policies.api]\nquota = \"{limit}/minute\"\nkey = \"global\"\nadapt = true\n"
        )
    };
    fs::write(&path, file(100, 10)).unwrap();
    let builder = Config::builder().signal("queue", from(&percent));
    let config = builder.read(&path).unwrap();
    let watched = config.watch().unwrap();
    let adapt = config.adapt().unwrap();
    adapt.sample();
    let told = || send(&watched.layer(), get("/")).policies.unwrap();
    assert_eq!(told(), "\"api\";q=50;w=60");

    fs::write(&path, file(200, 10)).unwrap();
    watched.reload().unwrap();
    assert_eq!(told(), "\"api\";q=100;w=60");
    // The factor and its task are the same as before.
    percent.store(10, Ordering::Relaxed);
    adapt.sample();
    assert_eq!(told(), "\"api\";q=200;w=60");

    fs::write(&path, file(200, 20)).unwrap();
    let error = watched.reload().unwrap_err().to_string();
    fs::remove_file(&path).unwrap();
    assert!(error.contains("adapt"), "{error}");
}

#[test]
fn the_load_that_limits_follow_is_shown_with_the_policies() {
    let text = format!("[adapt]\nsignals = [\"cpu\", \"memory\"]\nleast = 20\n{POLICY}");
    assert_eq!(
        config(&text).understood().to_string(),
        "api      anchored-window 100/minute                            policy  line 6\n\
         [adapt]  20 % to 100 % of limits with `adapt`, by cpu, memory          line 1\n"
    );
}

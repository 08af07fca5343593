//! Bugs of other limiters that read a file.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tower_ratelimit::FixedWindow;
use tower_ratelimit_config::{Config, Format};

use crate::folder::Folder;
use crate::scene::{config, get, layer, send};

/// A debounce that kept only the last name of a file lost the other one.
#[test]
fn two_files_that_change_together_are_both_followed() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let folder = Folder::new("together");
    let next = folder.path().join("next.toml");
    let policy = |limit: u64| format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
    let write = |limit: u64| {
        fs::write(
            folder.file(),
            format!("shadow = \"next.toml\"\n{}", policy(limit)),
        )
        .unwrap();
        fs::write(&next, policy(limit + 1)).unwrap();
    };
    write(1);
    let watched = {
        let _entered = runtime.enter();
        // By events alone.
        let config = Config::read(folder.file()).unwrap();
        config.watch_every(Duration::from_secs(3_600)).unwrap()
    };
    for version in 2..5 {
        write(version);
        let begun = Instant::now();
        let versions = || {
            let shadow = watched.shadow().unwrap();
            (
                watched.status().version(),
                shadow.status().unwrap().version(),
            )
        };
        while versions() != (version, version) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{:?}",
                versions()
            );
            thread::yield_now();
        }
    }
}

/// Limits changed while a candidate was still being built.
#[test]
fn a_file_with_a_mistake_at_its_end_has_no_effect_at_all() {
    let folder = Folder::new("effects");
    let good = "[policies.a]\nquota = \"1/day\"\nkey = \"global\"\n";
    fs::write(folder.file(), good).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    assert_eq!(send(&watched.layer(), get("/")).status, 200);
    for bad in [
        format!("mode = \"off\"\n{good}[policies.b]\nquota = 5"),
        format!("shadow = \"next.toml\"\n{good}[policies.b]\nquota = 5"),
        format!(
            "[lists]\nexempt_paths = [\"/\"]\n{}[policies.b]\nquota = 5",
            good.replace("1/day", "9/day")
        ),
        format!("mode = \"off\"\n{good}quota = \"9/day\""),
    ] {
        fs::write(folder.file(), &bad).unwrap();
        assert!(watched.reload().is_err(), "{bad}");
        let answer = send(&watched.layer(), get("/"));
        assert_eq!(answer.status, 429, "{bad}");
        assert_eq!(answer.policies.unwrap(), "\"a\";q=1;w=86400");
        assert!(watched.shadow().is_none());
    }
}

/// Two policies of equal text shared a counter.
#[test]
fn policies_of_equal_text_have_states_of_their_own() {
    let text = "quota = \"2/day\"\nkey = \"global\"\n";
    let config = config(&format!(
        "[policies.a]\n{text}when = {{ path = \"/a\" }}\n[policies.b]\n{text}when = {{ path = \"/b\" }}\n"
    ));
    let layer = layer(&config);
    for path in ["/a", "/b"] {
        let statuses: Vec<u16> = (0..3).map(|_| send(&layer, get(path)).status).collect();
        assert_eq!(statuses, [200, 200, 429], "{path}");
    }
}

/// 0 was "no limit" in one store, and "nothing" in another.
#[test]
fn a_limit_of_0_denies_and_unlimited_is_a_word() {
    let statuses = |says: &str| {
        let config = config(&format!("[policies.a]\nkey = \"global\"\n{says}\n"));
        let layer = layer(&config);
        [(); 3].map(|()| send(&layer, get("/")).status)
    };
    for says in [
        "quota = \"0/day\"",
        "limit = 0\nper = \"day\"",
        "concurrency = 0",
    ] {
        assert_eq!(statuses(says), [429; 3], "{says}");
    }
    assert_eq!(statuses("algorithm = \"unlimited\""), [200; 3]);
}

/// A limit that came with the request switched the shadow off.
#[test]
fn a_policy_in_shadow_stays_so_whatever_gives_the_limit() {
    let text = "[policies.a]\nalgorithm = \"fixed-window\"\nquota = \"5/day\"\nkey = { header = \"x-id\" }\nmode = \"shadow\"\n";
    let builder = Config::builder().limit_by("one", |_| Some(FixedWindow::per_day(1)));
    for limit in [
        "quota = \"1/day\"",
        "key_limits = { keys = { ann = 1 } }",
        "limit_by = { function = \"one\" }",
        "operation = \"method\"\noperations = { GET = 1 }",
        "[plans.free]\na = 1",
    ] {
        let mut text = format!("{text}{limit}\n");
        if limit.starts_with("quota") {
            text = text.replace("quota = \"5/day\"\n", "");
        }
        if limit.starts_with("[plans") {
            text = format!(
                "default_plan = \"free\"\nplan_of = {{ header = \"x-plan\", from = \"10.0.0.0/8\" }}\n{text}"
            );
        }
        let config = builder.parse(&text, Format::Toml).unwrap();
        let layer = layer(&config);
        for _ in 0..3 {
            let answer = send(&layer, get("/").header("x-id", "ann"));
            assert_eq!((answer.status, answer.policies), (200, None), "{limit}");
        }
        let snapshot = layer.monitor().snapshot();
        assert_eq!(snapshot.policy("a").unwrap().shadow_refused, 2, "{limit}");
    }
}

/// The algorithm in the file was replaced by another one with the same quota.
#[test]
fn a_policy_with_the_quota_of_its_other_operations_has_the_algorithm_that_it_says() {
    let text = "[policies.a]\nkey = \"global\"\nalgorithm = \"token-bucket\"\nburst = 7\noperation = \"method\"\n\
                operations = { GET = \"token-bucket 5/second burst 9\", other = \"1/second\" }";
    let understood = config(text).understood().to_string();
    assert_eq!(
        understood,
        "a  token-bucket 1/second burst 7  policy  line 3\n"
    );
}

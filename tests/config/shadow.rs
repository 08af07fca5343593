//! A whole file in shadow decides beside the file in force, and its differences are reported.

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::Difference;
use tower_ratelimit::plan::{Resolved, Resolver};
use tower_ratelimit::{MemoryStore, RateLimitLayer};
use tower_ratelimit_config::{Config, ShadowStatus, Status, Watched};

use crate::folder::Folder;
use crate::scene::{Received, get, now, send, sent};
use crate::support::tokio_clock::TokioClock;

fn policy(name: &str, limit: u32) -> String {
    format!("[policies.{name}]\nquota = \"{limit}/day\"\nkey = \"global\"\n")
}

/// Returns the file in force, which names `next.toml`.
fn live(limit: u32) -> String {
    format!("shadow = \"next.toml\"\n{}", policy("a", limit))
}

fn next(folder: &Folder) -> PathBuf {
    folder.file().with_file_name("next.toml")
}

/// Returns a folder with both files, and the layer of the one in force.
fn both(name: &str, live: &str, shadow: &str) -> (Folder, Watched) {
    let folder = Folder::new(&format!("shadow-{name}"));
    fs::write(folder.file(), live).unwrap();
    fs::write(next(&folder), shadow).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    (folder, watched)
}

fn statuses(layer: &RateLimitLayer, requests: usize) -> Vec<u16> {
    let answers = (0..requests).map(|_| send(layer, get("/")).status);
    answers.collect()
}

fn shadow(watched: &Watched) -> ShadowStatus {
    watched.shadow().expect("a file in shadow")
}

/// Returns the number of requests that were compared, would be refused, and would be allowed.
fn counts(watched: &Watched) -> (u64, u64, u64) {
    let shadow = shadow(watched);
    (
        shadow.compared(),
        shadow.would_refuse(),
        shadow.would_allow(),
    )
}

#[test]
fn it_refuses_nothing_tells_clients_nothing_and_charges_only_its_own_state() {
    let (_folder, watched) = both("tells", &live(3), &policy("a", 1));
    let without: Config = policy("a", 3).parse().unwrap();
    let without = without.layer().unwrap();
    for number in 0..4 {
        // Without the times, which change.
        let told = |answer: Received| {
            let mut names: Vec<String> = answer
                .head
                .headers
                .keys()
                .map(ToString::to_string)
                .collect();
            names.sort();
            let limits = answer
                .limits
                .and_then(|limits| Some(limits.split_once(";t=")?.0.to_owned()));
            (answer.status, answer.policies, limits, names)
        };
        let beside = told(send(&watched.layer(), get("/")));
        assert_eq!(beside, told(send(&without, get("/"))), "request {number}");
    }
    assert_eq!(counts(&watched), (4, 2, 0));
    let shadow = shadow(&watched);
    let differences: Vec<String> = shadow
        .differences()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(differences, ["GET /: refused in shadow by a"; 2]);
    let decision = shadow.differences()[0].decision.as_ref().unwrap();
    assert_eq!(decision.binding().unwrap().1.limit(), 1);
    assert!(shadow.to_string().contains("of 4 requests"), "{shadow}");
}

/// What it has counted under the old secret would be forgotten, and a difference that is none be told.
#[test]
fn it_hashes_keys_as_before_when_its_secret_was_rotated() {
    let folder = Folder::new("shadow-rotated");
    let secret = folder.file().with_file_name("secret");
    fs::write(&secret, "0123456789abcdef").unwrap();
    let policy = "[policies.a]\nquota = \"1/day\"\nkey = \"bearer_token\"\n";
    let hashing = format!("secret = {{ file = {secret:?} }}\n{policy}");
    fs::write(folder.file(), format!("shadow = \"next.toml\"\n{hashing}")).unwrap();
    fs::write(next(&folder), &hashing).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let send = || {
        send(
            &watched.layer(),
            get("/").header("authorization", "Bearer k3y"),
        )
        .status
    };
    assert_eq!(send(), 200);
    fs::write(&secret, "another-0123456789").unwrap();
    fs::write(next(&folder), format!("{hashing}# changed\n")).unwrap();
    let version = watched.reload_shadow().unwrap();
    assert_eq!(version.status().map(Status::version), Some(2));
    assert_eq!(send(), 429);
    assert_eq!(counts(&watched), (2, 0, 0));
}

#[test]
fn a_request_that_it_would_allow_is_a_difference_of_the_response() {
    let (_folder, watched) = both("allows", &live(1), &policy("a", 5));
    let answers: Vec<Received> = (0..2)
        .map(|_| send(&watched.layer(), get("/search?q=secret")))
        .collect();
    let found = |answer: &Received| answer.head.extensions.get::<Difference>().cloned();
    assert!(found(&answers[0]).is_none());
    let difference = found(&answers[1]).unwrap();
    assert!(!difference.would_refuse);
    assert_eq!(
        difference.to_string(),
        "GET /search: allowed in shadow, and refused by a"
    );
    assert_eq!(counts(&watched), (2, 0, 1));
}

/// Returns the extensions that the handler sees.
fn found(layer: &RateLimitLayer) -> Option<Difference> {
    let service = layer.layer(service_fn(async |request: Request<()>| {
        let mut response = Response::new(Full::<Bytes>::default());
        let found: Option<Difference> = request.extensions().get().cloned();
        response.extensions_mut().insert(found);
        Ok::<_, Infallible>(response)
    }));
    let response = now(service.oneshot(get("/").body(()).unwrap())).unwrap();
    let found = response.extensions().get::<Option<Difference>>();
    found.cloned().unwrap()
}

#[test]
fn a_request_that_it_would_refuse_is_marked_for_the_handler() {
    let (_folder, watched) = both("marked", &live(9), &policy("b", 1));
    assert!(found(&watched.layer()).is_none());
    let difference = found(&watched.layer()).unwrap();
    assert!(difference.would_refuse);
    assert_eq!(difference.decision.unwrap().binding().unwrap().0, "b");
}

#[test]
fn it_comes_along_when_its_layer_is_made_replaceable_and_when_it_is_put() {
    let (folder, _) = both("along", &live(9), &policy("b", 1));
    let config = Config::read(folder.file()).unwrap();
    let (layer, _swap) = config.layer().unwrap().replaceable();
    assert!(found(&layer).is_none());
    assert!(found(&layer).unwrap().would_refuse);

    let alone: Config = policy("a", 9).parse().unwrap();
    let (layer, swap) = alone.layer().unwrap().replaceable();
    assert!(found(&layer).is_none());
    swap.put(&config.layer().unwrap());
    assert!(found(&layer).unwrap().would_refuse);
}

#[test]
fn lists_and_missing_keys_are_compared_too() {
    let denies = format!(
        "[lists]\nallow = {{ path = \"/free\" }}\ndeny = {{ path = \"/gone\" }}\n{}",
        policy("a", 9).replace("\"global\"", "{ header = \"x-id\" }\non_missing_key = 401")
    );
    let (_folder, watched) = both("lists", &live(9), &denies);
    let layer = watched.layer();
    send(&layer, get("/free"));
    send(&layer, get("/gone"));
    send(&layer, get("/keyless"));
    send(&layer, get("/").header("x-id", "ann"));
    let shadow = shadow(&watched);
    let differences = shadow.differences().iter();
    let paths: Vec<&str> = differences.map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/gone", "/keyless"]);
    let mut differences = shadow.differences().iter();
    assert!(differences.all(|difference| difference.decision.is_none()));
    assert_eq!(counts(&watched), (4, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_for_lack_of_a_plan_is_compared() {
    let resolver = Resolver::new(|_: String| async { Err::<Resolved, _>("away") });
    let customer = |head: &Head<'_>| head.header("x-id").map(str::to_owned);
    let builder = Config::builder().resolver("customers", resolver, customer);
    let refuses = |begin: &str| {
        format!(
            "{begin}default_plan = \"free\"\n\
             resolver = {{ function = \"customers\", refuse_unresolved = true }}\n\
             {}[plans.free]\na = 9\n",
            policy("a", 9)
        )
    };
    let both = |name: &str, live: &str, shadow: &str| {
        let folder = Folder::new(&format!("shadow-{name}"));
        fs::write(folder.file(), live).unwrap();
        fs::write(next(&folder), shadow).unwrap();
        (
            builder.read(folder.file()).unwrap().watch().unwrap(),
            folder,
        )
    };
    let answer = async |watched: &Watched| {
        let answer = sent(&watched.layer(), get("/").header("x-id", "ann")).await;
        answer.status
    };

    let (in_shadow, _folder) = both("unresolved", &live(9), &refuses(""));
    // The lookup takes time, and a wait is not compared.
    assert_eq!(answer(&in_shadow).await, 200);
    assert_eq!(counts(&in_shadow), (0, 0, 0));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(answer(&in_shadow).await, 200);
    assert_eq!(counts(&in_shadow), (1, 1, 0));
    let shadow = shadow(&in_shadow);
    let differences = shadow.differences();
    assert!(differences[0].would_refuse && differences[0].decision.is_none());

    let refuses = refuses("shadow = \"next.toml\"\n");
    let (in_force, _folder) = both("resolved", &refuses, &policy("a", 9));
    assert_eq!(answer(&in_force).await, 503);
    assert_eq!(counts(&in_force), (1, 0, 1));
}

#[test]
fn the_last_hundred_differences_are_kept() {
    let (_folder, watched) = both("hundred", &live(1_000), &policy("a", 0));
    for number in 0..150 {
        send(&watched.layer(), get(&format!("/{number}")));
    }
    let long = format!("/{}", "x".repeat(10_000));
    send(&watched.layer(), get(&long));
    let shadow = shadow(&watched);
    assert_eq!(shadow.would_refuse(), 151);
    let kept = shadow.differences();
    assert_eq!((kept.len(), kept[0].path.as_str()), (100, "/51"));
    assert_eq!(kept[99].path.len(), 256);
}

#[test]
fn changes_of_both_files_are_followed_and_what_was_used_stays_used() {
    let (folder, watched) = both("followed", &live(9), &policy("a", 2));
    statuses(&watched.layer(), 3);
    assert_eq!(counts(&watched), (3, 1, 0));
    // The file in force changes, and the other goes on.
    fs::write(folder.file(), live(8)).unwrap();
    watched.reload().unwrap();
    statuses(&watched.layer(), 1);
    assert_eq!(counts(&watched), (4, 2, 0));
    // Two of three are used.
    fs::write(next(&folder), policy("a", 3)).unwrap();
    watched.reload_shadow();
    assert_eq!(shadow(&watched).status().unwrap().version(), 2);
    statuses(&watched.layer(), 2);
    assert_eq!(counts(&watched), (6, 3, 0));
    // A policy that comes back finds what it has used.
    for (name, compared, refused) in [("b", 7, 3), ("a", 8, 4)] {
        fs::write(next(&folder), policy(name, 3)).unwrap();
        watched.reload_shadow();
        statuses(&watched.layer(), 1);
        assert_eq!(counts(&watched), (compared, refused, 0), "{name}");
    }
    // It comes into force, and its state in shadow ends with it.
    fs::rename(next(&folder), folder.file()).unwrap();
    watched.reload().unwrap();
    assert!(watched.shadow().is_none());
    assert_eq!(statuses(&watched.layer(), 1), [429]);
}

#[test]
fn a_file_in_shadow_that_is_written_anew_is_followed_without_a_reload() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let (folder, watched) = both("events", &live(9), &policy("a", 2));
    let moved = folder.file().with_file_name("moved");
    fs::write(&moved, policy("a", 3)).unwrap();
    fs::rename(moved, next(&folder)).unwrap();
    let begun = std::time::Instant::now();
    while shadow(&watched).status().unwrap().version() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

#[test]
fn a_bad_file_in_shadow_is_told_and_does_not_concern_the_one_in_force() {
    let (folder, watched) = both("bad", &live(2), "[policies.a]\nquota = 5\n");
    assert_eq!(statuses(&watched.layer(), 1), [200]);
    let bad = shadow(&watched);
    assert!(bad.status().is_none());
    let error = bad.error().unwrap().to_string();
    assert!(error.contains("next.toml:2:9: policies.a.quota"), "{error}");
    assert!(bad.to_string().contains("the newest file is refused"));
    assert_eq!(bad.compared(), 0);
    let told = watched.layer().monitor().snapshot();
    assert!(told.shadow.unwrap().error.is_some());

    fs::write(next(&folder), policy("a", 0)).unwrap();
    watched.reload_shadow();
    assert!(shadow(&watched).error().is_none());
    assert_eq!(statuses(&watched.layer(), 1), [200]);
    assert_eq!(counts(&watched), (1, 1, 0));

    // It decides as before while its newest version is invalid or missing.
    for bad in [Some("nonsense"), None] {
        match bad {
            Some(bad) => fs::write(next(&folder), bad).unwrap(),
            None => fs::remove_file(next(&folder)).unwrap(),
        }
        watched.reload_shadow();
        let shadow = shadow(&watched);
        assert!(shadow.error().is_some(), "{bad:?}");
        assert_eq!(shadow.status().unwrap().version(), 1);
    }
    assert_eq!(statuses(&watched.layer(), 1), [429]);
    assert_eq!(counts(&watched), (2, 1, 0));
}

#[test]
fn a_file_that_names_itself_is_refused_and_a_text_has_none() {
    let folder = Folder::new("shadow-itself");
    fs::write(folder.file(), live(1).replace("next", "limits")).unwrap();
    let error = Config::read(folder.file()).unwrap_err().to_string();
    assert!(error.contains("it names the file itself"), "{error}");
    let text: Config = live(1).parse().unwrap();
    assert!(text.shadow().is_none());
    assert!(text.warnings()[0].message().contains("a text has no file"));
}

#[test]
fn a_slot_in_shadow_is_free_when_the_request_ends() {
    let one = "[policies.one]\nconcurrency = 1\nkey = \"global\"\n";
    let (_folder, watched) = both("slots", &live(9), one);
    assert_eq!(statuses(&watched.layer(), 3), [200; 3]);
    assert_eq!(counts(&watched), (3, 0, 0));
    // One after the other, and then two at once.
    let open = || {
        let hello = service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
        });
        let request = get("/").body(()).unwrap();
        now(watched.layer().layer(hello).oneshot(request)).unwrap()
    };
    let (first, second) = (open(), open());
    assert_eq!(counts(&watched), (5, 1, 0));
    now(first.into_body().collect()).unwrap();
    drop(second);
    drop(open());
    assert_eq!(counts(&watched), (6, 1, 0));
}

#[test]
fn a_slot_of_a_request_that_the_file_in_force_refuses_is_free_at_once() {
    let one = "[policies.one]\nconcurrency = 1\nkey = \"global\"\n";
    let (_folder, watched) = both("refused", &live(0), one);
    assert_eq!(statuses(&watched.layer(), 3), [429; 3]);
    assert_eq!(counts(&watched), (3, 0, 3));
}

#[test]
fn a_refund_counts_in_shadow_too() {
    let failures = format!("{}refund_when = {{ status = \"2xx\" }}\n", policy("a", 1));
    let (_folder, watched) = both("settled", &live(9), &failures);
    assert_eq!(statuses(&watched.layer(), 4), [200; 4]);
    assert_eq!(counts(&watched), (4, 0, 0));
}

/// The file in force lets the request wait, and has its answer later.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_compared_when_it_has_its_answer() {
    let patient = live(1)
        .replace("1/day", "1/second")
        .replace("key", "wait_up_to = \"5s\"\nkey");
    let folder = Folder::new("shadow-waits");
    fs::write(folder.file(), patient).unwrap();
    fs::write(next(&folder), policy("a", 1)).unwrap();
    let config = Config::read(folder.file()).unwrap();
    let store = MemoryStore::new().clock(TokioClock::new());
    let layer = config.layer_over(store).unwrap();
    let ask = || sent(&layer, get("/"));
    assert_eq!(ask().await.status, 200);
    let compared = || {
        let shadow = config.shadow().unwrap();
        (shadow.compared(), shadow.would_refuse())
    };
    let mut second = std::pin::pin!(ask());
    let waker = std::task::Waker::noop();
    let polled = second
        .as_mut()
        .poll(&mut std::task::Context::from_waker(waker));
    assert!(polled.is_pending());
    assert_eq!(compared(), (1, 0));
    assert_eq!(second.await.status, 200);
    assert_eq!(compared(), (2, 1));
}

#[test]
fn observers_are_told() {
    let (_folder, watched) = both("observers", &live(1), &policy("a", 0));
    statuses(&watched.layer(), 2);
    let snapshot = watched.layer().monitor().snapshot();
    let shadow = snapshot.shadow.as_ref().unwrap();
    let counted = (shadow.compared, shadow.would_refuse, shadow.would_allow);
    assert_eq!(counted, (2, 1, 0));
    assert!(shadow.error.is_none());
    // Its decisions are not counted as decisions.
    assert_eq!(snapshot.requests.allowed, 1);
    assert_eq!(snapshot.requests.refused, 1);
}

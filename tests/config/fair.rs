//! Fair shares in a file: the tenant, its weight, and what they do not go with.

use std::convert::Infallible;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, request};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Head;
use tower_ratelimit::plan::{Resolved, Resolver};
use tower_ratelimit::{ManualClock, MemoryStore, Micros, SharedStore};
use tower_ratelimit_config::{Config, Explained, Format, Watched};

use crate::folder::Folder;
use crate::scene::{config, get, layer, mistakes, now, send};
use crate::support::items::{Map, OneByOne};

const FAIR: &str = r#"default_plan = "free"

[policies.upstream]
algorithm = "token-bucket"
quota = "10/hour"
key = "global"
fair = { header = "x-tenant" }
weights = { pro = 3 }
active_for = "1h"

[plans.free]
[plans.pro]

[plan_of]
from = ["10.0.0.0/8"]
header = "x-plan"
"#;

#[test]
fn tenants_share_one_limit() {
    let layer = layer(&config(FAIR));
    let by = |tenant: &str| send(&layer, get("/").header("x-tenant", tenant)).status;
    for _ in 0..9 {
        assert_eq!(by("hog"), 200);
    }
    assert_eq!(by("ann"), 200);
    assert_eq!(by("ann"), 429, "all of it is spent");
    assert_eq!(by("hog"), 429);
}

#[test]
fn what_it_does_not_go_with_is_told_with_its_line() {
    let with = |line: &str| format!("{FAIR}\n").replace("weights =", &format!("{line}\nweights ="));
    for (line, remedy) in [
        ("wait_up_to = \"1s\"", "`fair`"),
        ("reserve = 2\nlow_priority = { method = \"GET\" }", "`fair`"),
        ("key_limits = { keys = { a = \"5/hour\" } }", "`fair`"),
        (
            "hours = { zone = \"UTC\", limits = { \"00:00-24:00\" = \"5/hour\" } }",
            "`fair`",
        ),
    ] {
        let told = mistakes(&with(line)).join("\n");
        assert!(told.contains(remedy), "{line}: {told}");
    }
    let adapt = "[adapt]\nsignals = [\"cpu\", \"memory\"]\n";
    let adapted = with("adapt = true") + adapt;
    let calls = "algorithm = \"fixed-window\"\nquota = \"5/day\"\nkey = \"client_ip\"\n";
    let group = format!(
        "{FAIR}\n[policies.plan]\n{calls}\n[policies.credits]\n{calls}\n[first_of]\nspend = [\"plan\", \"credits\"]\n"
    );
    for (text, place, remedy) in [
        (adapted, "policies.upstream.adapt", "`fair`"),
        (group, "policies.upstream.fair", "`first_of`"),
    ] {
        let told = mistakes(&text);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains(place) && told[0].contains(remedy),
            "{told:?}"
        );
    }
    for (from, to, remedy) in [
        ("token-bucket", "fixed-window", "TokenBucket"),
        ("10/hour", "4/hour", "at least 5"),
        ("{ pro = 3 }", "{ gold = 3 }", "gold"),
        ("{ pro = 3 }", "{ pro = 0 }", "1 to 100"),
        ("\"1h\"", "\"2h\"", "to an hour"),
        ("\"1h\"", "\"1h\"\nmost_tenants = 1", "from 2 to 1024"),
        (
            "[plans.free]",
            "[plans.free]\nupstream = \"20/hour\"",
            "one limit",
        ),
        ("fair = { header = \"x-tenant\" }\n", "", "say among whom"),
    ] {
        let told = mistakes(&FAIR.replace(from, to)).join("\n");
        assert!(told.contains(remedy), "{to}: {told}");
    }
}

/// Of two policies whose limits are divided, the second cannot be.
#[test]
fn a_mistake_stands_at_the_policy_that_has_it() {
    let second = "\n[policies.day]\nquota = \"10/day\"\nkey = \"global\"\nfair = \"client_ip\"\n";
    let told = mistakes(&format!("{FAIR}{second}"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("policies.day.fair"), "{told:?}");
}

const CLASSES: &str = r#"default_plan = "sheddable"

[policies.upstream]
algorithm = "token-bucket"
quota = "100/second"
key = "global"
fair = { header = "x-class" }
weights = { critical = 4 }

[plans.critical]
[plans.sheddable]

[plan_of]
from = ["192.0.2.0/24"]
header = "x-class"
"#;

/// Eighty critical requests a second, which is the share of their class, and a flood of others.
#[test]
fn an_important_class_has_its_share_first() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let layer = config(CLASSES).layer_over(store).unwrap();
    let by = |class: &str| send(&layer, get("/").header("x-class", class)).status == 200;
    let mut passed = [0; 2];
    for step in 0..10_000 {
        clock.advance(Duration::from_micros(500));
        let flood = u32::from(by("sheddable"));
        let critical = u32::from(step % 25 == 0 && by("critical"));
        // From the second period on.
        if step >= 2_000 {
            passed = [passed[0] + critical, passed[1] + flood];
        }
    }
    assert_eq!(passed[0], 320);
    assert!((76..=84).contains(&passed[1]), "{passed:?}");
}

#[test]
fn tenants_beyond_those_that_are_told_apart_are_one() {
    for (text, share_of_two) in [
        (CLASSES.to_owned(), 200),
        (CLASSES.replace("weights", "most_tenants = 2\nweights"), 133),
    ] {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        let layer = config(&text).layer_over(store).unwrap();
        let by = |class: &str| send(&layer, get("/").header("x-class", class)).status == 200;
        let mut of_two = 0;
        for step in 0..1_250 {
            clock.advance(Duration::from_millis(4));
            let passed = ["ann", "bob", "cid", "dan"].map(by);
            if step >= 250 {
                of_two += u32::from(passed[2]) + u32::from(passed[3]);
            }
        }
        assert!(
            of_two.abs_diff(share_of_two) <= 8,
            "{of_two} and not {share_of_two}"
        );
    }
}

const SLOTS: &str = r#"
[policies.reports]
concurrency = 4
key = "global"
fair = { header = "x-tenant" }
active_for = "1h"
"#;

#[test]
fn tenants_share_the_slots_of_one_limit() {
    let hello = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = layer(&config(SLOTS)).layer(hello);
    // A response whose body is not read holds its slot.
    let by = |tenant: &str| {
        let request = get("/").header("x-tenant", tenant).body(()).unwrap();
        now(service.clone().oneshot(request)).unwrap()
    };
    let mut hog: Vec<_> = (0..4).map(|_| by("hog")).collect();
    assert!(hog.iter().all(|response| response.status() == 200));
    assert_eq!(by("ann").status(), 429, "all of it is taken");
    hog.pop();
    assert_eq!(by("hog").status(), 429, "it is hers");
    assert_eq!(by("ann").status(), 200);
}

#[test]
fn what_slots_do_not_go_with_is_told_with_its_line() {
    let told = mistakes(&SLOTS.replace("= 4", "= 0")).join("\n");
    assert!(told.contains("at least 1 slot"), "{told}");
    let waits = SLOTS.replace("key =", "wait_up_to = \"1s\"\nkey =");
    let told = mistakes(&waits).join("\n");
    assert!(told.contains("`fair`"), "{told}");
}

const QUEUE: &str = r#"
[policies.upstream]
algorithm = "leaky-queue"
quota = "10/second"
places = 9
key = "global"
fair = { header = "x-tenant" }
"#;

/// The hog has nine requests in the queue, and that of another tenant is the second to go on.
#[tokio::test]
async fn tenants_are_served_in_turn_in_a_queue() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let layer = config(QUEUE).layer_over(store).unwrap();
    let went_on = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&went_on);
    let hello = service_fn(move |request: Request<()>| {
        let tenant = request.headers()["x-tenant"].to_str().unwrap();
        log.lock().unwrap().push(tenant.to_owned());
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(
            "hello",
        ))))
    });
    let service = layer.layer(hello);
    for tenant in ["hog"; 9].into_iter().chain(["ann"]) {
        let request = get("/").header("x-tenant", tenant).body(()).unwrap();
        tokio::spawn(service.clone().oneshot(request));
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        clock.advance(Duration::from_millis(100));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(*went_on.lock().unwrap(), ["hog", "hog", "ann", "hog"]);
}

#[test]
fn what_a_queue_does_not_go_with_is_told_with_its_line() {
    let told = mistakes(&QUEUE.replace("= 9", "= 3")).join("\n");
    assert!(told.contains("at least 4 places"), "{told}");
    let waits = QUEUE.replace("key =", "wait_up_to = \"1s\"\nkey =");
    let told = mistakes(&waits).join("\n");
    assert!(told.contains("`fair`"), "{told}");
    let says = config(QUEUE).understood().rows()[0].says().to_owned();
    assert_eq!(
        says,
        "leaky-queue 10/second places 9, divided among tenants"
    );
}

#[test]
fn a_store_in_redis_divides_limits_as_well() {
    for text in [FAIR, SLOTS, QUEUE] {
        // A file with a mistake ends the test.
        let _ = config(&format!(
            "{text}\n[store]\nredis = \"redis://127.0.0.1:1\"\n"
        ));
    }
}

#[test]
fn a_store_of_the_program_that_divides_no_limits_is_refused() {
    let map = Map::new(&ManualClock::new());
    let built = Config::builder().store(SharedStore::new(map.clone()));
    assert!(built.parse(FAIR, Format::Toml).is_ok());
    let store = SharedStore::new(OneByOne(map));
    let parsed = Config::builder().store(store).parse(FAIR, Format::Toml);
    let error = parsed.unwrap_err();
    assert!(error.to_string().contains("does not divide"), "{error}");
}

#[test]
fn tenants_that_nothing_knows_are_one_together_if_the_file_says_so() {
    let text = FAIR.replace("active_for", "unverified = \"together\"\nactive_for");
    let layer = layer(&config(&text));
    assert_eq!(send(&layer, get("/")).status, 200);
    for (from, to, remedy) in [
        ("\"together\"", "\"aprt\"", "apart"),
        (
            "fair = { header = \"x-tenant\" }\nweights = { pro = 3 }\n",
            "",
            "say among whom",
        ),
    ] {
        let told = mistakes(&text.replace(from, to)).join("\n");
        assert!(told.contains(remedy), "{told}");
    }
    let without_plans = r#"
[policies.upstream]
algorithm = "token-bucket"
quota = "10/hour"
key = "global"
fair = { header = "x-tenant" }
unverified = "together"
"#;
    let told = mistakes(without_plans).join("\n");
    assert!(told.contains("declare the plans"), "{told}");
}

/// A client has as many shares as it invents tenants.
#[test]
fn a_tenant_that_a_client_chooses_is_told_with_its_line() {
    let with = |fair: &str| {
        let text = FAIR.replace(
            "fair = { header = \"x-tenant\" }",
            &format!("fair = {fair}"),
        );
        let warnings = config(&text).warnings().to_vec();
        let warnings = warnings.iter().map(ToString::to_string);
        warnings.collect::<Vec<_>>().join("\n")
    };
    for (fair, chosen) in [
        ("{ header = \"x-tenant\" }", "header x-tenant"),
        ("\"api_key\"", "header x-api-key"),
        (
            "[\"client_ip\", { query = \"user\" }]",
            "query parameter user",
        ),
        (
            "{ first_of = [{ cookie = \"sid\" }, \"client_ip\"] }",
            "cookie sid",
        ),
        ("{ hashed = { json = \"user\" } }", "field user of the body"),
    ] {
        let told = with(fair);
        let start = format!("<text>:7:8: policies.upstream.fair: a client chooses {chosen}, ");
        assert!(told.starts_with(&start), "{fair}: {told}");
        assert!(
            told.contains("(TRL041)") && told.contains("unverified = \"together\""),
            "{told}"
        );
        for unverified in ["together", "apart"] {
            let said = format!("{fair}\nunverified = \"{unverified}\"");
            assert_eq!(with(&said), "");
        }
    }
    assert_eq!(with("\"client_ip\""), "");
}

#[test]
fn check_and_explain_say_that_a_limit_is_divided() {
    let config = config(FAIR);
    let says = |explained: &Explained| explained.rows()[0].says().to_owned();
    let divided = "token-bucket 10/hour, divided among tenants";
    assert_eq!(says(&config.understood()), divided);
    let request = get("/").header("x-tenant", "ann").body(()).unwrap();
    assert_eq!(says(&config.explain(&request, None, None)), divided);
}

/// A line of a log names its tenant in a header, or is of the tenant that is its key.
#[test]
fn a_log_is_replayed_among_tenants() {
    let replay = config(FAIR).replay().unwrap();
    let at = Micros::new(1_700_000_000_000_000);
    let by = |request: request::Builder, key: &str| {
        let replayed = replay.decide(at, request.body(()).unwrap(), Some(key), None, None);
        replayed.goes_on()
    };
    for _ in 0..8 {
        assert!(by(get("/"), "hog"));
    }
    assert!(by(get("/").header("x-tenant", "hog"), "192.0.2.1"));
    assert!(by(get("/"), "ann"));
    assert!(!by(get("/"), "ann"), "all of it is spent");
    assert!(!by(get("/"), "bob"));
    assert!(!by(get("/"), "hog"));
}

/// Requests that would wait go on, and those that find no place are refused.
#[test]
fn a_log_is_replayed_with_the_places_of_a_queue() {
    let replay = config(QUEUE).replay().unwrap();
    let start = 1_700_000_000_000_000;
    let by = |after: u64, tenant: &str| {
        let at = Micros::new(start + after);
        let request = get("/").header("x-tenant", tenant).body(()).unwrap();
        let replayed = replay.decide(at, request, None, None, None);
        replayed.goes_on()
    };
    assert!(by(0, "ann"));
    let places = (0..20).filter(|_| by(0, "hog")).count();
    assert_eq!(places, 9);
    assert!(!by(0, "ann"));
    // Five have gone on, and some of their places are kept for the other tenant.
    let places = (0..20).filter(|_| by(500_000, "hog")).count();
    assert!((2..4).contains(&places), "{places}");
    assert!(by(500_000, "ann"));
}

/// A resolver finds the plans of tenants, and so their weights: beside one of weight 3, another one has a quarter.
#[tokio::test(start_paused = true)]
async fn a_resolver_goes_with_it() {
    let resolver = Resolver::new(|name: String| async move {
        Ok::<_, Infallible>(match name.as_str() {
            "pia" => Resolved::plan("pro"),
            _ => Resolved::NotFound,
        })
    });
    let customer = |head: &Head<'_>| head.header("x-tenant").map(str::to_owned);
    let builder = Config::builder().resolver("customers", resolver, customer);
    let (of_head, _) = FAIR.split_once("[plan_of]").unwrap();
    let text = format!("resolver = {{ function = \"customers\" }}\n{of_head}");
    let config = builder.parse(&text, Format::Toml).unwrap();
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let layer = config.layer_over(store).unwrap();
    let by = async |tenant: &str| {
        let request = get("/").header("x-tenant", tenant);
        crate::scene::sent(&layer, request).await.status == 200
    };
    assert!(by("pia").await);
    while by("ann").await {}
    clock.advance(Duration::from_secs(2_880));
    // Eight units came back. Six would be kept for pia, who has used one of them.
    let mut passed = 0;
    while by("ann").await {
        passed += 1;
    }
    assert_eq!(passed, 3);
    for _ in 0..5 {
        assert!(by("pia").await);
    }
}

#[test]
fn a_level_of_a_tree_is_not_divided() {
    let text = r#"
[policies.spend]
algorithm = "token-bucket"
levels = [
    { name = "org", key = { header = "x-org" }, quota = "10/hour", fair = "client_ip" },
]
"#;
    let told = mistakes(text).join("\n");
    assert!(told.contains("beside the tree"), "{told}");
}

/// A file that is reloaded, and the time of its store.
struct Followed {
    folder: Folder,
    watched: Watched,
    clock: ManualClock,
}

impl Followed {
    fn new(name: &str, text: &str) -> Self {
        let folder = Folder::new(name);
        fs::write(folder.file(), text).unwrap();
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone());
        let config = Config::builder().store(store).read(folder.file());
        Self {
            folder,
            watched: config.unwrap().watch().unwrap(),
            clock,
        }
    }

    fn becomes(&self, text: &str) {
        fs::write(self.folder.file(), text).unwrap();
        self.watched.reload().unwrap();
    }

    fn passes(&self, tenant: &str) -> bool {
        let request = get("/").header("x-tenant", tenant);
        send(&self.watched.layer(), request.header("x-class", tenant)).status == 200
    }

    /// Returns how many requests of a tenant pass until one is refused.
    fn take_all(&self, tenant: &str) -> u32 {
        let mut passed = 0;
        while self.passes(tenant) {
            passed += 1;
        }
        passed
    }

    /// Returns how many requests of each class pass in a second, in which both always ask.
    fn second_of_classes(&self) -> [u32; 2] {
        let mut had = [0; 2];
        for _ in 0..1_000 {
            self.clock.advance(Duration::from_millis(1));
            for (class, had) in ["critical", "sheddable"].into_iter().zip(&mut had) {
                *had += u32::from(self.passes(class));
            }
        }
        had
    }
}

#[test]
fn new_weights_divide_from_a_reload_on() {
    let followed = Followed::new("weights", CLASSES);
    followed.second_of_classes();
    let [critical, sheddable] = followed.second_of_classes();
    assert!(critical.abs_diff(80) <= 1 && sheddable.abs_diff(20) <= 1);
    followed.becomes(&CLASSES.replace("critical = 4", "sheddable = 4"));
    let [critical, sheddable] = followed.second_of_classes();
    assert!(critical.abs_diff(20) <= 1 && sheddable.abs_diff(80) <= 1);
}

/// The hog has used all, and what comes back until the reload is divided among tenants that were there before it.
#[test]
fn tenants_keep_what_they_have_used_over_a_reload() {
    for (from, to) in [
        ("{ pro = 3 }", "{ pro = 4 }"),
        ("\"1h\"", "\"50min\""),
        ("\"1h\"", "\"1h\"\nmost_tenants = 2"),
    ] {
        let followed = Followed::new("tenants", FAIR);
        assert_eq!(followed.take_all("hog"), 10);
        assert_eq!(followed.take_all("ann"), 0);
        followed.becomes(&FAIR.replace(from, to));
        assert_eq!(followed.take_all("hog"), 0, "{to}");
        followed.clock.advance(Duration::from_secs(1_800));
        followed.becomes(FAIR);
        let had = ["hog", "ann"].map(|tenant| followed.take_all(tenant));
        assert_eq!(had, [2, 3], "{to}");
    }
}

/// What is above the lower limit drains as it was charged, in 24 minutes, and the rest by 6 units an hour. The hog has accrued a part of a third
/// unit, which is kept for it when it is refused.
#[test]
fn what_was_used_stays_used_under_a_lower_limit() {
    let followed = Followed::new("lower", FAIR);
    let take_all = || ["hog", "ann"].map(|tenant| followed.take_all(tenant));
    assert_eq!(take_all(), [10, 0]);
    followed.becomes(&FAIR.replace("10/hour", "6/hour"));
    assert_eq!(take_all(), [0, 0]);
    followed.clock.advance(Duration::from_secs(1_440));
    assert_eq!(take_all(), [0, 0]);
    followed.clock.advance(Duration::from_secs(2_400));
    assert_eq!(take_all(), [2, 1]);
}

/// Returns the file without what it says of tenants.
fn undivided(text: &str) -> String {
    let fields = ["fair", "weights", "active_for"];
    let lines = text.lines();
    let lines = lines.filter(|line| !fields.iter().any(|field| line.starts_with(field)));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn what_was_used_stays_used_when_a_limit_is_divided_and_when_it_is_no_more() {
    let followed = Followed::new("divided", &undivided(FAIR));
    for _ in 0..4 {
        assert!(followed.passes("hog"));
    }
    followed.becomes(FAIR);
    assert_eq!(followed.take_all("hog"), 6);
    assert_eq!(followed.take_all("ann"), 0);
    followed.clock.advance(Duration::from_secs(1_800));
    assert_eq!(followed.take_all("hog"), 2, "the others are those of Ann");
    followed.becomes(&undivided(FAIR));
    assert_eq!(followed.take_all("hog"), 3, "they are those of all");
    assert_eq!(followed.take_all("ann"), 0);
}

#[test]
fn slots_stay_held_when_they_are_divided_and_when_they_are_no_more() {
    let followed = Followed::new("slots", &undivided(SLOTS));
    let hello = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = followed.watched.layer().layer(hello);
    // A response whose body is not read holds its slot.
    let by = |tenant: &str| {
        let request = get("/").header("x-tenant", tenant).body(()).unwrap();
        let response = now(service.clone().oneshot(request)).unwrap();
        (response.status() == 200).then_some(response)
    };
    let before = by("bob");
    followed.becomes(SLOTS);
    let mut divided = [by("hog"), by("hog"), by("hog")];
    assert!(divided.iter().chain([&before]).all(Option::is_some));
    assert!(by("ann").is_none(), "all of them are taken");
    divided[0] = None;
    assert!(by("hog").is_none(), "it is that of Ann");
    followed.becomes(&undivided(SLOTS));
    let after = by("hog");
    assert!(after.is_some(), "it is that of all");
    assert!(by("ann").is_none());
    drop((before, divided));
    followed.becomes(SLOTS);
    // Ann is active still, and one slot is held since.
    let hog = [by("hog"), by("hog"), by("hog")];
    assert_eq!(hog.iter().flatten().count(), 2);
    let ann = [by("ann"), by("ann")];
    assert_eq!(ann.iter().flatten().count(), 1);
}

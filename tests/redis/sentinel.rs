//! A store behind Sentinel: how it finds the master, and the next one after a failover.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::store::RedisStoreBuilder;
use tower_ratelimit::{Limiter, RedisStore, StoreError};

use crate::scene::{PATIENCE, ask, daily, keys, limiter, patient, story, used};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::Server;
use crate::support::sentinel::{NAME, Watched, look_out};

/// As in a service: a call to a server that hangs ends soon.
fn hasty() -> RedisStoreBuilder {
    let builder = RedisStore::builder().deadline(Duration::from_secs(2));
    builder.remember_denials_for(Duration::ZERO)
}

fn open(builder: RedisStoreBuilder, urls: &[String]) -> RedisStore {
    let urls = urls.iter().map(String::as_str);
    builder.open_sentinel(NAME, urls).unwrap()
}

async fn connect(master: &str, urls: &[String]) -> Result<RedisStore, StoreError> {
    let urls = urls.iter().map(String::as_str);
    patient().connect_sentinel(master, urls).await
}

fn refused<T>(connected: Result<T, StoreError>, kind: StoreErrorKind) -> String {
    let error = connected.map(drop).unwrap_err();
    assert_eq!(error.kind(), kind, "{}", story(&error));
    story(&error)
}

async fn decides(store: &RedisStore) {
    let limiter = limiter(store, [daily("a", 5)]);
    let told = limiter.check("ann", 2).await;
    let told = told.unwrap_or_else(|error| panic!("{}", story(&error)));
    assert_eq!(used(&told), [2]);
}

/// Listens and never answers, until this is dropped.
fn hole() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

fn closed() -> String {
    url(hole().1)
}

/// Stands for a sentinel, and names the server on this port.
pub(crate) fn names(port: impl Fn() -> u16 + Send + Sync + 'static) -> StandIn {
    StandIn::start(move |words| {
        assert_eq!(words[1..], ["GET-MASTER-ADDR-BY-NAME", NAME]);
        let port = port().to_string();
        let answer = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
        ScriptedReply::Say(answer.leak())
    })
}

/// Stands for a sentinel that watches other masters.
fn knows_no_master() -> StandIn {
    StandIn::start(|_| ScriptedReply::Say("*-1\r\n"))
}

#[tokio::test]
async fn the_master_is_found_by_any_sentinel_that_answers() {
    let scene = Watched::start();
    let urls = scene.urls();
    decides(&connect(NAME, &urls).await.unwrap()).await;
    assert_eq!(keys(&scene.master).len(), 1);

    scene.sentinels[0].freeze();
    scene.sentinels[1].kill();
    let store = connect(NAME, &urls).await.unwrap();
    let told = limiter(&store, [daily("a", 5)]).peek("ann", 0).await;
    assert_eq!(used(&told.unwrap()), [2]);
}

/// One after the other, they would take longer than the call may.
#[tokio::test]
async fn sentinels_that_hang_delay_no_request() {
    let server = Server::start(&[]);
    let (port, (hole, hangs)) = (server.port(), hole());
    let sentinel = names(move || port);
    let mut urls = vec![url(hangs); 50];
    urls.push(sentinel.url());
    decides(&connect(NAME, &urls).await.unwrap()).await;
    drop(hole);
}

#[tokio::test]
async fn a_name_that_the_sentinels_do_not_know_is_a_misconfiguration_and_is_told() {
    let scene = Watched::start();
    let mut urls = scene.urls();
    urls.push(closed());
    let asked = Instant::now();
    let said = refused(
        connect("redis://limiter:s3kr3t@their-master/", &urls).await,
        StoreErrorKind::Misconfigured,
    );
    assert!(
        said.contains(": unknown master")
            && said.contains("no master of this name")
            && said.contains("their-master"),
        "{said}"
    );
    assert!(!said.contains("s3kr3t"), "{said}");
    assert!(asked.elapsed() < PATIENCE / 2);
}

#[tokio::test]
async fn the_master_and_the_sentinels_have_users_of_their_own() {
    let scene = Watched::start();
    for sentinel in &scene.sentinels {
        let may = ["-@all", "+sentinel|get-master-addr-by-name"];
        let user = ["ACL", "SETUSER", "asker", "reset", "on", ">s3ntinel"];
        sentinel.ask(&[user.as_slice(), &may].concat());
    }
    let user = [
        "ACL", "SETUSER", "limiter", "reset", "on", ">m4ster", "~*", "+@all",
    ];
    // A client without the right to ask for the role finds out.
    scene.master.ask(&[user.as_slice(), &["-role"]].concat());
    let by = |password: &str| -> Vec<String> {
        let ports = scene.sentinels.iter().map(Server::port);
        let url = |port| format!("redis://asker:{password}@127.0.0.1:{port}/");
        ports.map(url).collect()
    };
    let store = connect("redis://limiter:m4ster@mymaster/3", &by("s3ntinel")).await;
    decides(&store.unwrap_or_else(|error| panic!("{}", story(&error)))).await;
    let info: String = ask(&scene.master, &["INFO", "keyspace"]);
    assert!(
        info.contains("db3:keys=1,") && !info.contains("db0"),
        "{info}"
    );

    let connected = connect("redis://limiter:m4ster@mymaster/3", &by("wr0ng")).await;
    let said = refused(connected, StoreErrorKind::Misconfigured);
    assert!(
        said.contains("a sentinel") && !said.contains("wr0ng"),
        "{said}"
    );
    let connected = connect("redis://limiter:wr0ng@mymaster/3", &by("s3ntinel")).await;
    let said = refused(connected, StoreErrorKind::Misconfigured);
    assert!(
        said.contains("names as the master") && !said.contains("wr0ng"),
        "{said}"
    );
}

/// Two of a thousand units are used, and the replica knows that. The limiter has found the master.
async fn before_a_failover(scene: &Watched) -> Limiter {
    let patient = limiter(&open(patient(), &scene.urls()), [daily("a", 1_000)]);
    assert_eq!(used(&patient.check("ann", 2).await.unwrap()), [2]);
    scene.until_replicated();
    let limiter = limiter(&open(hasty(), &scene.urls()), [daily("a", 1_000)]);
    until_it_decides(&limiter, [2]).await;
    limiter
}

/// Sends requests that cost nothing until one is decided, with this many units used. A request fails as long as
/// there is no master.
async fn until_it_decides(limiter: &Limiter, expected: [u32; 1]) {
    let started = Instant::now();
    let told = loop {
        match limiter.check("ann", 0).await {
            Ok(told) => break told,
            Err(error) => assert!(started.elapsed() < 3 * PATIENCE, "{}", story(&error)),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(used(&told), expected);
}

/// Returns whether the server has run a script. A sentinel that makes it the master closes its connections, those of tests too.
fn has_decided(server: &Server) -> bool {
    let told = server.try_connect().and_then(|mut connection| {
        let mut stats = redis::cmd("INFO");
        stats.arg("commandstats").query::<String>(&mut connection)
    });
    told.is_ok_and(|stats| stats.contains("cmdstat_evalsha:"))
}

/// Sends requests until the former replica decides.
async fn until_taken_over(scene: &Watched, limiter: &Limiter) {
    let started = Instant::now();
    while !has_decided(&scene.replica) {
        let _ = limiter.check("ann", 0).await;
        assert!(started.elapsed() < 3 * PATIENCE, "no replica took over");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The deadline of this one is long.
    let patient = self::limiter(&open(patient(), &scene.urls()), [daily("a", 1_000)]);
    assert_eq!(used(&patient.check("ann", 1).await.unwrap()), [3]);
    until_it_decides(limiter, [3]).await;
}

#[tokio::test]
async fn a_store_goes_on_at_the_next_master_after_the_death_of_one() {
    let scene = Watched::start();
    let limiter = before_a_failover(&scene).await;
    scene.master.kill();
    refused(limiter.check("ann", 1).await, StoreErrorKind::Unavailable);
    look_out(&scene.sentinels);
    until_taken_over(&scene, &limiter).await;
}

#[tokio::test]
async fn a_store_goes_on_at_the_next_master_when_one_hangs() {
    let scene = Watched::start();
    let limiter = before_a_failover(&scene).await;
    scene.master.freeze();
    refused(limiter.check("ann", 1).await, StoreErrorKind::Unavailable);
    look_out(&scene.sentinels);
    until_taken_over(&scene, &limiter).await;
}

/// A sentinel fails too: it is on the machine that failed.
#[tokio::test]
async fn a_store_goes_on_at_the_next_master_when_one_hangs_with_a_sentinel() {
    let scene = Watched::start();
    let limiter = before_a_failover(&scene).await;
    scene.master.freeze();
    scene.sentinels[0].freeze();
    look_out(&scene.sentinels[1..]);
    until_taken_over(&scene, &limiter).await;
}

#[tokio::test]
async fn a_store_goes_on_at_the_next_master_after_a_failover_by_hand() {
    let scene = Watched::by_one();
    let limiter = before_a_failover(&scene).await;
    scene.fail_over();
    until_taken_over(&scene, &limiter).await;
}

/// The client gets no notice: its connection stays, and it may read. Only the next answer of the server says so.
async fn asks_again(demote: impl FnOnce(&Server, u16), answer: &str) {
    let servers = [Server::start(&[]), Server::start(&[])];
    let [before, after] = [0, 1].map(|index: usize| servers[index].port());
    let master = Arc::new(AtomicU16::new(before));
    let named = Arc::clone(&master);
    let sentinel = names(move || named.load(Ordering::SeqCst));
    let limiter = limiter(&open(patient(), &[sentinel.url()]), [daily("a", 5)]);
    for _ in 0..3 {
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    assert_eq!(sentinel.scripts().len(), 1);

    demote(&servers[0], after);
    master.store(after, Ordering::SeqCst);
    let said = refused(limiter.check("ann", 1).await, StoreErrorKind::Unavailable);
    // Redis 6.2 says it in the text of an error of the script.
    let said_so = said.to_lowercase().contains(&answer.to_lowercase());
    assert!(said_so, "{said}");
    assert_eq!(used(&limiter.check("ann", 1).await.unwrap()), [1]);
    assert_eq!(sentinel.scripts().len(), 2);
}

#[tokio::test]
async fn a_store_asks_the_sentinels_again_when_its_master_has_become_a_replica() {
    let demote = |server: &Server, after: u16| {
        server.ask(&["REPLICAOF", "127.0.0.1", &after.to_string()]);
    };
    asks_again(demote, "ReadOnly").await;
}

#[tokio::test]
async fn a_store_asks_the_sentinels_again_when_its_master_has_become_a_replica_without_a_master() {
    let demote = |server: &Server, _: u16| {
        server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        server.ask(&["REPLICAOF", "127.0.0.1", &hole().1.to_string()]);
    };
    asks_again(demote, "MasterDown").await;
}

#[tokio::test]
async fn a_store_asks_the_sentinels_again_when_its_master_has_lost_its_replicas() {
    let demote = |server: &Server, _: u16| {
        server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    };
    asks_again(demote, "NOREPLICAS").await;
}

#[tokio::test]
async fn the_store_takes_the_master_among_several_named_servers() {
    let master = Server::start(&[]);
    let port = master.port();
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port.to_string()]);
    let (hole, hangs) = hole();
    let stale = [replica.port(), hangs].map(|port| names(move || port));
    let current = names(move || port);
    let stale = stale.each_ref().map(StandIn::url);
    for unknown in [knows_no_master().url(), closed()] {
        let urls = [stale.as_slice(), &[unknown, current.url()]].concat();
        decides(&connect(NAME, &urls).await.unwrap()).await;
        master.ask(&["FLUSHALL"]);
    }
    // Without the sentinel that knows it, the error names the master that was.
    let urls = [closed(), knows_no_master().url(), stale[0].clone()];
    let said = refused(connect(NAME, &urls).await, StoreErrorKind::Unavailable);
    assert!(
        said.contains(&format!("127.0.0.1:{}", replica.port())),
        "{said}"
    );
    assert!(said.contains("it is a replica"), "{said}");
    let urls = [closed(), knows_no_master().url(), stale[1].clone()];
    let said = refused(connect(NAME, &urls).await, StoreErrorKind::Unavailable);
    assert!(said.contains(&format!("127.0.0.1:{hangs}")), "{said}");
    drop(hole);
}

#[tokio::test]
async fn a_store_that_is_built_before_its_sentinels_are_up_works_as_soon_as_they_are() {
    let mut scene = Watched::start();
    for server in scene.sentinels.iter().chain([&scene.master]) {
        server.kill();
    }
    let store = open(hasty(), &scene.urls());
    let limiter = limiter(&store, [daily("a", 1_000)]);
    let said = refused(limiter.check("ann", 1).await, StoreErrorKind::Unavailable);
    assert!(said.contains("no sentinel answers"), "{said}");
    for sentinel in &mut scene.sentinels {
        sentinel.restart();
    }
    look_out(&scene.sentinels);
    let started = Instant::now();
    while limiter.check("ann", 1).await.is_err() {
        assert!(started.elapsed() < 3 * PATIENCE, "no replica took over");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let key = store.store_key(&daily("a", 1_000), "ann");
    assert!(keys(&scene.replica).contains(&key));
}

#[tokio::test]
async fn to_connect_fails_at_once_where_no_sentinel_listens() {
    let (urls, asked) = ([closed(), closed()], Instant::now());
    let said = refused(connect(NAME, &urls).await, StoreErrorKind::Unavailable);
    assert!(
        said.contains("no sentinel answers - Io: 127.0.0.1:"),
        "{said}"
    );
    assert!(asked.elapsed() < PATIENCE / 2);
}

#[tokio::test]
async fn a_server_that_is_taken_for_a_sentinel_is_a_misconfiguration() {
    let server = Server::start(&[]);
    let said = refused(
        connect(NAME, &[server.url()]).await,
        StoreErrorKind::Misconfigured,
    );
    assert!(
        said.contains(&format!("127.0.0.1:{}", server.port())),
        "{said}"
    );
    assert!(said.contains("unknown command"), "{said}");
}

#[tokio::test]
async fn the_master_is_talked_to_through_tls_if_its_address_says_so() {
    // A setting that exists already stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::start(&[]);
    let port = server.port();
    let urls = [names(move || port).url()];
    // The server does not support it.
    refused(
        connect("rediss://mymaster", &urls).await,
        StoreErrorKind::Unavailable,
    );
    decides(&connect("redis://mymaster", &urls).await.unwrap()).await;
}

#[tokio::test]
async fn a_url_with_a_bad_name_or_address_is_refused_without_its_password() {
    const PASSWORD: &str = "s3kr3t";
    let sentinel = "redis://10.0.0.1";
    for (master, sentinels, field, remedy) in [
        ("", vec![sentinel], "master", "the name"),
        ("ann:s3kr3t@mymaster", vec![sentinel], "master", "redis://["),
        ("my master", vec![sentinel], "master", "letters and digits"),
        (
            "redis://ann:s3kr3t@/2",
            vec![sentinel],
            "master",
            "redis://[",
        ),
        (
            "redis://ann:s3kr3t@mymaster/two",
            vec![sentinel],
            "master",
            "database",
        ),
        (
            "redis://ann:s3kr3t@mymaster:6379/",
            vec![sentinel],
            "master",
            "port",
        ),
        (
            "redis+unix:///s3kr3t",
            vec![sentinel],
            "master",
            "redis://[",
        ),
        (NAME, vec![], "sentinels", "one at least"),
        (NAME, vec![""], "sentinels", "redis://["),
        (
            NAME,
            vec![sentinel, "10.0.0.2:26379"],
            "sentinels",
            "redis://[",
        ),
        (
            NAME,
            vec![sentinel, "redis://ann:s3kr3t@10.0.0.2/2"],
            "sentinels",
            "master's",
        ),
    ] {
        let error = patient()
            .open_sentinel(master, sentinels.clone())
            .unwrap_err();
        let said = format!("{error}{error:?}");
        assert!(!said.contains(PASSWORD), "{said}");
        assert_eq!(error.field(), field, "{said}");
        assert!(error.remedy().contains(remedy), "{said}");
        let connected = patient().connect_sentinel(master, sentinels).await;
        let said = refused(connected, StoreErrorKind::Misconfigured);
        assert!(!said.contains(PASSWORD), "{said}");
    }
    for master in [
        NAME,
        "redis://mymaster",
        "redis://ann:s3kr3t@My-master_1.eu/2",
    ] {
        let store = patient().open_sentinel(master, [sentinel]).unwrap();
        let shown = format!("{store:?}");
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

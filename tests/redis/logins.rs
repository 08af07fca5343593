//! A user's password changes while a store is in use.

use std::time::{Duration, Instant};

use tower_ratelimit::{Limiter, RedisStore};

use crate::scene::{PATIENCE, cluster_store, daily, limiter, patient, story, used};
use crate::sentinel::names;
use crate::support::redis::{Cluster, Server};
use crate::support::sentinel::NAME;

/// Has the server know the user by two passwords.
fn know(server: &Server) {
    let user = ["ACL", "SETUSER", "limiter", "reset", "on"];
    let rights = ["~*", "+@all", ">first", ">second"];
    server.ask(&[user.as_slice(), &rights].concat());
}

/// Has the server forget the first one, and ends the connections that it has opened.
fn forget(server: &Server) {
    server.ask(&["ACL", "SETUSER", "limiter", "<first"]);
    server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
}

/// Returns what the key has used once a request is decided, or why none is.
async fn decided(limiter: &Limiter) -> Result<Vec<u32>, String> {
    let begun = Instant::now();
    loop {
        match limiter.check("ann", 0).await {
            Ok(decision) => return Ok(used(&decision)),
            // Calls that were under way as the connection ended, and calls after them, until the store tries again.
            Err(error) if error.reason() != Some("wrong password") => {
                assert!(begun.elapsed() < PATIENCE, "{}", story(&error));
            }
            Err(error) => return Err(story(&error)),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Two stores use the first password of all these servers. One gets the second in time, and the other too late.
async fn rotates(servers: &[Server], open: impl Fn(&str) -> RedisStore) {
    servers.iter().for_each(know);
    let [renewed, late] = [open("first"), open("first")];
    let limiters = [&renewed, &late].map(|store| limiter(store, [daily("a", 9)]));
    for (limiter, before) in limiters.iter().zip([2, 4]) {
        let decision = limiter.check("ann", 2).await;
        let decision = decision.unwrap_or_else(|error| panic!("{}", story(&error)));
        assert_eq!(used(&decision), [before]);
    }
    renewed.renew_login(&open("second")).unwrap();
    servers.iter().for_each(forget);
    assert_eq!(decided(&limiters[0]).await, Ok(vec![4]));
    let why = decided(&limiters[1]).await.unwrap_err();
    assert!(why.contains("wrong password"), "{why}");
    late.renew_login(&open("second")).unwrap();
    let begun = Instant::now();
    while decided(&limiters[1]).await != Ok(vec![4]) {
        assert!(begun.elapsed() < PATIENCE, "{why}");
    }
}

#[tokio::test]
async fn a_store_goes_on_by_another_password() {
    let server = [Server::start(&[])];
    let url =
        |password: &str| format!("redis://limiter:{password}@127.0.0.1:{}/", server[0].port());
    rotates(&server, |password| patient().open(url(password)).unwrap()).await;
}

#[tokio::test]
async fn a_store_over_a_cluster_goes_on_by_another_password() {
    let cluster = Cluster::start();
    let urls = |password: &str| {
        let urls = cluster.urls().into_iter();
        let login = format!("redis://limiter:{password}@");
        urls.map(move |url| url.replace("redis://", &login))
            .collect::<Vec<_>>()
    };
    rotates(&cluster.nodes, |password| {
        patient().open_cluster(urls(password)).unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_store_behind_sentinels_goes_on_by_another_password() {
    let server = [Server::start(&[])];
    let port = server[0].port();
    let sentinel = names(move || port);
    let open = |password: &str| {
        let master = format!("redis://limiter:{password}@{NAME}");
        patient().open_sentinel(master, [sentinel.url()]).unwrap()
    };
    rotates(&server, open).await;
}

#[tokio::test]
async fn a_login_of_other_servers_changes_nothing_and_names_them_without_passwords() {
    let server = Server::start(&[]);
    let (url, cluster) = (server.url(), Cluster::start());
    let store = patient().open(&url).unwrap();
    let limiter = limiter(&store, [daily("a", 9)]);
    let own = redis::Client::open(&*url).unwrap();
    let own = own.get_multiplexed_async_connection().await.unwrap();
    for (newer, named) in [
        (
            patient().open("redis://:s3cret@127.0.0.1:1/"),
            "\"127.0.0.1:1/0\"",
        ),
        (patient().open(format!("{url}3")), "/3\""),
        (patient().open(format!("{url}?protocol=resp3")), "/0\""),
        (patient().open_cluster([&url]), "/0\""),
        (
            patient().open_sentinel("redis://:s3cret@m", [&url]),
            "\"m:6379/0, 127",
        ),
        (patient().over(own), "of the program's own"),
    ] {
        let error = store.renew_login(&newer.unwrap()).unwrap_err().to_string();
        assert!(
            error.contains(named) && !error.contains("s3cret"),
            "{error}"
        );
    }
    let one = patient().open_cluster(&cluster.urls()[..1]).unwrap();
    assert!(cluster_store(&cluster).renew_login(&one).is_err());
    assert_eq!(used(&limiter.check("ann", 2).await.unwrap()), [2]);
}

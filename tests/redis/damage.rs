//! Data that this version has not written: an error that says so, for that key alone, and never a panic.

use redis::Value;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::{Micros, StoreError};

use crate::scene::{MINUTE, ask, daily, every, limiter, patient, store, story, used};
use crate::stand_in::{ScriptedReply, StandIn};
use crate::support::redis::Server;

#[track_caller]
fn assert_misconfigured<T>(answer: Result<T, StoreError>, said: &str) {
    let error = answer.map(drop).unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Misconfigured,
        "{}",
        story(&error)
    );
    assert!(!error.is_transient());
    assert!(story(&error).contains(said), "{}", story(&error));
}

#[tokio::test]
async fn another_type_under_a_key_is_an_error_of_that_key_until_it_is_reset() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(5, MINUTE) {
        let limiter = limiter(&store, [policy.clone()]);
        let key = store.store_key(&policy, "ann");
        server.ask(&["HSET", &key, "field", "value"]);
        let before: Value = ask(&server, &["DUMP", &key]);
        assert_misconfigured(limiter.check("ann", 1).await, "WRONGTYPE");
        assert_misconfigured(limiter.peek("ann", 1).await, "WRONGTYPE");
        assert_misconfigured(limiter.refund("ann", 1).await, "WRONGTYPE");
        assert_misconfigured(limiter.settle("ann", 1).await, "WRONGTYPE");
        assert_misconfigured(limiter.block("ann", MINUTE).await, "WRONGTYPE");
        assert_misconfigured(limiter.unblock("ann").await, "WRONGTYPE");
        assert_eq!(ask::<Value>(&server, &["DUMP", &key]), before);
        assert!(limiter.check("bob", 1).await.unwrap().is_allowed());
        limiter.reset("ann").await.unwrap();
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    }
}

#[tokio::test]
async fn text_that_is_no_state_is_an_error_that_names_the_key() {
    let server = Server::start(&[]);
    let (store, policy) = (store(&server), daily("a", 5));
    let limiter = limiter(&store, [policy.clone()]);
    let key = store.store_key(&policy, "ann");
    // The last is a mark of another version, as that of leased units is to one that does not know it.
    for text in [
        "",
        "nonsense",
        "1 2",
        "1 2 x",
        "-1 2 3",
        "1.5 2 3",
        "! 1 2 3",
        "!1 2",
        "1 2 3\n4",
        "é",
        "^1 2;1 2 3",
    ] {
        server.ask(&["SET", &key, text]);
        assert_misconfigured(limiter.check("ann", 1).await, &key);
        assert_misconfigured(limiter.settle("ann", 1).await, "reset it");
        assert_eq!(ask::<String>(&server, &["GET", &key]), text);
    }
    limiter.reset("ann").await.unwrap();
    assert_eq!(used(&limiter.check("ann", 1).await.unwrap()), [1]);
}

/// Words that look like a state, under every algorithm. The answer is a decision or an error, and a reset helps.
#[tokio::test]
async fn states_that_no_request_can_have_left_cause_no_panic() {
    let server = Server::start(&[]);
    let store = store(&server);
    let large = "9007199254740993";
    let huge = "99999999999999999999999999999999";
    let words = ["0 0 0", "1 1 1", "0 0 0 0 0 0 0 0 0 0 0"].map(str::to_owned);
    let numbers = [
        format!("{large} {large} {large}"),
        format!("{huge} {huge} {huge}"),
        format!("0 {huge} 0"),
        format!("{large} 0 0 {large} {large}"),
        format!("!0 {huge} 0 0 0"),
        format!("!{huge} {huge} 1 2 3"),
        [large; 11].join(" "),
    ];
    for policy in every(5, MINUTE) {
        let limiter = limiter(&store, [policy.clone()]);
        let key = store.store_key(&policy, "ann");
        for text in words.iter().chain(&numbers) {
            for as_list in [false, true] {
                server.ask(&["DEL", &key]);
                if as_list {
                    let mut command = vec!["RPUSH", &key];
                    command.extend(text.split(' '));
                    server.ask(&command);
                } else {
                    server.ask(&["SET", &key, text]);
                }
                // The answers do not matter.
                let _ = limiter.peek("ann", 1).await;
                let _ = limiter.check("ann", 1).await;
                let _ = limiter.settle("ann", 1).await;
                let _ = limiter.refund("ann", 1).await;
                let _ = limiter.check("ann", 1).await;
                limiter.unblock("ann").await.ok();
                limiter.reset("ann").await.unwrap();
                let _ = limiter.unblock("ann").await;
                let told = limiter.check("ann", 1).await.unwrap();
                assert!(told.is_allowed(), "{}: {text}", policy.name());
                assert_eq!(used(&told), [1], "{}: {text}", policy.name());
            }
        }
    }
}

/// A proxy, or a server of another kind.
#[tokio::test]
async fn answers_that_no_script_gives_are_errors() {
    for answer in [
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "*3\r\n:1\r\n:1\r\n:0\r\n",
        "*4\r\n:1\r\n:1\r\n:0\r\n$5\r\n0 0 0\r\n",
        "$5\r\n0 0 0\r\n",
        "$9\r\n1;1;0 0 0\r\n",
        "$12\r\n-1;1;0;0 0 0\r\n",
        "$12\r\n1;1;-7;0 0 0\r\n",
        "$11\r\n1;1;0;0 0 x\r\n",
        "$12\r\n1;1;0;0 0 \u{e9}\r\n",
        "$30\r\n1;1;0;0 0 999999999999999999\r\n",
        "$10\r\n1;1;0;-1 0\r\n",
        "$16\r\n1;1;0;=1 2|0 0 0\r\n",
        "$17\r\n1;1;0;0 0 0;1;0;0\r\n",
    ] {
        let server = StandIn::start(move |_| ScriptedReply::Break(answer));
        let limiter = limiter(&patient().open(server.url()).unwrap(), [daily("a", 5)]);
        let error = limiter.check("ann", 1).await.expect_err(answer);
        let kind = error.kind();
        let broken = answer.contains("$30");
        let expected = [StoreErrorKind::Misconfigured, StoreErrorKind::Unavailable];
        assert_eq!(
            kind,
            expected[usize::from(broken)],
            "{answer:?}: {}",
            story(&error)
        );
        assert_eq!(server.scripts().len(), 1);
    }
}

/// States of arbitrary numbers: the store decides, and nothing panics.
#[tokio::test]
async fn words_of_any_size_are_read_without_a_panic() {
    let most = u64::MAX.to_string();
    for words in [3, 5, 11] {
        for policy in every(5, MINUTE) {
            let text = vec![most.as_str(); words].join(" ");
            let longest = Micros::LONGEST.get();
            let answer =
                |text: String| -> &'static str { format!("${}\r\n{text}\r\n", text.len()).leak() };
            // A time that no server can have is an error.
            let absurd = answer(format!("{most};0;{most};{text}"));
            let server = StandIn::start(move |_| ScriptedReply::Say(absurd));
            let asked = limiter(&patient().open(server.url()).unwrap(), [policy.clone()]);
            let error = asked.check("ann", 1).await.unwrap_err();
            assert_eq!(error.reason(), Some("damaged state"));
            let possible = answer(format!("{longest};0;{longest};{text}"));
            let server = StandIn::start(move |_| ScriptedReply::Say(possible));
            let limiter = limiter(&patient().open(server.url()).unwrap(), [policy]);
            assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
            let _ = limiter.acquire_up_to("ann", 3).await;
            let _ = limiter.inspect("ann").await.unwrap().to_string();
        }
    }
}

#[tokio::test]
async fn transient_errors_of_a_server_are_unavailability_and_others_are_named() {
    let old = "-ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: ";
    let old = |code: &str| -> &'static str { format!("{old}-{code} of some sort\r\n").leak() };
    for (answer, kind, said) in [
        (
            "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
            false,
            "OOM",
        ),
        (
            "-LOADING Redis is loading the dataset in memory\r\n",
            false,
            "loading",
        ),
        ("-BUSY Redis is busy running a script.\r\n", false, "BUSY"),
        (
            "-MISCONF Errors writing to the AOF file\r\n",
            false,
            "MISCONF",
        ),
        ("-MASTERDOWN Link with MASTER is down\r\n", false, "MASTER"),
        (
            "-NOREPLICAS Not enough good replicas to write.\r\n",
            false,
            "NOREPLICAS",
        ),
        ("-CLUSTERDOWN Hash slot not served\r\n", false, "Hash slot"),
        (
            "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
            false,
            "rehashing",
        ),
        (
            "-READONLY You can't write against a read only replica.\r\n",
            false,
            "read only",
        ),
        (old("OOM"), false, "OOM"),
        (old("READONLY"), false, "READONLY"),
        (old("MISCONF"), false, "MISCONF"),
        (old("WRONGTYPE"), true, "WRONGTYPE"),
        ("-NOAUTH Authentication required.\r\n", true, "NOAUTH"),
        (
            "-NOPERM this user has no permissions\r\n",
            true,
            "permissions",
        ),
        (
            "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
            true,
            "slot",
        ),
        ("-ERR unknown command 'EVALSHA'\r\n", true, "EVALSHA"),
        ("-MOVED 12182 127.0.0.1:7001\r\n", true, "cluster"),
        ("-ASK 12182 127.0.0.1:7001\r\n", true, "cluster"),
    ] {
        let server = StandIn::start(move |_| ScriptedReply::Say(answer));
        let limiter = limiter(&patient().open(server.url()).unwrap(), [daily("a", 5)]);
        let error = limiter.check("ann", 1).await.unwrap_err();
        let is_misconfigured = error.kind() == StoreErrorKind::Misconfigured;
        assert_eq!(is_misconfigured, kind, "{answer}: {}", story(&error));
        assert!(story(&error).contains(said), "{answer}: {}", story(&error));
        assert_eq!(server.scripts().len(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_server_without_memory_is_unavailable_and_says_why() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let (store, policy) = (store(&server), daily("a", 5));
    let limiter = limiter(&store, [policy]);
    assert!(limiter.check("ann", 5).await.unwrap().is_allowed());
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = limiter.check("bob", 1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(
        error.is_transient() && story(&error).contains("OOM"),
        "{}",
        story(&error)
    );
    // A request that writes nothing is decided, and a command that frees memory is executed.
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    assert_eq!(used(&limiter.peek("bob", 1).await.unwrap()), [1]);
    limiter.reset("ann").await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(used(&limiter.check("ann", 1).await.unwrap()), [1]);
}

//! The errors of Redis, as errors of a store with a reason.

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};

use tower_ratelimit_core::error::{StoreError, StoreErrorKind};
use tower_ratelimit_core::store::DAMAGED;

/// Converts the error of a failed call.
pub(super) fn failure(error: RedisError) -> StoreError {
    let (kind, reason) = cause(&error);
    StoreError::new(kind).because(reason).caused_by(error)
}

/// Converts the failure of a call with these answers to its requests. The call has failed if the server could
/// not decide one of them.
pub(super) fn failure_of<'a, T: 'a>(
    answers: impl IntoIterator<Item = &'a RedisResult<T>>,
) -> Option<StoreError> {
    let errors = answers
        .into_iter()
        .filter_map(|answer| answer.as_ref().err());
    let mut errors = errors.map(|error| failure(error.clone()));
    errors.find(|error| !is_of_a_key(error))
}

pub(super) const NOT_READ: &str = "the script's answer is not what this version reads";

/// Returns the error for an answer that the scripts never give.
pub(super) fn nonsense(about: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured)
        .because(DAMAGED)
        .caused_by(about)
}

/// The error when the runtime has ended before the answer came.
pub(super) fn interrupted() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable)
        .because("interrupted")
        .caused_by("the runtime has ended")
}

/// The error when a server has only a part of the keys.
pub(super) fn of_a_cluster() -> RedisError {
    let detail = "the server is a node of a cluster";
    (
        ErrorKind::InvalidClientConfig,
        detail,
        AS_A_CLUSTER.to_owned(),
    )
        .into()
}

/// Returns whether the configuration has to be corrected, though some requests are decided.
pub(super) fn is_of_some(error: &StoreError) -> bool {
    is_of_a_key(error) || error.reason() == Some(NODE)
}

/// Returns whether the error concerns one key or one policy, and not the server.
pub(super) fn is_of_a_key(error: &StoreError) -> bool {
    matches!(
        error.reason(),
        Some(DAMAGED | WRONG_TYPE | CROSS_SLOT | CLOCKS)
    )
}

const NODE: &str = "a node of a cluster";
const AS_A_CLUSTER: &str = "open it as one, with `open_cluster`";
const WRONG_TYPE: &str = "wrong type";
const CROSS_SLOT: &str = "cross slot";
const CLOCKS: &str = "clocks differ";

/// Returns whether the server may not write: as a replica, or as a primary whose replicas follow another one,
/// which is the previous primary after a failover.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    matches!(code(error), "READONLY" | "MASTERDOWN" | "NOREPLICAS")
}

/// Returns whether the user may not do this, as servers of several versions report it of a command in a
/// script.
pub(super) fn is_forbidden(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
        || said.contains("ACL failure")
        || said.contains("can't run this command")
}

/// Returns the server's code of the error.
fn code(error: &RedisError) -> &str {
    /// Redis 6.2 reports these as `ERR` if a script has met them; the code then stands in the message.
    const INSIDE: [&str; 5] = ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE"];
    let said = error.detail().unwrap_or_default();
    let inside = INSIDE
        .into_iter()
        .find(|code| said.contains(&format!(": -{code} ")));
    inside.or(error.code()).unwrap_or_default()
}

/// Returns whether waiting can help, and the name of the reason.
fn cause(error: &RedisError) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Misconfigured, Unavailable};
    match error.kind() {
        ErrorKind::AuthenticationFailed => (Misconfigured, "wrong password"),
        ErrorKind::InvalidClientConfig if error.detail() == Some(AS_A_CLUSTER) => {
            (Misconfigured, NODE)
        }
        ErrorKind::InvalidClientConfig => (Misconfigured, "misconfigured"),
        ErrorKind::MasterNameNotFoundBySentinel => (Misconfigured, "unknown master"),
        ErrorKind::UnexpectedReturnType => (Misconfigured, DAMAGED),
        ErrorKind::Server(_) | ErrorKind::Extension => match code(error) {
            "OOM" => (Unavailable, "out of memory"),
            "READONLY" => (Unavailable, "read only"),
            "LOADING" => (Unavailable, "loading"),
            "BUSY" | "UNKILLABLE" => (Unavailable, "busy"),
            "MISCONF" => (Unavailable, "cannot persist"),
            "NOREPLICAS" => (Unavailable, "no replicas"),
            "MASTERDOWN" => (Unavailable, "primary down"),
            "CLUSTERDOWN" => (Unavailable, "cluster down"),
            "TRYAGAIN" => (Unavailable, "slot is moving"),
            "MOVED" | "ASK" => (Unavailable, "slot has moved"),
            "NOSCRIPT" => (Unavailable, "unknown script"),
            "CROSSSLOT" => (Misconfigured, CROSS_SLOT),
            "WRONGTYPE" => (Misconfigured, WRONG_TYPE),
            "NOAUTH" => (Misconfigured, "no password"),
            "WRONGPASS" => (Misconfigured, "wrong password"),
            "NOPERM" => (Misconfigured, "no permission"),
            _ if is_forbidden(error) => (Misconfigured, "no permission"),
            "ERR" => of_a_script(error),
            _ => (Unavailable, "refused"),
        },
        _ if error.is_timeout() => (Unavailable, "timed out"),
        _ if error.is_connection_refusal() => (Unavailable, "unreachable"),
        ErrorKind::ClusterConnectionNotFound => (Unavailable, "unreachable"),
        _ if error.is_connection_dropped() => (Unavailable, "disconnected"),
        _ => (Unavailable, certificate(error).unwrap_or("unreachable")),
    }
}

/// Returns what is wrong with the certificate of the server, as rustls says it.
fn certificate(error: &RedisError) -> Option<&'static str> {
    let said = error.to_string();
    let (_, problem) = said.split_once("invalid peer certificate: ")?;
    Some(match problem.to_ascii_lowercase() {
        it if it.contains("expired")
            || it.contains("not valid yet")
            || it.contains("notvalidyet") =>
        {
            "certificate out of date"
        }
        it if it.contains("not valid for name") || it.contains("notvalidforname") => {
            "certificate of another name"
        }
        _ => "untrusted certificate",
    })
}

/// Classifies errors without a code of their own, such as a script that fails on the value under a key.
fn of_a_script(error: &RedisError) -> (StoreErrorKind, &'static str) {
    let said = error.detail().unwrap_or_default();
    if said.contains("the clock of the node differs") {
        (StoreErrorKind::Misconfigured, CLOCKS)
    } else if said.contains("user_script:") {
        (StoreErrorKind::Misconfigured, DAMAGED)
    } else if said.contains("max number of clients") {
        (StoreErrorKind::Unavailable, "too many clients")
    } else if said.contains("unauthenticated") {
        // In a call with more than ten arguments, or a long one, the server first rejects their number.
        (StoreErrorKind::Misconfigured, "no password")
    } else {
        (StoreErrorKind::Misconfigured, "script failed")
    }
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    /// Returns the store's error for this line of a server.
    fn error_of(line: &str) -> StoreError {
        let value: Value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        failure(value.extract_error().unwrap_err())
    }

    const UNAVAILABLE: [(&str, &str); 15] = [
        (
            "READONLY You can't write against a read only replica.",
            "read only",
        ),
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("MOVED 3999 127.0.0.1:6381", "slot has moved"),
        ("ASK 3999 127.0.0.1:6381", "slot has moved"),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "slot is moving",
        ),
        ("CLUSTERDOWN Hash slot not served", "cluster down"),
        ("MASTERDOWN Link with MASTER is down", "primary down"),
        (
            "NOREPLICAS Not enough good replicas to write.",
            "no replicas",
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            "cannot persist",
        ),
        ("BUSY Redis is busy running a script.", "busy"),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            "out of memory",
        ),
        (
            "ERR Error running script (call to f_4a): @user_script:1: -OOM command not allowed",
            "out of memory",
        ),
        ("ERR max number of clients reached", "too many clients"),
        (
            "NOSCRIPT No matching script. Please use EVAL.",
            "unknown script",
        ),
        ("SOMETHING new", "refused"),
    ];

    const MISCONFIGURED: [(&str, &str); 13] = [
        (
            "ERR user_script:61: the clock of the node differs by more than half a window of its calendar",
            "clocks differ",
        ),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            "cross slot",
        ),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "wrong type",
        ),
        (
            "ERR Error running script (call to f_4a): @user_script:1: -WRONGTYPE Operation",
            "wrong type",
        ),
        (
            "NOPERM User limiter has no permissions to run the 'set' command",
            "no permission",
        ),
        (
            "ERR ACL failure in script: User limiter has no permissions",
            "no permission",
        ),
        ("NOAUTH Authentication required.", "no password"),
        (
            "ERR Protocol error: unauthenticated multibulk length",
            "no password",
        ),
        (
            "ERR Protocol error: unauthenticated bulk length",
            "no password",
        ),
        (
            "WRONGPASS invalid username-password pair or user is disabled.",
            "wrong password",
        ),
        (
            "ERR user_script:57: no state is under the key a; reset it",
            "damaged state",
        ),
        (
            "ERR user_script:9: attempt to compare nil with number script: 4a",
            "damaged state",
        ),
        ("ERR unknown command 'EVALSHA'", "script failed"),
    ];

    /// As Redis 7.0 reports them; some as 6.2 does in a script, with the code inside.
    #[test]
    fn each_reply_of_a_server_in_trouble_has_a_name() {
        use StoreErrorKind::{Misconfigured, Unavailable};
        let transient = UNAVAILABLE.map(|reason| (reason, Unavailable));
        let lasting = MISCONFIGURED.map(|reason| (reason, Misconfigured));
        for ((line, reason), kind) in transient.into_iter().chain(lasting) {
            let error = error_of(line);
            assert_eq!(
                (error.kind(), error.reason()),
                (kind, Some(reason)),
                "{line}"
            );
        }
    }

    /// Once, an operator was told that the server was unreachable, and to check that it runs.
    #[test]
    fn a_certificate_that_is_not_accepted_has_a_reason_of_its_own() {
        for (said, reason) in [
            (
                "certificate expired: verification time 1795203711 (UNIX), but certificate is not valid after 946684800",
                "certificate out of date",
            ),
            ("Expired", "certificate out of date"),
            ("NotValidYet", "certificate out of date"),
            (
                "certificate not valid for name \"127.0.0.1\"; certificate is only valid for DnsName(\"redis\")",
                "certificate of another name",
            ),
            ("UnknownIssuer", "untrusted certificate"),
        ] {
            let said = format!("invalid peer certificate: {said}");
            let detail = std::io::Error::new(std::io::ErrorKind::InvalidData, said);
            let error = failure(RedisError::from(detail));
            assert_eq!(error.reason(), Some(reason));
        }
    }

    #[test]
    fn an_error_about_one_key_says_nothing_of_the_server() {
        let all = UNAVAILABLE.iter().chain(&MISCONFIGURED);
        for (line, reason) in all {
            let of_a_key = ["cross slot", "wrong type", "damaged state", "clocks differ"];
            let is_so = of_a_key.contains(reason);
            assert_eq!(is_of_a_key(&error_of(line)), is_so, "{line}");
        }
        assert!(is_of_a_key(&nonsense("a text")));
    }

    #[test]
    fn a_node_of_a_cluster_is_told_from_what_else_is_configured_wrongly() {
        let node = failure(of_a_cluster());
        assert_eq!(node.reason(), Some("a node of a cluster"));
        assert!(is_of_some(&node));
        let other = RedisError::from((ErrorKind::InvalidClientConfig, "no address"));
        let other = failure(other);
        assert_eq!(other.reason(), Some("misconfigured"));
        assert!(!is_of_some(&other));
    }
}

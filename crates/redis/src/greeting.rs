use redis::Value;

use super::failure::{failure, is_forbidden, of_a_cluster};
use super::link::Link;
use tower_ratelimit_core::error::{StoreError, StoreErrorKind};

/// The first versions that have what the scripts use.
const REDIS: (u32, u32) = (6, 2);
const VALKEY: (u32, u32) = (7, 2);

/// Checks that the server answers, and is new enough.
pub(super) async fn greet(link: &Link) -> Result<(), StoreError> {
    let mut info = redis::cmd("EVAL");
    // In a cluster, some node answers.
    info.arg("return redis.call('INFO', 'server')").arg(0);
    match link.send(info, link.deadline()).await {
        Ok(Value::BulkString(info)) => {
            let info = String::from_utf8_lossy(&info);
            check(&info)?;
            if is_of_a_cluster(&info) && !link.is_divided() {
                return Err(failure(of_a_cluster()));
            }
            Ok(())
        }
        Ok(_) => Ok(()),
        // A user without permission to ask for the version may still have all permissions that are needed.
        Err(error) if is_forbidden(&error) => Ok(()),
        Err(error) => Err(failure(error)),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

/// Valkey has another name for it.
fn is_of_a_cluster(info: &str) -> bool {
    let mut modes = ["redis_mode", "server_mode"].into_iter();
    modes.any(|name| field(info, name) == Some("cluster"))
}

fn check(info: &str) -> Result<(), StoreError> {
    let field = |name| field(info, name);
    let (server, version, least) = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => ("Valkey", version, VALKEY),
        (None, Some(version)) => ("Redis", version, REDIS),
        (None, None) => return Ok(()),
    };
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < least => {
            let cause = format!(
                "the server is {server} {major}.{minor}; use Redis {}.{} or newer, or Valkey {}.{} or newer",
                REDIS.0, REDIS.1, VALKEY.0, VALKEY.1
            );
            Err(StoreError::new(StoreErrorKind::Misconfigured).caused_by(cause))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, ServerErrorKind};

    use super::*;

    #[test]
    fn servers_are_taken_from_the_first_version_that_has_what_is_used() {
        for (info, is_taken) in [
            ("redis_version:6.2.0\r\nredis_git_sha1:0", true),
            ("redis_version:7.0.15\r\n", true),
            ("redis_version:8.8.0\r\n", true),
            ("redis_version:6.0.16\r\n", false),
            ("redis_version:5.0.14\r\n", false),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n",
                true,
            ),
            ("redis_version:7.2.4\r\nvalkey_version:7.0.0\r\n", false),
            ("redis_version:unstable\r\n", true),
            ("", true),
        ] {
            assert_eq!(check(info).is_ok(), is_taken, "{info}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_is_known_by_the_name_of_each_server() {
        for (info, is_one) in [
            ("redis_version:7.0.15\r\nredis_mode:cluster\r\n", true),
            ("redis_version:7.0.15\r\nredis_mode:standalone\r\n", false),
            ("valkey_version:9.1.2\r\nserver_mode:cluster\r\n", true),
            ("valkey_version:9.1.2\r\nserver_mode:standalone\r\n", false),
            ("redis_version:6.2.0\r\n", false),
        ] {
            assert_eq!(is_of_a_cluster(info), is_one, "{info}");
        }
    }

    /// The messages of Redis 6.2 and 7.0, and of 7.2 and Valkey.
    #[test]
    fn a_user_without_permission_to_ask_for_the_version_is_known_by_the_answer() {
        let error = |text: &str| {
            let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
            redis::RedisError::from((
                kind,
                "An error was signalled by the server",
                text.to_owned(),
            ))
        };
        for text in [
            "The user executing the script can't run this command or subcommand script: 46dfc6",
            "ACL failure in script: User limiter has no permissions to run the 'info' command",
        ] {
            assert!(is_forbidden(&error(text)), "{text}");
        }
        assert!(!is_forbidden(&error("unknown command 'EVAL'")));
    }

    #[test]
    fn an_old_server_is_named_with_what_would_do() {
        let error = check("redis_version:6.0.16\r\n").unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(
            cause,
            "the server is Redis 6.0; use Redis 6.2 or newer, or Valkey 7.2 or newer"
        );
    }
}

//! Finds the master by its sentinels.

use redis::{
    ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, Role, ServerErrorKind,
    parse_redis_url,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::place;
use super::address::{host, moved};
use super::connection::Connection;
use super::failure::failure;
use super::login::Login;
use super::promise::timed_out;
use super::reconnecting::CONNECTING;
use tower_ratelimit_core::error::{ConfigError, StoreErrorKind};

/// The sentinels, which know which server is the master.
#[derive(Clone)]
pub(super) struct Sentinels {
    /// The sentinels' name of the master.
    name: String,
    /// The master first, at that name in place of its address, and then the sentinels.
    login: Login,
}

/// The result of a step towards the master.
enum Step {
    Named(String, u16),
    Connected(Connection),
}

/// Why there is no master, from the least to the most specific reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    SentinelIsAway,
    SentinelRefuses,
    NameIsUnknown,
    MasterFails,
}

type Outcome<T> = Result<T, (Fault, RedisError)>;

impl Sentinels {
    pub(super) fn new<U: AsRef<str>>(
        master: &str,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Self, ConfigError> {
        let (name, master) = parse_master(master)?;
        let urls = urls.into_iter();
        let addresses: Result<Vec<_>, _> = urls.map(|url| parse_sentinel(url.as_ref())).collect();
        let addresses = addresses?;
        if addresses.is_empty() {
            let remedy = "give the address of one at least, better of all";
            return Err(ConfigError::new("sentinels", "an empty list", remedy));
        }
        Ok(Self {
            name,
            login: Login::new(master, addresses),
        })
    }

    pub(super) fn login(&self) -> Login {
        self.login.clone()
    }

    /// Returns the name of the store in the log: the master and its sentinels.
    pub(super) fn named(&self) -> String {
        let sentinels = self.login.others();
        let sentinels: Vec<_> = sentinels.iter().map(|info| place(info.addr())).collect();
        format!("{} of the sentinels {}", self.name, sentinels.join(", "))
    }

    /// Asks all sentinels at once, so that one that does not answer causes no delay, and takes the first
    /// named server that reports itself as the master: during a failover the sentinels may name several.
    pub(super) async fn connect(self) -> RedisResult<Connection> {
        let mut steps = JoinSet::new();
        let master = self.login.first();
        for sentinel in self.login.others() {
            steps.spawn(ask(sentinel, self.name.clone()));
        }
        let mut named = Vec::new();
        let mut failed: Option<(Fault, RedisError)> = None;
        while let Some(step) = steps.join_next().await {
            match step {
                Ok(Ok(Step::Connected(connection))) => return Ok(connection),
                Ok(Ok(Step::Named(host, port))) => {
                    let place = (host, port);
                    if !named.contains(&place) {
                        steps.spawn(connect(moved(&master, &place.0, port)));
                        named.push(place);
                    }
                }
                Ok(Err((fault, error))) => {
                    if failed.as_ref().is_none_or(|(known, _)| fault > *known) {
                        failed = Some((fault, error));
                    }
                }
                // The runtime has ended.
                Err(_) => {}
            }
        }
        let error = failed.map(|(_, error)| error);
        Err(error.unwrap_or_else(|| (ErrorKind::Io, "no sentinel was asked").into()))
    }
}

async fn ask(sentinel: ConnectionInfo, name: String) -> Outcome<Step> {
    let at = sentinel.addr().to_string();
    let answer = async {
        let mut connection = Connection::open(&sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&name);
        connection.query(&command).await
    };
    match in_time(answer).await {
        Ok(Some((host, port))) => Ok(Step::Named(host, port)),
        Ok(None) => {
            let what = "the sentinels know no master of this name";
            let error = (ErrorKind::MasterNameNotFoundBySentinel, what, name).into();
            Err((Fault::NameIsUnknown, error))
        }
        Err(error) if is_lasting(&error) => {
            let error = explain(
                "a sentinel does not say which server is the master",
                &at,
                &error,
            );
            Err((Fault::SentinelRefuses, error))
        }
        Err(error) => {
            let error = explain("no sentinel answers", &at, &error);
            Err((Fault::SentinelIsAway, error))
        }
    }
}

async fn connect(master: ConnectionInfo) -> Outcome<Step> {
    let at = master.addr().to_string();
    let step = async {
        let mut connection = Connection::open(&master).await?;
        match connection.query(&redis::cmd("ROLE")).await {
            Ok(Role::Primary { .. }) => Ok(connection),
            Ok(_) => Err((ErrorKind::Io, "it is a replica").into()),
            // Without permission to ask, the first write finds out.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
                Ok(connection)
            }
            Err(error) => Err(error),
        }
    };
    let connection = in_time(step).await;
    connection.map(Step::Connected).map_err(|error| {
        let error = explain(
            "the server that a sentinel names as the master",
            &at,
            &error,
        );
        (Fault::MasterFails, error)
    })
}

/// Limits both steps to less than an attempt to connect. Waiting longer for a master that hangs is useless,
/// since another server soon replaces it.
async fn in_time<T>(step: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let step = timeout(CONNECTING / 2, step).await;
    step.unwrap_or_else(|_| Err(timed_out()))
}

fn is_lasting(error: &RedisError) -> bool {
    failure(error.clone()).kind() == StoreErrorKind::Misconfigured
}

fn explain(what: &'static str, at: &str, error: &RedisError) -> RedisError {
    let kind = match error.kind() {
        kind @ ErrorKind::AuthenticationFailed => kind,
        _ if is_lasting(error) => ErrorKind::InvalidClientConfig,
        _ => ErrorKind::Io,
    };
    (kind, what, format!("{at}: {error}")).into()
}

/// Parses the name of the master, and how to connect to it.
fn parse_master(text: &str) -> Result<(String, ConnectionInfo), ConfigError> {
    let parsed = if text.contains("://") {
        text.into_connection_info()
    } else {
        (text, 0).into_connection_info()
    };
    let info = parsed.map_err(|error| bad_master(text, &error.to_string()))?;
    // The characters that the configuration of a sentinel accepts.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let name = host(&info).to_owned();
    if name.is_empty() || !name.bytes().all(fits) {
        let why = "a name is of letters and digits of ASCII, `.`, `-` and `_`";
        return Err(bad_master(text, why));
    }
    if parse_redis_url(text).is_some_and(|url| url.port().is_some()) {
        return Err(bad_master(text, "the sentinels know the port"));
    }
    Ok((name, info))
}

/// The default port of a sentinel.
const PORT: u16 = 26_379;

fn parse_sentinel(url: &str) -> Result<ConnectionInfo, ConfigError> {
    let parsed = url.into_connection_info();
    let info = parsed.map_err(|error| bad_sentinel(url, &error.to_string()))?;
    if info.redis_settings().db() != 0 {
        return Err(bad_sentinel(url, "a database is the master's"));
    }
    if parse_redis_url(url).is_some_and(|url| url.port().is_none()) {
        return Ok(moved(&info, host(&info), PORT));
    }
    Ok(info)
}

/// The text is not shown, since it may contain a password.
fn bad_master(text: &str, why: &str) -> ConfigError {
    let remedy = format!(
        "write the name that the sentinels know it by, or redis://[user:password@]name[/database], or with feature \
         `redis-tls` rediss:// in place of redis:// ({why})",
    );
    ConfigError::new(
        "master",
        format_args!("a text of {} bytes", text.len()),
        remedy,
    )
}

fn bad_sentinel(url: &str, why: &str) -> ConfigError {
    let remedy = format!(
        "write redis://[user:password@]host[:port], or with feature `redis-tls` rediss:// in place of redis:// ({why})",
    );
    ConfigError::new(
        "sentinels",
        format_args!("a text of {} bytes", url.len()),
        remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_listens_where_its_address_says_or_else_where_sentinels_do() {
        for (url, address) in [
            ("redis://10.0.0.1", "10.0.0.1:26379"),
            ("redis://ann:password@sentinel-1/", "sentinel-1:26379"),
            ("redis://[::1]/", "::1:26379"),
            ("redis://10.0.0.1:6379", "10.0.0.1:6379"),
            ("redis+unix:///run/sentinel", "/run/sentinel"),
        ] {
            let sentinel = parse_sentinel(url).unwrap();
            assert_eq!(sentinel.addr().to_string(), address);
        }
    }
}

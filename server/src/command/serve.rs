use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower_ratelimit::Quota;
use tower_ratelimit::config::Config;

use crate::forward::Upstream;
use crate::limits::Limits;
use crate::tls::Roots;
use crate::{BoxError, Gateway, sample, server};

/// The time that requests have to end after the signal to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(30);

/// What `--help` says below the flags.
const HELP: &str = "\
Without --upstream and --sample only /_limit/check is served, for the proxies that ask it.
A length of time is written as in the file of limits: 250ms, 3s, 1min.";

/// Limit requests, and forward them to a service or tell another proxy what to do with them
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Serve {
    /// The file of limits, which may change; without it each client address has 100 requests a minute
    limits: Option<PathBuf>,
    /// Where clients and proxies connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    listen: String,
    /// The service behind this one, `http://HOST:PORT` or `https://HOST:PORT`
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Serve a sample that describes each request, and no upstream
    #[arg(long, conflicts_with = "upstream")]
    sample: bool,
    /// A file in PEM: the certificates by which an upstream of `https` is trusted, and no others
    #[arg(long, value_name = "FILE", requires = "upstream")]
    upstream_ca: Option<PathBuf>,
    /// How long the upstream may neither answer nor take more of the request, and the client send no more of it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = length)]
    upstream_timeout: Duration,
    /// How many connections a client address has at once, if it is no proxy
    #[arg(long, value_name = "NUMBER", default_value_t = server::CLIENT_CONNECTIONS, value_parser = number)]
    client_connections: usize,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), BoxError> {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .init();
        Runtime::new()?.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), BoxError> {
        let limits = self.limits()?;
        let listener = TcpListener::bind(&self.listen).await;
        let listener = listener.map_err(|error| {
            let address = &self.listen;
            format!(
                "--listen: {address:?}: {error}; write an address and a free port, 127.0.0.1:3000"
            )
        })?;
        let upstream = self.upstream().await?;
        println!(
            "listening on http://{}, {}, with {}",
            listener.local_addr()?,
            match &upstream {
                Some(upstream) => format!("before {upstream}"),
                None => "for proxies that ask".to_owned(),
            },
            match &self.limits {
                Some(file) => format!("the limits of {}", file.display()),
                None => "the built-in limits".to_owned(),
            }
        );
        let gateway = Gateway::new(limits, upstream);
        let connections = self.client_connections;
        server::serve(listener, gateway, stop(), LAST_REQUESTS, connections).await;
        Ok(())
    }

    fn limits(&self) -> Result<Limits, BoxError> {
        let Some(file) = &self.limits else {
            return Limits::built_in();
        };
        let config = Config::read(file)?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(config.watch()?.into())
    }

    async fn upstream(&self) -> Result<Option<Upstream>, BoxError> {
        let roots = match &self.upstream_ca {
            Some(path) => Roots::File(path.clone()),
            None => Roots::Platform,
        };
        let url = if self.sample {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let url = format!("http://{}", listener.local_addr()?);
            tokio::spawn(sample::serve(listener, sample::is_credential));
            url
        } else if let Some(url) = &self.upstream {
            url.clone()
        } else {
            return Ok(None);
        };
        Ok(Some(Upstream::new(&url, &roots, self.upstream_timeout)?))
    }
}

/// Reads a length of time as a file of limits spells it.
fn length(text: &str) -> Result<Duration, &'static str> {
    let quota = format!("1/{text}").parse::<Quota>();
    quota
        .map(|quota| quota.period())
        .map_err(|_| "write a length of time such as 250ms, 2s or 1min")
}

fn number(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("write a whole number, from 1")
}

/// Ends when the program is told to stop.
async fn stop() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_spelled_as_in_the_file() {
        for (text, expected) in [("250ms", 250), ("3s", 3_000), ("1min", 60_000)] {
            assert_eq!(length(text), Ok(Duration::from_millis(expected)));
        }
        for wrong in ["0", "3", "-1s", "soon", ""] {
            length(wrong).unwrap_err();
        }
    }
}

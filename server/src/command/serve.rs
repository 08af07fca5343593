use std::future::IntoFuture;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;
use tower_ratelimit::Quota;
use tower_ratelimit::config::Config;

use super::address::Address;
use super::signals::Signals;
use crate::forward::Upstream;
use crate::limits::Limits;
use crate::ops::{self, Operators};
use crate::phase::{self, Phase};
use crate::tls::Roots;
use crate::token::Token;
use crate::{BoxError, Gateway, envoy, sample, server};

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
    /// Where clients and proxies connect, or `none`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    listen: Address,
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
    /// Where operators, probes and Prometheus connect, or `none`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3001")]
    ops: Address,
    /// Where Envoy asks over gRPC, or `none`
    #[arg(long, value_name = "ADDRESS", default_value = "none")]
    grpc: Address,
    /// The file of a token that opens `/status` and `/dashboard` to operators who are not on this machine
    #[arg(long, value_name = "FILE")]
    ops_token_file: Option<PathBuf>,
    /// A host name under which operators reach `/status` and `/dashboard`, beside those of this machine; with commas between several
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    ops_hosts: Vec<String>,
    /// Let operators block keys and change limits
    #[arg(long)]
    ops_writable: bool,
    /// Be ready although the store has never answered
    #[arg(long)]
    ready_without_store: bool,
    /// How long to serve on after SIGTERM, no longer ready, until load balancers have seen that
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = pause)]
    lame_duck: Duration,
    /// How long requests under way may then take to end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = pause)]
    drain: Duration,
    /// The form of the log on standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: Form,
}

/// The form of the log. A description of the values would make `--help` three times as long.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), BoxError> {
        let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
        match self.log {
            Form::Text => log.init(),
            Form::Json => log.json().flatten_event(true).init(),
        }
        let runtime = Runtime::new()?;
        let ended = runtime.block_on(self.serve());
        // What still runs is not waited for.
        runtime.shutdown_background();
        ended
    }

    async fn serve(self) -> Result<(), BoxError> {
        let mut signals = Signals::new()?;
        let limits = self.limits()?;
        let operators = self.operators()?;
        let listener = self.listen.listen("listen").await?;
        let ops = self.ops.listen("ops").await?;
        let grpc = self.grpc.listen("grpc").await?;
        if listener.is_none() && ops.is_none() && grpc.is_none() {
            return Err("--listen, --ops and --grpc are none: nothing would be served".into());
        }
        let upstream = self.upstream().await?;

        let phase = watch::Sender::new(Phase::Starting);
        if self.ready_without_store {
            phase.send_replace(Phase::Ready);
        } else {
            let limiter = limits.layer().limiter();
            tokio::spawn(phase::become_ready(phase.clone(), limiter));
        }
        if let Some(listener) = &listener {
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
        }
        if let Some(listener) = ops {
            println!("operators: http://{}/dashboard", listener.local_addr()?);
            let router = ops::router(&limits, operators, phase.subscribe());
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            // It answers until the process ends.
            tokio::spawn(axum::serve(listener, service).into_future());
        }

        if let Some(listener) = &grpc {
            println!("Envoy: {}", listener.local_addr()?);
        }
        let gateway = Gateway::new(limits.clone(), upstream).in_phase(phase.subscribe());
        let stop = watch::Sender::new(false);
        let stopped = || {
            let mut stop = stop.subscribe();
            async move { drop(stop.wait_for(|is_stopped| *is_stopped).await) }
        };
        let serving = async {
            let clients = async {
                match listener {
                    Some(listener) => {
                        let (gateway, connections) = (gateway.clone(), self.client_connections);
                        server::serve(listener, gateway, stopped(), self.drain, connections).await;
                    }
                    None => stopped().await,
                }
            };
            let calls = async {
                let Some(listener) = grpc else { return };
                let (gateway, phase) = (gateway.clone(), phase.subscribe());
                let served = envoy::serve(listener, gateway, phase, stopped(), self.drain).await;
                if let Err(error) = served {
                    tracing::error!("--grpc: {error}");
                }
            };
            tokio::join!(clients, calls);
            limits.config().give_leases_back().await;
        };
        let stopping = async {
            signals.stop(&limits).await;
            phase.send_replace(Phase::Draining);
            tracing::info!("stopping: unready, and serving for {:?}", self.lame_duck);
            tokio::select! {
                () = sleep(self.lame_duck) => {}
                () = signals.stop(&limits) => return,
            }
            stop.send_replace(true);
            signals.stop(&limits).await;
        };
        tokio::select! {
            () = serving => Ok(()),
            () = stopping => Err("a second signal ends the program at once".into()),
        }
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

    fn operators(&self) -> Result<Operators, BoxError> {
        let token = self
            .ops_token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        Ok(Operators::new(token, &self.ops_hosts, self.ops_writable))
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

/// Reads a length of time that may be none.
fn pause(text: &str) -> Result<Duration, &'static str> {
    match text {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        _ => length(text),
    }
}

fn number(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("write a whole number, from 1")
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

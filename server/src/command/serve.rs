use std::fmt;
use std::io::{stderr, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::error::ErrorKind;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_ratelimit::MemoryStore;
use tower_ratelimit_config::Config;
use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::address::Address;
use super::bounds::Bounds;
use super::descriptors::Descriptors;
use super::length::{length, pause};
use super::otlp::Export;
use super::signals::{Files, Signals};
use super::state_file::StateFile;
use super::systemd::{self, Handed};
use crate::certificate::{self, Certificate};
use crate::forward::Upstream;
use crate::gateway::REFUSALS;
use crate::limits::Limits;
use crate::ops::{self, Operators};
use crate::phase::{self, Phase};
use crate::ratelimit::{Mistakes, RateLimits};
use crate::server::{self, Answers, Server};
use crate::tls::Roots;
use crate::token::Token;
use crate::{BoxError, Gateway, envoy, sample};

/// The target of the addresses of listeners, which are on standard output.
const ADDRESSES: &str = "ratelimitd::addresses";

/// How long the upstream may be silent, unless a flag says otherwise.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Where clients and proxies connect: `HOST:PORT`, `unix:PATH`, `fd:NAME` for a socket of systemd, or `none`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    listen: Address,
    /// A file in PEM: the certificate by which `--listen` speaks TLS, and those that lead to its authority
    #[arg(long, value_name = "FILE", requires = "listen_key")]
    listen_certificate: Option<PathBuf>,
    /// A file in PEM: the key of that certificate
    #[arg(long, value_name = "FILE", requires = "listen_certificate")]
    listen_key: Option<PathBuf>,
    /// A file in PEM: the authorities by which clients of `--listen` need a certificate
    #[arg(long, value_name = "FILE", requires = "listen_certificate")]
    listen_client_ca: Option<PathBuf>,
    /// The service behind this one, `http://HOST:PORT` or `https://HOST:PORT`
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Serve a sample that describes each request, and no upstream
    #[arg(long)]
    sample: bool,
    /// A file in PEM: the certificates by which an upstream of `https` is trusted, and no others
    #[arg(long, value_name = "FILE", requires = "upstream")]
    upstream_ca: Option<PathBuf>,
    /// How long the upstream may neither answer nor take more of the request, and the client send no more of it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = length)]
    upstream_timeout: Duration,
    /// Where operators, probes and Prometheus connect, as for `--listen`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3001")]
    ops: Address,
    /// A file in PEM: the certificate by which `--ops` speaks TLS, and those that lead to its authority
    #[arg(long, value_name = "FILE", requires = "ops_key")]
    ops_certificate: Option<PathBuf>,
    /// A file in PEM: the key of that certificate
    #[arg(long, value_name = "FILE", requires = "ops_certificate")]
    ops_key: Option<PathBuf>,
    /// A file in PEM: the authorities by which clients of `--ops` need a certificate
    #[arg(long, value_name = "FILE", requires = "ops_certificate")]
    ops_client_ca: Option<PathBuf>,
    /// Where Envoy asks over gRPC, as for `--listen`
    #[arg(long, value_name = "ADDRESS", default_value = "none")]
    grpc: Address,
    /// A file in PEM: the certificate by which `--grpc` speaks TLS, and those that lead to its authority
    #[arg(long, value_name = "FILE", requires = "grpc_key")]
    grpc_certificate: Option<PathBuf>,
    /// A file in PEM: the key of that certificate
    #[arg(long, value_name = "FILE", requires = "grpc_certificate")]
    grpc_key: Option<PathBuf>,
    /// A file in PEM: the authorities by which clients of `--grpc` need a certificate
    #[arg(long, value_name = "FILE", requires = "grpc_certificate")]
    grpc_client_ca: Option<PathBuf>,
    #[command(flatten)]
    descriptors: Descriptors,
    /// The file of a token that opens `/status` and `/dashboard` to operators who are not on this machine
    #[arg(long, value_name = "FILE")]
    ops_token_file: Option<PathBuf>,
    /// A host name under which operators reach `/status` and `/dashboard`, beside those of this machine; with commas between several
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    ops_hosts: Vec<String>,
    /// Let operators block keys and change limits
    #[arg(long)]
    ops_writable: bool,
    /// The file that keeps what was used over a restart, with the store in this process
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Be ready although the store has never answered
    #[arg(long)]
    ready_without_store: bool,
    /// How long to serve on after SIGTERM, no longer ready, until load balancers have seen that
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = pause)]
    lame_duck: Duration,
    #[command(flatten)]
    bounds: Bounds,
    /// How many refused requests the log has in each second, for each policy
    #[arg(long, value_name = "NUMBER", default_value_t = REFUSALS)]
    log_refusals: u32,
    /// The form of the log on standard error, and of the addresses on standard output
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: Form,
    /// The collector that gets a span of each request over OTLP, `http://HOST:4318`; it takes a program with the feature `otlp`
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

const ALWAYS_READY: &str = "--ready-without-store: the limits have their state in this process, which is always ready; leave out the \
     flag, or name LIMITS with a table `store`";

/// What is wrong with a flag about descriptors, and one remedy.
const ASKED_BY_NONE: &str = "nothing can ask about descriptors; give --grpc an address, or --listen one without --upstream and --sample, \
     which has /json";

/// The form of the log. A description of the values would make `--help` three times as long.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// An error that is in the log.
#[derive(Debug)]
pub(super) struct Logged;

impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the log says why the server has ended")
    }
}

impl std::error::Error for Logged {}

impl Serve {
    /// Clap would take a switch for set that its variable turns off.
    pub(super) fn refuse_what_excludes_another(
        &self,
        grammar: &mut clap::Command,
    ) -> Result<(), clap::Error> {
        if self.sample && self.upstream.is_some() {
            let message = "the argument '--sample' cannot be used with '--upstream <URL>'\n";
            return Err(grammar.error(ErrorKind::ArgumentConflict, message));
        }
        Ok(())
    }

    pub(super) fn run(self) -> Result<(), BoxError> {
        let log = tracing_subscriber::fmt();
        // h2 warns of each connection that it ends, so a flood of them would be one of lines.
        let levels = Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target("h2", LevelFilter::ERROR);
        let form = self.log;
        match form {
            Form::Text => log.with_writer(stderr).finish().with(levels).init(),
            Form::Json => {
                let is_address = |of: &Metadata<'_>| of.target() == ADDRESSES;
                let log = log.with_writer(stdout.with_filter(is_address).or_else(stderr));
                log.json().flatten_event(true).finish().with(levels).init();
            }
        }
        let handed = Handed::from_env();
        let ended = Runtime::new().map_err(Into::into).and_then(|runtime| {
            let ended = runtime.block_on(self.serve(handed));
            // What still runs is not waited for.
            runtime.shutdown_background();
            ended
        });
        match (form, ended) {
            (Form::Json, Err(error)) => {
                tracing::error!("{error}");
                Err(Logged.into())
            }
            (_, ended) => ended,
        }
    }

    async fn serve(self, mut handed: Handed) -> Result<(), BoxError> {
        let mut signals = Signals::new()?;
        self.refuse_what_does_nothing()?;
        let (limits, state) = self.limits()?;
        let rate_limits = self.rate_limits(&limits)?;
        let token = self
            .ops_token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        let operators = Operators::new(token.clone(), &self.ops_hosts, self.ops_writable);
        let [certificate, ops_certificate, grpc_certificate] = self.certificates()?;
        let upstream = self.upstream().await?;
        let export = Export::start(self.otlp_endpoint.as_deref())?;
        let socket = self.listen.listen("listen", &mut handed).await?;
        let ops_socket = self.ops.listen("ops", &mut handed).await?;
        let grpc_socket = self.grpc.listen("grpc", &mut handed).await?;
        if socket.is_none() && ops_socket.is_none() && grpc_socket.is_none() {
            return Err("--listen, --ops and --grpc are none: nothing would be served".into());
        }
        if let Some(adapt) = limits.config().adapt() {
            tokio::spawn(adapt.run());
        }

        let phase = self.begin(&limits, rate_limits.as_ref());
        if let Some(socket) = &socket {
            let url = socket.url(certificate.is_some(), "");
            self.announce(&url, upstream.as_ref());
        }
        if let Some(socket) = &ops_socket {
            let url = socket.url(ops_certificate.is_some(), "/dashboard");
            self.tell(&format!("operators: {url}"));
        }
        if let Some(socket) = &grpc_socket {
            let url = socket.url(grpc_certificate.is_some(), "");
            self.tell(&format!("Envoy: {url}"));
        }
        self.bounds.open_files();
        let certificates = [&certificate, &ops_certificate, &grpc_certificate];
        let files = Files {
            limits: limits.clone(),
            rate_limits: rate_limits.clone(),
            certificates: certificates.into_iter().flatten().cloned().collect(),
            token,
        };
        files.follow();
        let bounds = server::Bounds::from(&self.bounds);
        let server =
            |certificate| Server::new(bounds.clone(), phase.subscribe()).over_tls(certificate);
        let gateway = self.gateway(&limits, upstream, rate_limits.clone());
        let gateway = gateway.trace(export.as_ref().map(Export::spans));
        let mut listeners = Vec::new();
        if let Some(socket) = socket {
            let answers = Answers::Gateway(gateway.clone());
            listeners.push(("listen", server(certificate), socket, answers));
        }
        if let Some(socket) = grpc_socket {
            let answers = Answers::Envoy(envoy::router(gateway, phase.subscribe())?);
            let server = server(grpc_certificate).streams(envoy::STREAMS);
            listeners.push(("grpc", server, socket, answers));
        }
        if let Some(socket) = ops_socket {
            // It answers until the process ends.
            let ops = Server::new(bounds.clone(), watch::channel(Phase::Ready).1);
            let ops = ops.over_tls(ops_certificate);
            let servers = listeners.iter().map(|(flag, server, ..)| (*flag, server));
            let servers = servers.chain([("ops", &ops)]);
            let servers = servers.map(|(flag, server)| (flag, server.clone()));
            let limits = (&limits, rate_limits);
            let router = ops::router(limits, operators, phase.subscribe(), servers.collect());
            tokio::spawn(ops.serve(socket, Answers::Operators(router)));
        }
        if let Some(state) = state.clone() {
            tokio::spawn(state.keep());
        }
        systemd::ready();
        tokio::spawn(systemd::watchdog());

        let stopped = server(None);
        let serving = async {
            let mut serving = JoinSet::new();
            for (_, server, socket, answers) in listeners {
                serving.spawn(server.serve(socket, answers));
            }
            stopped.stopped().await;
            let drained = Instant::now() + bounds.drain;
            serving.join_all().await;
            limits.config().give_leases_back().await;
            if let Some(state) = &state {
                state.save().await;
            }
            if let Some(export) = export {
                let left = drained.saturating_duration_since(Instant::now());
                export.end(left).await;
            }
        };
        tokio::select! {
            () = serving => Ok(()),
            () = self.stop(&mut signals, &files, &phase) => {
                Err("a second signal ends the program at once".into())
            }
        }
    }

    fn gateway(
        &self,
        limits: &Limits,
        upstream: Option<Upstream>,
        rate_limits: Option<RateLimits>,
    ) -> Gateway {
        Gateway::new(limits.clone(), upstream)
            .log_refusals(self.log_refusals)
            .answer_descriptors(rate_limits)
            .time(self.descriptors.time())
    }

    /// Returns the first phase, which ends once the store has answered.
    fn begin(&self, limits: &Limits, descriptors: Option<&RateLimits>) -> watch::Sender<Phase> {
        let phase = watch::Sender::new(Phase::Starting);
        if self.ready_without_store {
            phase.send_replace(Phase::Ready);
        } else {
            let limiter = limits.layer().limiter();
            let ready = phase::become_ready(phase.clone(), limiter, descriptors.cloned());
            tokio::spawn(ready);
        }
        phase
    }

    /// Takes the server through its last phases, until a second signal.
    async fn stop(&self, signals: &mut Signals, files: &Files, phase: &watch::Sender<Phase>) {
        signals.stop(files).await;
        phase.send_replace(Phase::Draining);
        systemd::stopping();
        tracing::info!("stopping: unready, and serving for {:?}", self.lame_duck);
        tokio::select! {
            () = sleep(self.lame_duck) => {}
            () = signals.stop(files) => return,
        }
        phase.send_replace(Phase::Stopped);
        signals.stop(files).await;
    }

    /// Tells an address on standard output, in the form of the log.
    fn tell(&self, address: &str) {
        match self.log {
            Form::Text => println!("{address}"),
            Form::Json => tracing::info!(target: ADDRESSES, "{address}"),
        }
    }

    fn announce(&self, url: &str, upstream: Option<&Upstream>) {
        self.tell(&format!(
            "listening on {url}, {}, with {}",
            match upstream {
                Some(upstream) => format!("before {upstream}"),
                None => "for proxies that ask".to_owned(),
            },
            match (&self.limits, &self.descriptors.ratelimit_config) {
                (Some(file), _) => format!("the limits of {}", file.display()),
                (None, Some(directory)) => format!("the descriptors of {}", directory.display()),
                (None, None) => "the built-in limits".to_owned(),
            }
        ));
    }

    /// Refuses flags that another one leaves without an effect.
    fn refuse_what_does_nothing(&self) -> Result<(), String> {
        let is_nowhere = |address: &Address| matches!(address, Address::Nowhere);
        let has_upstream = self.sample || self.upstream.is_some();
        let of_listen = [
            ("--upstream", self.upstream.is_some()),
            ("--sample", self.sample),
        ];
        let of_operators = [
            ("--ops-token-file", self.ops_token_file.is_some()),
            ("--ops-hosts", !self.ops_hosts.is_empty()),
            ("--ops-writable", self.ops_writable),
        ];
        let given = |flags: &[(&'static str, bool)]| {
            let mut flags = flags.iter();
            flags.find_map(|(flag, is_given)| is_given.then_some(*flag))
        };
        if let (true, Some(flag)) = (is_nowhere(&self.listen), given(&of_listen)) {
            return Err(format!(
                "{flag}: --listen is none, so no client's request would be forwarded; give --listen an address, or leave out {flag}"
            ));
        }
        if let (true, Some(flag)) = (is_nowhere(&self.ops), given(&of_operators)) {
            return Err(format!(
                "{flag}: --ops is none, so there is nothing for operators; give --ops an address, or leave out {flag}"
            ));
        }
        let is_https = self.upstream.as_deref().is_some_and(|url| {
            let scheme = url.get(..8).unwrap_or_default();
            scheme.eq_ignore_ascii_case("https://")
        });
        if self.upstream_ca.is_some() && !is_https {
            return Err(
                "--upstream-ca: the URL of --upstream is not one of https, so nothing there has a certificate; write https://, or leave \
                 out --upstream-ca"
                    .to_owned(),
            );
        }
        let is_asked = !is_nowhere(&self.grpc) || !is_nowhere(&self.listen) && !has_upstream;
        if self.descriptors.ratelimit_config.is_some() && !is_asked {
            return Err(format!("--ratelimit-config: {ASKED_BY_NONE}"));
        }
        if self.upstream_timeout != UPSTREAM_TIMEOUT && self.upstream.is_none() {
            return Err(
                "--upstream-timeout: nothing is forwarded; name the service by --upstream, or leave out --upstream-timeout"
                    .to_owned(),
            );
        }
        self.bounds.refuse_what_does_nothing()?;
        let certificates = [
            ("listen", &self.listen, &self.listen_certificate),
            ("ops", &self.ops, &self.ops_certificate),
            ("grpc", &self.grpc, &self.grpc_certificate),
        ];
        for (flag, address, certificate) in certificates {
            if certificate.is_some() && matches!(address, Address::Nowhere) {
                return Err(format!(
                    "--{flag}-certificate: --{flag} is none, so nothing speaks TLS there; give --{flag} an address, or leave out the \
                     certificate"
                ));
            }
        }
        let has_descriptors = self.limits.is_some() || self.descriptors.ratelimit_config.is_some();
        match self.descriptors.changed() {
            Some(flag) if !has_descriptors => Err(format!(
                "{flag} is about descriptors, and the built-in limits have none; name LIMITS or --ratelimit-config, or leave out the flag"
            )),
            Some(flag) if !is_asked => Err(format!("{flag}: {ASKED_BY_NONE}, or leave out {flag}")),
            _ => Ok(()),
        }
    }

    /// The built-in limits have no descriptors.
    fn rate_limits(&self, limits: &Limits) -> Result<Option<RateLimits>, Mistakes> {
        let are_some = self.limits.is_some() || self.descriptors.ratelimit_config.is_some();
        are_some.then(|| self.descriptors.read(limits)).transpose()
    }

    fn limits(&self) -> Result<(Limits, Option<StateFile>), BoxError> {
        let open = || self.state.as_deref().map(StateFile::open).transpose();
        let Some(file) = &self.limits else {
            if self.ready_without_store {
                return Err(ALWAYS_READY.into());
            }
            let state = open()?;
            let store = state.as_ref().map(StateFile::store);
            let limits = match self.descriptors.ratelimit_config {
                Some(_) => Limits::none(store),
                None => Limits::built_in(store),
            };
            return Ok((limits?, state));
        };
        let mut config = Config::read(file)?;
        let over = |store: MemoryStore| {
            // The file is right, so the one mistake that is left is that it has a store of its own.
            Config::builder().store(store).read(file).map_err(|_| {
                format!(
                    "--state: {} has a table `store`, and the state of Redis outlives this process; leave out the flag, or \
                     the table",
                    file.display()
                )
            })
        };
        if self.ready_without_store && over(MemoryStore::new()).is_ok() {
            return Err(ALWAYS_READY.into());
        }
        if self.state.is_some() {
            // Before the file of the state is touched.
            over(MemoryStore::new())?;
        }
        let state = open()?;
        if let Some(state) = &state {
            config = over(state.store())?;
        }
        // The layer logs those that have a code.
        let warnings = config.warnings().iter();
        for warning in warnings.filter(|it| !it.message().contains("(TRL")) {
            tracing::warn!("{warning}");
        }
        Ok((config.watch()?.into(), state))
    }

    /// Returns the certificates of `--listen`, `--ops` and `--grpc`.
    fn certificates(&self) -> Result<[Option<Certificate>; 3], String> {
        let read = |flag,
                    certificate: &Option<PathBuf>,
                    key: &Option<PathBuf>,
                    client_ca: &Option<PathBuf>| {
            let (Some(certificate), Some(key)) = (certificate.clone(), key.clone()) else {
                return Ok(None);
            };
            let files = certificate::Files {
                certificate,
                key,
                client_ca: client_ca.clone(),
            };
            Certificate::read(flag, files).map(Some)
        };
        Ok([
            read(
                "listen",
                &self.listen_certificate,
                &self.listen_key,
                &self.listen_client_ca,
            )?,
            read(
                "ops",
                &self.ops_certificate,
                &self.ops_key,
                &self.ops_client_ca,
            )?,
            read(
                "grpc",
                &self.grpc_certificate,
                &self.grpc_key,
                &self.grpc_client_ca,
            )?,
        ])
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

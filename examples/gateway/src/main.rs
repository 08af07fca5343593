//! The gateway as a program.
//!
//! `cargo run -p gateway`, with `UPSTREAM` (default: a small service of its own), `LIMITS` (default: `limits.toml` beside
//! this package), `ADDR` (default 127.0.0.1:3000) and `UPSTREAM_TIMEOUT` (default 60 seconds). An upstream of `https` is
//! trusted by the certificates of the platform, or by those of the file `UPSTREAM_CA`.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use gateway::tls::Roots;
use gateway::{Gateway, sample, server};
use tokio::net::TcpListener;
use tower_ratelimit::config::Config;

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");

/// The time that requests have to end after the signal to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let limits = env::var("LIMITS").unwrap_or_else(|_| LIMITS.to_owned());
    let config = Config::read(&limits)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let watched = config.watch()?;
    let upstream = if let Ok(upstream) = env::var("UPSTREAM") {
        upstream
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let upstream = format!("http://{}", listener.local_addr()?);
        tokio::spawn(sample::serve(listener));
        upstream
    };
    let timeout = match env::var("UPSTREAM_TIMEOUT") {
        Ok(seconds) => Duration::from_secs(
            seconds
                .parse()
                .ok()
                .filter(|seconds| *seconds > 0)
                .ok_or("UPSTREAM_TIMEOUT: write a whole number of seconds, from 1")?,
        ),
        Err(_) => Duration::from_secs(60),
    };
    let roots = env::var_os("UPSTREAM_CA").map_or(Roots::Platform, |path| Roots::File(path.into()));
    let gateway = Gateway::new(watched, &upstream, &roots, timeout)?;

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await;
    let listener = listener.map_err(|error| {
        format!("ADDR: {address:?}: {error}; write an address and a free port, 127.0.0.1:3000")
    })?;
    println!(
        "listening on http://{}, before {upstream}, with the limits of {limits}",
        listener.local_addr()?
    );
    server::serve(
        listener,
        gateway,
        stop(),
        LAST_REQUESTS,
        server::CLIENT_CONNECTIONS,
    )
    .await;
    Ok(())
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

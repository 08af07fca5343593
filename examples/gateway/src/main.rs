//! The gateway as a program.
//!
//! `gateway --help` lists its settings.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use gateway::settings::{Command, HELP, Settings};
use gateway::{Gateway, sample, server};
use tokio::net::TcpListener;
use tower_ratelimit::config::Config;

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
    match Command::read(env::args_os().skip(1), env::vars_os())? {
        Command::Help => print!("{HELP}"),
        Command::Version => println!("gateway {}", env!("CARGO_PKG_VERSION")),
        Command::Serve(settings) => serve(settings).await?,
    }
    Ok(())
}

async fn serve(settings: Settings) -> Result<(), Box<dyn Error>> {
    let config = Config::read(&settings.limits)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let watched = config.watch()?;
    let upstream = if let Some(upstream) = settings.upstream {
        upstream
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let upstream = format!("http://{}", listener.local_addr()?);
        tokio::spawn(sample::serve(listener, sample::is_credential));
        upstream
    };
    let gateway = Gateway::new(watched, &upstream, &settings.roots, settings.timeout)?;

    let address = settings.address;
    let listener = TcpListener::bind(&address).await;
    let listener = listener.map_err(|error| {
        format!("ADDR: {address:?}: {error}; write an address and a free port, 127.0.0.1:3000")
    })?;
    println!(
        "listening on http://{}, before {upstream}, with the limits of {}",
        listener.local_addr()?,
        settings.limits.display()
    );
    let connections = settings.client_connections;
    server::serve(listener, gateway, stop(), LAST_REQUESTS, connections).await;
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

//! The flags that bound what clients take.

use std::time::Duration;

use super::length::{length, pause};
use crate::server;

/// What the clients of a listener may take.
#[derive(Debug, clap::Args)]
pub(super) struct Bounds {
    /// How many connections there are at once on each listener
    #[arg(long, value_name = "NUMBER", default_value = "10000", value_parser = number)]
    connections: usize,
    /// How many connections a client address has at once, if it is no proxy
    #[arg(long, value_name = "NUMBER", default_value_t = CLIENT_CONNECTIONS, value_parser = number)]
    client_connections: usize,
    /// How many requests a connection of HTTP/2 has under way at once
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// How many bytes the head of a request has, from 8192
    #[arg(long, value_name = "BYTES", default_value = "65536", value_parser = head_size)]
    head_size: usize,
    /// How long a client may send no request and take nothing of a response
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = length)]
    idle_timeout: Duration,
    /// How long a connection gets new requests, up to a tenth more or less, so that new servers get their share; or `none`
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = age)]
    max_connection_age: Age,
    /// How long requests under way may take to end, after the time of --lame-duck
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = pause)]
    drain: Duration,
}

/// Without this name, the flag would have no default.
type Age = Option<Duration>;

impl From<&Bounds> for server::Bounds {
    fn from(flags: &Bounds) -> Self {
        Self {
            connections: flags.connections,
            client_connections: flags.client_connections,
            streams: flags.streams,
            head_size: flags.head_size,
            idle: flags.idle_timeout,
            age: flags.max_connection_age,
            drain: flags.drain,
        }
    }
}

/// How many connections a client address has, unless a flag says otherwise.
const CLIENT_CONNECTIONS: usize = 100;

impl Bounds {
    /// Refuses a bound that is never reached, unless it is the default.
    pub(super) fn refuse_what_does_nothing(&self) -> Result<(), String> {
        if self.client_connections > self.connections.max(CLIENT_CONNECTIONS) {
            return Err(format!(
                "--client-connections: {} is more than the {} of --connections, which all clients have together, so it bounds \
                 nothing; lower it, or raise --connections",
                self.client_connections, self.connections
            ));
        }
        Ok(())
    }

    /// Raises the limit of open files of this process as far as it may be, and warns if it is too low for all connections.
    pub(super) fn open_files(&self) {
        match rlimit::increase_nofile_limit(u64::MAX) {
            // A connection of a client may have one to the upstream.
            Ok(files) if files < 2 * self.connections as u64 => tracing::warn!(
                "this process may open {files} files, too few for --connections {}: raise `ulimit -Hn` (LimitNOFILE= in \
                 systemd), or lower --connections",
                self.connections
            ),
            Ok(_) => {}
            Err(error) => tracing::warn!("the limit of open files stays as it is: {error}"),
        }
    }
}

fn number(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("write a whole number, from 1")
}

fn head_size(text: &str) -> Result<usize, &'static str> {
    let size = text
        .parse()
        .ok()
        .filter(|size| (8192..=1 << 20).contains(size));
    size.ok_or("write a number of bytes, from 8192 to 1048576")
}

fn age(text: &str) -> Result<Age, &'static str> {
    match text {
        "none" => Ok(None),
        _ => length(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_server() {
        let matches = Bounds::augment_args(clap::Command::new("a")).get_matches_from(["a"]);
        let flags = Bounds::from_arg_matches(&matches).unwrap();
        let defaults = server::Bounds::default();
        assert_eq!(
            format!("{:?}", server::Bounds::from(&flags)),
            format!("{defaults:?}")
        );
    }
}

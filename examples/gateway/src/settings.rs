//! What the program is told: its arguments, and the variables of its environment.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::server::CLIENT_CONNECTIONS;
use crate::tls::Roots;

/// The text for `--help`.
pub const HELP: &str = "\
A reverse proxy with rate limits from a file.

Usage: UPSTREAM=http://127.0.0.1:8080 LIMITS=limits.toml gateway

Arguments:
  --sample   serve a sample that describes each request, and no upstream
  --help     print this text
  --version  print the version

Environment:
  UPSTREAM            the service behind the gateway, http://HOST:PORT or https://HOST:PORT
  LIMITS              the file of limits [default: examples/gateway/limits.toml]
  ADDR                where the gateway listens [default: 127.0.0.1:3000]
  UPSTREAM_CA         a file in PEM: the certificates by which an upstream of https is trusted
  UPSTREAM_TIMEOUT    in seconds, for the upstream to answer [default: 60]
  CLIENT_CONNECTIONS  the connections of a client address at once, if it is no proxy [default: 100]
";

const VARIABLES: [&str; 6] = [
    "UPSTREAM",
    "LIMITS",
    "ADDR",
    "UPSTREAM_CA",
    "UPSTREAM_TIMEOUT",
    "CLIENT_CONNECTIONS",
];

/// What the program does.
#[derive(Debug)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Serve.
    Serve(Settings),
}

/// How the gateway serves.
#[derive(Debug)]
pub struct Settings {
    /// The URL of the upstream. Without one, the sample is served.
    pub upstream: Option<String>,
    /// The file of limits.
    pub limits: PathBuf,
    /// Where the gateway listens.
    pub address: String,
    /// The certificates by which the upstream is trusted.
    pub roots: Roots,
    /// The time for the upstream to answer.
    pub timeout: Duration,
    /// The connections of each client address at once.
    pub client_connections: usize,
}

impl Command {
    /// Reads the arguments after the name of the program, and the environment.
    ///
    /// # Errors
    ///
    /// For an argument that does not exist, a variable whose name looks misspelt, a value that cannot be read, and without
    /// an upstream or `--sample`, or with both.
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, String> {
        let mut is_sample = false;
        for argument in arguments {
            match argument.to_str() {
                Some("--help" | "-h") => return Ok(Self::Help),
                Some("--version" | "-V") => return Ok(Self::Version),
                Some("--sample") => is_sample = true,
                _ => {
                    return Err(format!(
                        "{:?} is no argument of the gateway; --help lists them, and settings are variables of \
                         the environment",
                        argument.to_string_lossy()
                    ));
                }
            }
        }
        let mut values = [const { None }; VARIABLES.len()];
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            if let Some(at) = VARIABLES.iter().position(|known| *known == name) {
                values[at] = Some(value);
            } else if let Some(meant) = meant(name) {
                return Err(format!(
                    "{name} is no variable of the gateway; write {meant}, or unset {name}"
                ));
            }
        }
        let [upstream, limits, address, roots, timeout, connections] = values;
        let upstream = upstream.map(|value| text("UPSTREAM", value)).transpose()?;
        match &upstream {
            Some(_) if is_sample => {
                return Err("UPSTREAM and --sample exclude each other; unset one".to_owned());
            }
            None if !is_sample => {
                return Err(
                    "UPSTREAM is not set; write the service behind the gateway, as http://HOST:PORT or \
                     https://HOST:PORT, or try the gateway with --sample"
                        .to_owned(),
                );
            }
            _ => {}
        }
        let default = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.toml");
        let timeout = timeout.map(|value| number("UPSTREAM_TIMEOUT", "seconds", &value));
        let connections =
            connections.map(|value| number("CLIENT_CONNECTIONS", "connections", &value));
        let connections = connections.transpose()?.map(usize::try_from);
        Ok(Self::Serve(Settings {
            upstream,
            limits: limits.unwrap_or_else(|| default.into()).into(),
            address: match address {
                Some(address) => text("ADDR", address)?,
                None => "127.0.0.1:3000".to_owned(),
            },
            roots: roots.map_or(Roots::Platform, |path| Roots::File(path.into())),
            timeout: Duration::from_secs(timeout.transpose()?.unwrap_or(60).into()),
            client_connections: connections
                .map_or(CLIENT_CONNECTIONS, |number| number.unwrap_or(usize::MAX)),
        }))
    }
}

fn text(name: &str, value: OsString) -> Result<String, String> {
    let text = value.into_string();
    text.map_err(|value| format!("{name}: {:?} is no UTF-8", value.to_string_lossy()))
}

fn number(name: &str, what: &str, value: &OsStr) -> Result<u32, String> {
    let text = value.to_string_lossy();
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{name}: {text:?}; write a whole number of {what}, from 1"))
}

/// Returns the variable that a name was probably meant to be.
fn meant(name: &str) -> Option<&'static str> {
    // Kubernetes and Docker set such variables for a service called `upstream`.
    let is_of_a_service =
        name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT");
    if is_of_a_service {
        return None;
    }
    let distances = VARIABLES.map(|known| (strsim::damerau_levenshtein(name, known), known));
    let (distance, nearest) = distances.into_iter().min()?;
    // A short name has few letters to tell it from others.
    if distance <= (nearest.len() / 3).min(2) {
        return Some(nearest);
    }
    name.starts_with("UPSTREAM_").then_some("UPSTREAM")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Command, String> {
        let variables = variables.iter();
        Command::read(
            arguments.iter().map(OsString::from),
            variables.map(|(name, value)| (name.into(), value.into())),
        )
    }

    #[test]
    fn nothing_is_served_without_an_upstream_unless_the_sample_is_asked_for() {
        let error = read(&[], &[("PATH", "/bin")]).unwrap_err();
        assert!(
            error.contains("UPSTREAM") && error.contains("--sample"),
            "{error}"
        );
        let sample = read(&["--sample"], &[]).unwrap();
        assert!(matches!(
            sample,
            Command::Serve(Settings { upstream: None, .. })
        ));
        let upstream = [("UPSTREAM", "http://a")];
        let served = read(&[], &upstream).unwrap();
        assert!(matches!(
            served,
            Command::Serve(Settings {
                upstream: Some(_),
                ..
            })
        ));
        read(&["--sample"], &upstream).unwrap_err();
    }

    #[test]
    fn a_misspelt_variable_is_told_with_the_one_that_was_meant() {
        for (misspelt, meant) in [
            ("UPSTRAEM", "UPSTREAM"),
            ("UPSTREAMS", "UPSTREAM"),
            ("UPSTREAM_URL", "UPSTREAM"),
            ("UPSTREAM_TIME_OUT", "UPSTREAM_TIMEOUT"),
            ("LIMIT", "LIMITS"),
            ("ADRR", "ADDR"),
            ("CLIENT_CONECTIONS", "CLIENT_CONNECTIONS"),
        ] {
            let error = read(&["--sample"], &[(misspelt, "1")]).unwrap_err();
            assert!(error.contains(&format!("write {meant},")), "{error}");
        }
        for other in [
            "PATH",
            "LINES",
            "ADDRESS",
            "UPSTREAM_SERVICE_HOST",
            "UPSTREAM_PORT",
        ] {
            read(&["--sample"], &[(other, "1")]).unwrap();
        }
    }

    #[test]
    fn arguments_are_followed_or_refused() {
        assert!(matches!(read(&["--help"], &[]), Ok(Command::Help)));
        assert!(matches!(read(&["--version"], &[]), Ok(Command::Version)));
        for unknown in ["--helpp", "limits.toml", ""] {
            let error = read(&["--sample", unknown], &[]).unwrap_err();
            assert!(error.contains(&format!("{unknown:?}")), "{error}");
        }
        for known in VARIABLES {
            assert!(HELP.contains(&format!("\n  {known} ")), "{known}");
        }
    }

    #[test]
    fn a_number_that_cannot_be_names_its_variable() {
        for name in ["UPSTREAM_TIMEOUT", "CLIENT_CONNECTIONS"] {
            for value in ["0", "-1", "ten", ""] {
                let error = read(&["--sample"], &[(name, value)]).unwrap_err();
                assert!(error.starts_with(name), "{error}");
            }
        }
    }
}

//! The command line.

mod address;
mod bounds;
mod check;
mod descriptors;
mod explain;
mod healthcheck;
mod import;
mod length;
mod log;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "no_otlp.rs"]
mod otlp;
mod replay;
mod serve;
mod signals;
mod state_file;
mod suggest;
mod systemd;
mod variables;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use tower_ratelimit_config as config;

use crate::BoxError;

/// Limits requests by a file, as a reverse proxy or as an answer to one
#[derive(Debug, Parser)]
#[command(name = "ratelimitd", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Check(check::Check),
    Explain(Box<explain::Explain>),
    Replay(replay::Replay),
    Suggest(suggest::Suggest),
    Import(import::Import),
    Healthcheck(healthcheck::Healthcheck),
    /// Print the JSON Schema of a file of limits
    Schema,
    /// Print a script that completes commands and flags
    Completions {
        /// The shell of the script
        shell: Shell,
    },
}

/// Runs the program with these arguments, of which the first is its name, and with these variables. The flags read their
/// variables from the environment of the process.
///
/// The exit code is 0, 1 after a mistake in a file or a run that fails, or 2 after a mistake in the command line.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> ExitCode {
    let command = match parse(arguments, variables) {
        Ok(command) => command,
        Err(error) => {
            // Nobody reads the output.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    // Redis over TLS takes that of the process. There is another one already if a test runs several commands.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            // The log has the error of a server whose log is JSON.
            if !error.is::<serve::Logged>() {
                eprintln!("{error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, clap::Error> {
    let mut grammar = grammar();
    let matches = grammar.try_get_matches_from_mut(arguments)?;
    variables::check(&mut grammar, variables)?;
    let command = Cli::from_arg_matches(&matches)?.command;
    if let Command::Serve(serve) = &command {
        serve.refuse_what_excludes_another(&mut grammar)?;
    }
    Ok(command)
}

/// Returns all commands, with a variable for each flag.
fn grammar() -> clap::Command {
    Cli::command().mut_subcommands(|command| command.mut_args(variables::add))
}

impl Command {
    fn run(self) -> Result<(), BoxError> {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
            Self::Replay(replay) => replay.run(),
            Self::Suggest(suggest) => suggest.run(),
            Self::Import(import) => import.run(),
            Self::Healthcheck(healthcheck) => healthcheck.run(),
            Self::Schema => print(&config::schema()),
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut grammar(), "ratelimitd", &mut script);
                print(&String::from_utf8(script)?)
            }
        }
    }
}

fn print(text: &str) -> Result<(), BoxError> {
    Ok(io::Write::write_all(&mut io::stdout(), text.as_bytes())?)
}

/// Returns whether the reader of the output has closed it.
fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let json = error.downcast_ref::<serde_json::Error>();
    io.or(json.and_then(serde_json::Error::io_error_kind)) == Some(io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn commands() -> Vec<clap::Command> {
        let mut grammar = grammar();
        grammar.build();
        let commands = grammar.get_subcommands().cloned();
        commands.filter(|it| it.get_name() != "help").collect()
    }

    #[test]
    fn the_grammar_has_no_contradiction() {
        grammar().debug_assert();
    }

    #[test]
    fn the_help_of_each_command_fits_on_a_screen() {
        let commands = commands();
        let commands = commands.iter().map(|command| vec![command.get_name()]);
        for command in commands.chain([vec![]]) {
            let arguments = [&["ratelimitd"], &*command, &["--help"]].concat();
            let help = grammar().try_get_matches_from(arguments).unwrap_err();
            let help = help.to_string();
            let lines = help.lines().count();
            assert!(help.contains("Usage: ") && lines <= 60, "{lines}:\n{help}");
        }
    }

    /// The guide has this table; the failure shows today's.
    #[test]
    fn the_guide_lists_each_flag_with_its_variable_and_its_default() {
        let guide = include_str!("../../docs/server.md");
        let tables = commands().iter().map(table).collect::<Vec<_>>();
        let missing = tables
            .iter()
            .filter(|table| !guide.contains(table.as_str()));
        let missing: String = missing.cloned().collect();
        assert!(
            missing.is_empty(),
            "server/docs/server.md lacks:\n{missing}"
        );
    }

    /// Returns the flags of a command; nothing if it has none.
    fn table(command: &clap::Command) -> String {
        let mut table = String::new();
        for flag in command.get_arguments() {
            let Some(variable) = flag.get_env().and_then(|name| name.to_str()) else {
                continue;
            };
            let values = flag.get_value_names().unwrap_or_default();
            let spelled = match (flag.get_long(), flag.get_action().takes_values()) {
                (Some(long), true) => format!("--{long} {}", values[0]),
                (Some(long), false) => format!("--{long}"),
                (None, _) => values[0].to_string(),
            };
            assert_eq!(variable, variables::name(flag).unwrap());
            let default = flag.get_default_values().first();
            let default = default.map_or_else(String::new, |it| format!("`{}`", it.display()));
            let default = if flag.get_action().takes_values() {
                default
            } else {
                String::new()
            };
            let meaning = flag.get_help().unwrap();
            writeln!(table, "| `{spelled}` | {default} | {meaning} |").unwrap();
        }
        if table.is_empty() {
            return table;
        }
        let title = match command.get_name() {
            "serve" => String::new(),
            name => format!("`ratelimitd {name}`:\n\n"),
        };
        format!("{title}| flag | default | meaning |\n| --- | --- | --- |\n{table}")
    }

    #[test]
    fn each_flag_is_a_variable_too() {
        let mut flags = 0;
        for command in commands() {
            for flag in command.get_arguments() {
                let is_built_in = matches!(flag.get_id().as_str(), "help" | "version");
                if flag.get_long().is_some() && !is_built_in {
                    flags += 1;
                    let long = flag.get_long().unwrap().replace('-', "_");
                    let expected = format!("RATELIMITD_{}", long.to_uppercase());
                    assert_eq!(flag.get_env(), Some(expected.as_ref()), "{flag}");
                }
            }
        }
        assert!(flags > 10, "only {flags}");
    }
}

//! The variables of the environment that stand for flags.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};

const PREFIX: &str = "RATELIMITD_";

/// Returns the name of the variable for a flag: `RATELIMITD_LISTEN` for `--listen`. Of the arguments without a name, the file to
/// serve has one too.
pub(super) fn name(flag: &Arg) -> Option<String> {
    let limits = Some("limits").filter(|id| flag.get_id() == id);
    let name = flag.get_long().or(limits)?;
    Some(format!("{PREFIX}{}", name.replace('-', "_").to_uppercase()))
}

/// Lets a flag be set by its variable. An empty variable is as good as none: that is how the files of compose and systemd leave one
/// out.
pub(super) fn add(flag: Arg) -> Arg {
    let is_empty = |variable: &String| env::var_os(variable).is_some_and(|it| it.is_empty());
    let Some(variable) = name(&flag).filter(|variable| !is_empty(variable)) else {
        return flag;
    };
    let flag = flag.env(variable).hide_env_values(true);
    match flag.get_action() {
        ArgAction::SetTrue => flag.value_parser(BoolishValueParser::new()),
        _ => flag,
    }
}

/// Refuses a variable that looks like one of ours and is none.
pub(super) fn check(
    grammar: &mut Command,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), clap::Error> {
    let flags = grammar
        .get_subcommands()
        .flat_map(clap::Command::get_arguments);
    // Parsing has added these to the command.
    let flags = flags.filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version"));
    let known: Vec<String> = flags.filter_map(name).collect();
    for (variable, value) in variables {
        let Some(name) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        if is_of_a_service(name, &value) || known.iter().any(|known| known == name) {
            continue;
        }
        // By the edits alone, `UPSTREAM_CA` is nearer to `UPSTREAM_URL` than `UPSTREAM` is.
        let likeness =
            |known: &str| strsim::jaro_winkler(&known[PREFIX.len()..], &name[PREFIX.len()..]);
        let likest = || {
            let known = known.iter();
            known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        };
        let without_port = name.strip_suffix("_PORT");
        let nearest = known.iter().find(|it| Some(it.as_str()) == without_port);
        let nearest = nearest.or_else(likest);
        let nearest = nearest.map_or("", String::as_str);
        let error = format!(
            "{name} is no variable of ratelimitd; the nearest is {nearest}: write it, or unset {name}\n"
        );
        return Err(grammar.error(ErrorKind::UnknownArgument, error));
    }
    Ok(())
}

/// Kubernetes and Docker set such variables for a service called `ratelimitd`, or `ratelimitd-` and another word. The port of one is
/// a URL; that of `RATELIMITD_LISTEN_PORT=8080` is a mistake for a flag.
fn is_of_a_service(name: &str, value: &OsStr) -> bool {
    let value = value.as_encoded_bytes();
    let is_url = value.starts_with(b"tcp://") || value.starts_with(b"udp://");
    name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT") && is_url
}

#[cfg(test)]
mod tests {
    use super::super::grammar;
    use super::*;

    #[test]
    fn an_unknown_variable_is_refused_with_the_nearest_name() {
        for (misspelt, meant) in [
            ("RATELIMITD_LISTNE", "RATELIMITD_LISTEN"),
            ("RATELIMITD_UPSTREAM_URL", "RATELIMITD_UPSTREAM"),
            (
                "RATELIMITD_UPSTREAM_TIME_OUT",
                "RATELIMITD_UPSTREAM_TIMEOUT",
            ),
            ("RATELIMITD_LIMIT", "RATELIMITD_LIMITS"),
            ("RATELIMITD_LISTEN_PORT", "RATELIMITD_LISTEN"),
            ("RATELIMITD_OPS_PORT", "RATELIMITD_OPS"),
            ("RATELIMITD_GRPC_PORT", "RATELIMITD_GRPC"),
        ] {
            let set = (misspelt.into(), "8080".into());
            let error = check(&mut grammar(), [set]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.contains(&format!("nearest is {meant}:")), "{error}");
        }
    }

    #[test]
    fn variables_of_others_and_of_a_service_pass() {
        let others = [
            "PATH",
            "LISTEN",
            "RATELIMITD_UPSTREAM",
            "RATELIMITD_SERVICE_HOST",
            "RATELIMITD_PORT_3000_TCP_ADDR",
            "RATELIMITD_PORT",
            "RATELIMITD_OPS_PORT",
        ];
        let url = || OsString::from("tcp://10.0.0.7:3001");
        check(&mut grammar(), others.map(|name| (name.into(), url()))).unwrap();
    }
}

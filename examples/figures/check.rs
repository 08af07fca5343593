//! Checks a file of limits, and tells what it says.
//!
//! `cargo run --example check -- limits.toml` prints all mistakes and ends with exit code 1, or prints each policy with the
//! line of its limit. With a request it prints which limits hold for it, and which lines give them:
//!
//! ```text
//! cargo run --example check -- limits.toml --method GET --path /x --key k --plan pro --at 2026-03-29T02:30
//! ```
//!
//! A file that it names in `shadow` is checked too. `--schema` prints the JSON Schema. Functions that a program registers are not known here, so a file that needs them is
//! checked by the program itself, in the same way.

use std::path::PathBuf;
use std::process::ExitCode;

use axum::http::{HeaderName, HeaderValue, Method, Request, Uri};
use clap::Parser;
use tower_ratelimit::config::{self, Config};

#[derive(Parser)]
struct Arguments {
    /// The file, in TOML, or in JSON if its name ends in .json.
    #[arg(required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Explains a request with this method.
    #[arg(long, default_value = "GET")]
    method: Method,
    /// Explains a request to this path.
    #[arg(long)]
    path: Option<Uri>,
    /// A header of the request, such as `x-tenant: acme`.
    #[arg(long, value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The key of the request, in place of what the policies read.
    #[arg(long)]
    key: Option<String>,
    /// The plan of the request, in place of the one that it has.
    #[arg(long)]
    plan: Option<String>,
    /// The time of the request, on the clock of each policy's hours, such as 2026-03-29T02:30; now unless said.
    #[arg(long)]
    at: Option<String>,
    /// Prints the JSON Schema.
    #[arg(long)]
    schema: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.schema {
        print!("{}", config::schema());
        return ExitCode::SUCCESS;
    }
    match check(&arguments) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(arguments: &Arguments) -> Result<String, Box<dyn std::error::Error>> {
    let config = Config::read(arguments.file.as_deref().unwrap_or("limits.toml".as_ref()))?;
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    if let Some(shadow) = config.shadow()
        && let Some(error) = shadow.error()
    {
        return Err(format!("the file in shadow:\n{error}").into());
    }
    let Some(path) = &arguments.path else {
        return Ok(config.understood().to_string());
    };
    let mut request = Request::builder().method(&arguments.method).uri(path);
    for (name, value) in &arguments.header {
        request = request.header(name, value);
    }
    let request = request.body(())?;
    let (key, plan) = (arguments.key.as_deref(), arguments.plan.as_deref());
    let explained = match &arguments.at {
        None => config.explain(&request, key, plan),
        Some(at) => config.explain_at(&request, key, plan, at)?,
    };
    Ok(explained.to_string())
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("write a name, a colon and a value")?;
    let name = name
        .trim()
        .parse()
        .map_err(|_| "this is not the name of a header")?;
    let value = value
        .trim()
        .parse()
        .map_err(|_| "this is not the value of a header")?;
    Ok((name, value))
}

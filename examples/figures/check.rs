//! Checks a file of limits, and prints its policies or its mistakes.
//!
//! `cargo run --example check -- limits.toml` prints all mistakes and ends with exit code 1, or prints each policy
//! with the line of its limit. With a request it prints the limits for that request, and their lines:
//!
//! ```text
//! cargo run --example check -- limits.toml --method GET --path /x --key k --plan pro --at 2026-03-29T02:30
//! ```
//!
//! A file that the file names in `shadow` is checked too. `--schema` prints the JSON Schema. This program does not
//! know the functions that another program registers, so a file that needs them has to be checked by that program.

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
    /// Explains a request with this method; `GET` unless said.
    #[arg(long)]
    method: Option<Method>,
    /// Explains a request to this path; `/` unless said.
    #[arg(long)]
    path: Option<Uri>,
    /// A header of the request, such as `x-tenant: acme`.
    #[arg(long, value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The key of the request, in place of the one that the policies read.
    #[arg(long)]
    key: Option<String>,
    /// The plan of the request, in place of its own.
    #[arg(long)]
    plan: Option<String>,
    /// The time of the request, by the clock of each policy's zone, such as 2026-03-29T02:30; the default is now.
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
    if !arguments.are_about_a_request() {
        return Ok(config.understood().to_string());
    }
    let request = arguments.request()?;
    let (key, plan) = (arguments.key.as_deref(), arguments.plan.as_deref());
    if let Some(plan) = plan
        && !config.plans().any(|known| known == plan)
    {
        let plans: Vec<&str> = config.plans().collect();
        let plans = plans.join(", ");
        return Err(
            format!("--plan: the file has no plan {plan:?}; its plans are: {plans}").into(),
        );
    }
    let explained = match &arguments.at {
        None => config.explain(&request, key, plan),
        Some(at) => config.explain_at(&request, key, plan, at)?,
    };
    let table = explained.to_string();
    if table.contains("has no key") && key.is_none() {
        eprintln!("say a key, --key 192.0.2.1, or the header that has it, --header 'x-api-key: k'");
    }
    Ok(table)
}

impl Arguments {
    fn are_about_a_request(&self) -> bool {
        let asked = [&self.key, &self.plan, &self.at];
        self.method.is_some()
            || self.path.is_some()
            || !self.header.is_empty()
            || asked.into_iter().any(Option::is_some)
    }

    fn request(&self) -> Result<Request<()>, axum::http::Error> {
        let mut request = Request::builder();
        if let Some(method) = &self.method {
            request = request.method(method);
        }
        if let Some(path) = &self.path {
            request = request.uri(path);
        }
        for (name, value) in &self.header {
            request = request.header(name, value);
        }
        request.body(())
    }
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

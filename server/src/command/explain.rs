use std::path::PathBuf;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use super::{check, print};
use crate::{BoxError, ratelimit};

/// Print the limits that hold for a request, and the lines of the file that give them
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    /// The file, in TOML, or in JSON if its name ends in .json; or the directory of --ratelimit-config
    file: PathBuf,
    /// The method of the request
    #[arg(long, default_value = "GET")]
    method: Method,
    /// The path of the request, and its query
    #[arg(long, default_value = "/")]
    path: Uri,
    /// A header of the request, such as 'x-tenant: acme'; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The body of the request, which is JSON unless a header says otherwise
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// The key of the request, in place of the one that the policies read
    #[arg(long)]
    key: Option<String>,
    /// The plan of the request, in place of its own
    #[arg(long)]
    plan: Option<String>,
    /// The time of the request, by the clock of each policy's zone, such as 2026-03-29T02:30; now unless given
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The domain of descriptors, with a directory
    #[arg(long, requires = "entry", conflicts_with_all = ["method", "path", "header", "body", "key", "plan", "at"])]
    domain: Option<String>,
    /// An entry of the descriptor, such as tenant=gold; may be repeated, in the order in which Envoy sends them
    #[arg(long, value_name = "KEY=VALUE", value_parser = entry, requires = "domain")]
    entry: Vec<(String, String)>,
}

impl Explain {
    pub(super) fn run(self) -> Result<(), BoxError> {
        if let Some(domain) = &self.domain {
            return print(&ratelimit::explain(&self.file, domain, self.entry)?);
        }
        if self.file.is_dir() {
            let file = self.file.display();
            return Err(format!("{file}: it is a directory; say what is asked of its files, with --domain and --entry").into());
        }
        let config = check::read(&self.file)?;
        let mut request = Request::builder().method(self.method).uri(self.path);
        for (name, value) in self.header {
            request = request.header(name, value);
        }
        let mut request = request.body(())?;
        if let Some(body) = &self.body {
            let json = HeaderValue::from_static("application/json");
            let headers = request.headers_mut();
            headers.entry(CONTENT_TYPE).or_insert(json);
            let read = config.read_json().read_whole(&mut request, body.as_bytes());
            if let Err(why) = read {
                return print(&format!("refused, whatever the limits are: {why}\n"));
            }
        }
        let (key, plan) = (self.key.as_deref(), self.plan.as_deref());
        if let Some(plan) = plan
            && !config.plans().any(|known| known == plan)
        {
            let plans = config.plans().collect::<Vec<_>>().join(", ");
            return Err(
                format!("--plan: the file has no plan {plan:?}; its plans are: {plans}").into(),
            );
        }
        let explained = match &self.at {
            None => config.explain(&request, key, plan),
            Some(at) => config.explain_at(&request, key, plan, at)?,
        };
        let table = explained.to_string();
        if table.contains("has no key") && key.is_none() {
            eprintln!(
                "give a key, --key 192.0.2.1, or the header that has it, --header 'x-api-key: k'"
            );
        }
        print(&table)
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

fn entry(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() {
        return Err("write a key, `=` and a value");
    }
    Ok((key.to_owned(), value.to_owned()))
}

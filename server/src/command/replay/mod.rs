mod files;
mod tally;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use self::files::Files;
use crate::BoxError;

/// What `--help` says below the flags.
const HELP: &str = "\
The log has a request in each line, as JSON:

  {\"t_us\":1700000000000000,\"key\":\"ann\",\"method\":\"GET\",\"path\":\"/\",\"headers\":{\"x-tenant\":\"acme\"}}

t_us is the time in microseconds since 1970. A policy counts key where the request lacks what the policy reads, such
as an API key; a key that is an address is also the address of the client. The other fields may be left out: method,
path, headers, plan, and cost, which replaces the costs of the file. State is in this process, whatever store the
file names.";

/// Print what a file of limits would have decided of a log, and where another file decides otherwise
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Replay {
    /// The file of limits
    file: PathBuf,
    /// The log, or - for standard input
    log: PathBuf,
    /// Another file of limits to compare
    #[arg(long, value_name = "NEXT")]
    versus: Option<PathBuf>,
    /// Print each decision as a line of JSON, and the summary to standard error
    #[arg(long)]
    jsonl: bool,
}

#[derive(Deserialize)]
struct Request {
    t_us: u64,
    key: String,
    cost: Option<u32>,
    method: Option<String>,
    path: Option<String>,
    plan: Option<String>,
    #[serde(default)]
    headers: HashMap<String, String>,
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), BoxError> {
        let mut files = Files::read(&self.file, self.versus.as_deref())?;
        let input: Box<dyn BufRead> = if self.log == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            let log = File::open(&self.log);
            let log = log.map_err(|error| format!("{}: {error}", self.log.display()))?;
            Box::new(BufReader::new(log))
        };
        let mut output = BufWriter::new(io::stdout().lock());
        // An unreadable line ends the replay, and the results until then are printed.
        let ended = self.decide(input, &mut output, &mut files);
        if self.jsonl {
            eprint!("{files}");
        } else {
            write!(output, "{files}")?;
        }
        output.flush()?;
        ended
    }

    fn decide(
        &self,
        input: impl BufRead,
        output: &mut impl Write,
        files: &mut Files,
    ) -> Result<(), BoxError> {
        let mut last = 0;
        for (number, line) in (1..).zip(input.lines()) {
            let at = |error: BoxError| format!("line {number}: {error}");
            let line = line.map_err(|error| at(error.into()))?;
            if line.trim().is_empty() {
                continue;
            }
            let request = request(&line).map_err(|error| at(error.into()))?;
            if request.t_us < last {
                let back = last - request.t_us;
                eprintln!("line {number}: time steps back by {back} µs");
            }
            last = request.t_us;
            let decided = files.decide(number, &request).map_err(at)?;
            if self.jsonl {
                serde_json::to_writer(&mut *output, &decided)?;
                output.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

fn request(line: &str) -> Result<Request, String> {
    serde_json::from_str(line).map_err(|error| {
        // The error would say "at line 1", because each line is a text of its own.
        let error = error.to_string();
        let what = error.split(" at line ").next().unwrap_or_default();
        format!("{what}: write a request such as {{\"t_us\":1700000000000000,\"key\":\"ann\",\"cost\":1}}")
    })
}

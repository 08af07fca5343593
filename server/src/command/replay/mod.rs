mod files;
mod tally;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use self::files::Files;
use super::log;
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

impl Replay {
    pub(crate) fn run(self) -> Result<(), BoxError> {
        let mut files = Files::read(&self.file, self.versus.as_deref())?;
        let log = log::open(&self.log)?;
        let mut output = BufWriter::new(io::stdout().lock());
        // An unreadable line ends the replay, and the results until then are printed.
        let ended = log::each(log, |number, request| {
            let decided = files.decide(number, &request)?;
            if self.jsonl {
                serde_json::to_writer(&mut output, &decided)?;
                output.write_all(b"\n")?;
            }
            Ok(())
        });
        if self.jsonl {
            eprint!("{files}");
        } else {
            write!(output, "{files}")?;
        }
        output.flush()?;
        ended
    }
}

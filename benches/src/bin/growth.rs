//! `growth RUN` compares what gungraun has written to this file with the reference in
//! `instructions.json`, and fails if a path has grown; `growth RUN --accept` makes it the
//! reference. See `make instructions`.

use std::env;
use std::fs;
use std::io;
use std::process::ExitCode;

use tower_ratelimit_benches::growth::Counts;

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.json");

fn main() -> io::Result<ExitCode> {
    let mut arguments = env::args().skip(1);
    let run = arguments
        .next()
        .ok_or_else(|| io::Error::other("growth RUN [--accept]"))?;
    let counts = Counts::of_run(&fs::read_to_string(run)?)?;
    if arguments
        .next()
        .is_some_and(|argument| argument == "--accept")
    {
        fs::write(REFERENCE, serde_json::to_string_pretty(&counts)? + "\n")?;
        println!("{REFERENCE} is written.");
        return Ok(ExitCode::SUCCESS);
    }
    let reference: Counts = serde_json::from_str(&fs::read_to_string(REFERENCE)?)?;
    let (told, passes) = counts.against(&reference);
    print!("{told}");
    Ok(if passes {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

//! The program; `ratelimitd help` lists its commands.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    ratelimitd::command::run(env::args_os(), env::vars_os())
}

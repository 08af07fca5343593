//! Prints the public API of a library from the JSON that rustdoc makes of it, one item in a line, sorted by path.
//!
//! `public-api FOLDER FILE.json…` writes a text for each file into the folder. `make public-api` holds them against the files beside
//! this program, and `make public-api-accept` writes those.

mod items;
mod types;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use serde_json::Value;

/// The format that this program reads, that of Rust 1.95. A newer compiler may have another one: look at what has changed in the
/// history of `rustdoc-types`, mend what reads it here, and raise the number.
const FORMAT: u64 = 57;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let Some(folder) = arguments.next() else {
        eprintln!("name a folder, and files of rustdoc");
        return ExitCode::FAILURE;
    };
    for file in arguments {
        if let Err(error) = write(&file, &folder) {
            eprintln!("{}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn write(file: &Path, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let library: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let format = library["format_version"].as_u64();
    if format != Some(FORMAT) {
        return Err(format!("its format is {format:?}, and this program reads {FORMAT}").into());
    }
    let name = file.file_stem().unwrap_or_default().display().to_string();
    let mut text = items::lines(&library).join("\n");
    text.push('\n');
    fs::write(
        folder.join(name.replace('_', "-")).with_extension("txt"),
        text,
    )?;
    Ok(())
}

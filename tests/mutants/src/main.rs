//! Changes the code in one place at a time, and looks whether a test notices.

mod equal;
mod lua;
mod program;
mod record;
mod rust;

use std::env;
use std::error::Error;
use std::path::Path;

use equal::Equal;
use record::Record;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [language, count, seed, record, equal, rest @ ..] = &arguments[..] else {
        return Err("usage: lua|rust COUNT SEED RECORD EQUAL …".into());
    };
    let (count, seed) = (count.parse()?, seed.parse()?);
    let record = Record::open(Path::new(record))?;
    let equal = Equal::read(Path::new(equal))?;
    match (language.as_str(), rest) {
        ("lua", programs) => lua::run(count, seed, record, &equal, programs),
        ("rust", [cargo_mutants, copy, target, programs @ ..]) => {
            let workspace = rust::Workspace::new(copy, target);
            rust::run(
                count,
                seed,
                record,
                &equal,
                cargo_mutants,
                &workspace,
                programs,
            )
        }
        ("rust", _) => Err("rust takes CARGO_MUTANTS COPY TARGET PROGRAM …".into()),
        _ => Err(format!("{language} is neither lua nor rust").into()),
    }
}

//! Whether a path takes more instructions than before.
//!
//! Counts repeat to the instruction on one machine. On another they differ by foreign code: the compiler, the
//! C library's `malloc` and `memcpy`, and the variant that it picks at run time for the processor. (Under
//! valgrind that is always the same Haswell if the real one has AVX2.) So the reference names its machine. On
//! another machine the comparison is shown and never fails: a threshold wide enough for every compiler would
//! let everything pass.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::io;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The number of times that the benchmark takes each path.
pub const TIMES: u32 = 1_000;

/// The largest allowed growth of a count, as a ratio.
const MOST: f64 = 1.05;
/// The ratio from which on the better count is worth accepting.
const BETTER: f64 = 0.95;

/// Instructions by path, and the place of the count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    counted_with: BTreeMap<String, String>,
    instructions: BTreeMap<String, f64>,
}

impl Counts {
    /// Reads the output of gungraun, a line of JSON for each path, as counted on this machine.
    pub fn of_run(lines: &str) -> io::Result<Self> {
        let summaries = lines.lines().map(serde_json::from_str::<Value>);
        let counts = summaries.map(|summary| {
            let summary = summary?;
            let metrics = &summary["profiles"][0]["data"]["total"]["metrics"];
            let count = metrics["Ir"]["values"]["new"].as_f64();
            let count = count.ok_or_else(|| io::Error::other(format!("no count: {summary}")))?;
            let text = |field: &str| summary[field].as_str().unwrap_or("").replace('_', " ");
            let name = format!(
                "{}: {}",
                summary["function_name"].as_str().unwrap_or(""),
                text("id")
            );
            // A tenth of an instruction is precise enough, and keeps the file easy to read.
            let each = (count * 10.0 / f64::from(TIMES)).round() / 10.0;
            Ok((name, each))
        });
        Ok(Self {
            counted_with: here()?,
            instructions: counts.collect::<io::Result<_>>()?,
        })
    }

    /// Returns a table of both, and whether this run passes.
    pub fn against(&self, reference: &Counts) -> (String, bool) {
        let mut told =
            String::from("| path | reference | now | ratio | |\n|---|--:|--:|--:|---|\n");
        let mut passes = true;
        let all = reference
            .instructions
            .keys()
            .chain(self.instructions.keys());
        for path in all.collect::<std::collections::BTreeSet<_>>() {
            let was = reference.instructions.get(path).copied();
            let is = self.instructions.get(path).copied();
            let ratio = was.zip(is).map(|(was, is)| is / was);
            let word = match ratio {
                None if was.is_none() => "not in the reference",
                None => "not counted",
                Some(ratio) if ratio > MOST => "grown",
                Some(ratio) if ratio < BETTER => "better",
                Some(_) => "ok",
            };
            passes &= matches!(word, "ok" | "better");
            let [was, is] =
                [was, is].map(|count| count.map_or("–".into(), |n| format!("{n:.1}")));
            let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
            let _ = writeln!(told, "| {path} | {was} | {is} | {ratio} | {word} |");
        }
        let mut elsewhere = false;
        for (what, is) in &self.counted_with {
            let was = reference
                .counted_with
                .get(what)
                .map_or("unknown", String::as_str);
            if was != is {
                elsewhere = true;
                let _ = writeln!(told, "\n{what}: the reference has `{was}`, this is `{is}`.");
            }
        }
        if elsewhere {
            told.push_str("\nSo the counts cannot be compared, and none fails the run.\n");
        } else if !passes {
            told.push_str(
                "\nMake it smaller again, or run `make instructions-accept` and say why.\n",
            );
        }
        (told, passes || elsewhere)
    }
}

/// Returns what counts depend on besides the code.
fn here() -> io::Result<BTreeMap<String, String>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    #[cfg(target_arch = "x86_64")]
    let processor = match is_x86_feature_detected!("avx2") {
        true => "x86_64 with AVX2",
        false => "x86_64 without AVX2",
    };
    #[cfg(not(target_arch = "x86_64"))]
    let processor = env::consts::ARCH;
    Ok(BTreeMap::from([
        (
            "libc".into(),
            said_by(Command::new("getconf").arg("GNU_LIBC_VERSION"))?,
        ),
        ("processor".into(), processor.into()),
        (
            "rustc".into(),
            said_by(Command::new(rustc).arg("--version"))?,
        ),
        (
            "valgrind".into(),
            said_by(Command::new("valgrind").arg("--version"))?,
        ),
    ]))
}

fn said_by(command: &mut Command) -> io::Result<String> {
    let said = command.output()?.stdout;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rustc: &str, instructions: &[(&str, f64)]) -> Counts {
        let named = |&(name, count): &(&str, f64)| (name.to_owned(), count);
        Counts {
            counted_with: [("rustc".to_owned(), rustc.to_owned())].into(),
            instructions: instructions.iter().map(named).collect(),
        }
    }

    #[test]
    fn a_path_may_grow_by_five_percent_and_no_more() {
        let reference = counts("1.95", &[("a", 100.0), ("b", 100.0)]);
        let passes = |count| {
            counts("1.95", &[("a", 100.0), ("b", count)])
                .against(&reference)
                .1
        };
        assert!(passes(10.0));
        assert!(passes(105.0));
        assert!(!passes(105.1));
    }

    #[test]
    fn a_path_that_is_new_or_gone_does_not_pass() {
        let [one, two] =
            [&[("a", 1.0)][..], &[("a", 1.0), ("b", 1.0)]].map(|is| counts("1.95", is));
        assert!(!one.against(&two).1);
        assert!(!two.against(&one).1);
    }

    #[test]
    fn counts_of_another_compiler_are_told_and_do_not_fail() {
        let reference = counts("1.95", &[("a", 100.0)]);
        let (told, passes) = counts("1.96", &[("a", 200.0)]).against(&reference);
        assert!(passes);
        assert!(
            told.contains("rustc: the reference has `1.95`, this is `1.96`."),
            "{told}"
        );
    }

    #[test]
    fn what_gungraun_tells_is_read() {
        let line = r#"{"function_name":"admit_now","id":"gcra_refused","profiles":[{"data":{"total":{"metrics":{"Ir":{"values":{"new":1500023,"old":1}}}}}}]}"#;
        let counts = Counts::of_run(line).unwrap();
        assert_eq!(
            counts.instructions,
            [("admit_now: gcra refused".to_owned(), 1500.0)].into()
        );
        assert!(Counts::of_run("{}").is_err());
    }
}

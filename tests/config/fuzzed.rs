//! No text makes the reader panic, and each mistake can be shown.

use proptest::prelude::*;
use tower_ratelimit_config::{Config, Format};

/// Pieces of files, most of which are valid somewhere.
const PIECES: &[&str] = &[
    "[policies.a]\n",
    "[policies]\n",
    "[plans.free]\n",
    "[plan_of]\n",
    "[proxies]\n",
    "[lists]\n",
    "[responses]\n",
    "[store]\n",
    "[policies.a.key_limits]\n",
    "[policies.a.operations]\n",
    "algorithm = ",
    "quota = ",
    "limit = ",
    "per = ",
    "burst = ",
    "slots = ",
    "up_to = ",
    "places = ",
    "key = ",
    "cost = ",
    "when = ",
    "soft = ",
    "on_missing_key = ",
    "wait_up_to = ",
    "operation = ",
    "operations = ",
    "other = ",
    "keys = ",
    "prefixes = ",
    "key_type = ",
    "a = ",
    "default_plan = ",
    "plan_of = ",
    "header = ",
    "from = ",
    "networks = ",
    "hops = ",
    "dialects = ",
    "deny = ",
    "nodes = ",
    "secret = ",
    "redis = ",
    "sentinel = ",
    "cluster = ",
    "\"100/minute\"",
    "\"client_ip\"",
    "\"global\"",
    "\"free\"",
    "\"token-bucket\"",
    "\"sliding-slots 1/day slots 2\"",
    "\"leaky-queue 1/s places 1\"",
    "\"unlimited\"",
    "\"0/day\"",
    "\"minute\"",
    "\"2s\"",
    "\"10.0.0.0/8\"",
    "\"/a/*\"",
    "\"\u{e9}\u{1F600}\"",
    "\"\\u0000\"",
    "true",
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "0xff",
    "1e400",
    "nan",
    "1979-05-27",
    "{ header = \"x-a\" }",
    "{ env = \"PATH\" }",
    "{ function = \"f\" }",
    "{ method = \"GET\", not = { path = \"/a\" } }",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "'''",
    "# ",
    "=",
    ".",
    "\u{feff}",
    "\u{0}",
];

fn pieced() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())
}

fn read(text: &str, format: Format) {
    match Config::builder().parse(text, format) {
        Ok(config) => {
            let _ = (config.layer(), config.limiter(), format!("{config:?}"));
        }
        Err(error) => {
            assert!(!error.mistakes().is_empty());
            let shown = error.to_string();
            for mistake in error.mistakes() {
                assert!(shown.contains(&mistake.to_string()), "{shown}");
                assert!(!mistake.message().is_empty());
                assert!(mistake.line() != Some(0) && mistake.column() != Some(0));
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*", pieced in pieced(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = String::from_utf8_lossy(&bytes);
        for text in [&text, &pieced, &*bytes] {
            read(text, Format::Toml);
            read(text, Format::Json);
        }
    }

    /// A good file with one piece put somewhere.
    #[test]
    fn no_change_of_a_good_file_makes_the_reader_panic(
        at in any::<prop::sample::Index>(),
        piece in prop::sample::select(PIECES),
        cut in 0_usize..30,
    ) {
        const GOOD: &str = include_str!("../../examples/limits.toml");
        let starts: Vec<usize> = GOOD.char_indices().map(|(at, _)| at).collect();
        let from = starts[at.index(starts.len())];
        let to = starts.iter().copied().find(|start| *start >= from + cut).unwrap_or(GOOD.len());
        read(&format!("{}{piece}{}", &GOOD[..from], &GOOD[to..]), Format::Toml);
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{ a = ", "}"), ("{ not = ", "}")] {
        let deep = format!("{}1{}", open.repeat(20_000), close.repeat(20_000));
        read(&format!("[policies.a]\nwhen = {deep}"), Format::Toml);
        read(&format!("a{} = 1", ".a".repeat(100_000)), Format::Toml);
        read(&open.repeat(50_000), Format::Json);
    }
    read(&"{\"a\":".repeat(50_000), Format::Json);
}

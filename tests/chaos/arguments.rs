//! The order of a test runner: to list the test, to run it, or to skip it.

/// The name of the only test.
pub(crate) const NAME: &str = "what_is_promised_holds_while_anything_is_killed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    List { is_wanted: bool },
    Nothing,
    Run,
}

/// Options that are followed by a word which is no filter.
const WITH_A_WORD: [&str; 6] = [
    "--test-threads",
    "--format",
    "--color",
    "--logfile",
    "--shuffle-seed",
    "-Z",
];

impl Wanted {
    pub(crate) fn by(arguments: &[String]) -> Self {
        let (mut filters, mut skips) = (Vec::new(), Vec::new());
        let is_said = |option: &str| arguments.iter().any(|word| word == option);
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--skip" => skips.extend(words.next()),
                word if WITH_A_WORD.contains(&word) => {
                    words.next();
                }
                word if word.starts_with("--skip=") => skips.extend(word.strip_prefix("--skip=")),
                word if word.starts_with('-') => {}
                filter => filters.push(filter),
            }
        }
        let is_it = |filter: &&str| {
            if is_said("--exact") {
                *filter == NAME
            } else {
                NAME.contains(filter)
            }
        };
        let is_wanted = filters.is_empty() || filters.iter().any(is_it);
        // `--ignored` excludes the test, which is not ignored.
        let is_wanted = is_wanted && !skips.iter().any(is_it) && !is_said("--ignored");
        match (is_said("--list"), is_wanted) {
            (true, is_wanted) => Self::List { is_wanted },
            (false, true) => Self::Run,
            (false, false) => Self::Nothing,
        }
    }
}

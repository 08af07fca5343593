//! Names that are wrong in a file.

use super::tree::quoted;

/// The number of known names in a message.
const MOST_LISTED: usize = 60;

/// Longer names are not compared.
const LONGEST: usize = 100;

/// Returns the message about an unknown name, with the nearest known name.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    unknown_beside(nearest(name, known), what, Some(name), known)
}

/// Returns the same message, if the nearest is known. Without a name, which may be secret, it does not show it.
pub(super) fn unknown_beside(
    nearest: Option<&str>,
    what: &str,
    name: Option<&str>,
    known: &[&str],
) -> String {
    let says = briefly_unknown(what, name);
    if known.is_empty() {
        return format!("{says}; there is none");
    }
    let others = quoted_list(known);
    match nearest {
        Some(nearest) => format!("{says}; did you mean {nearest:?}? Known are {others}"),
        None => format!("{says}; known are {others}"),
    }
}

/// The same message without the known names.
pub(super) fn briefly_unknown(what: &str, name: Option<&str>) -> String {
    match (what, name.map(quoted)) {
        ("", Some(name)) => format!("{name} is unknown"),
        ("", None) => "it is unknown".to_owned(),
        (what, Some(name)) => format!("{what} {name} is unknown"),
        (what, None) => format!("this {what} is unknown"),
    }
}

/// Returns the known name that was probably meant.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let is_short = |name: &str| name.len() < LONGEST;
    let known = known
        .iter()
        .filter(|known| is_short(name) && is_short(known));
    let distances = known.map(|known| (strsim::damerau_levenshtein(name, known), *known));
    // More changes than a third of its letters make another name.
    let (_, nearest) = distances
        .min()
        .filter(|(changes, nearest)| *changes <= 1 + nearest.len() / 3)?;
    Some(nearest)
}

fn quoted_list(known: &[&str]) -> String {
    let listed = known.iter().take(MOST_LISTED);
    let listed: Vec<String> = listed
        .map(|name| match name.len() {
            0..LONGEST => (*name).to_owned(),
            _ => quoted(name),
        })
        .collect();
    let listed = listed.join(", ");
    match known.len().saturating_sub(MOST_LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_short_however_many_names_there_are_and_however_long_they_are() {
        let many: Vec<String> = (0..5_000)
            .map(|number| format!("policy-{number}"))
            .collect();
        let mut known: Vec<&str> = many.iter().map(String::as_str).collect();
        let listed = unknown("policy", "polcy-77", &known);
        assert!(listed.contains("did you mean \"policy-77\"?"), "{listed}");
        assert!(listed.ends_with("policy-59 and 4940 more"), "{listed}");
        let long = "x".repeat(1 << 20);
        known[0] = &long;
        for name in ["polcy-77", &long] {
            assert!(unknown("policy", name, &known).len() < 2_000);
        }
    }
}

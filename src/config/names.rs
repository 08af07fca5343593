//! Names that are wrong in a file.

use super::tree::quoted;

/// Returns the message about an unknown name, with the nearest known name.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let shown = quoted(name);
    let what = if what.is_empty() {
        String::new()
    } else {
        format!("{what} ")
    };
    if known.is_empty() {
        return format!("{what}{shown} is unknown; there is none");
    }
    let nearest = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .min();
    let others = known.join(", ");
    match nearest {
        // A name in which more than a third of the letters differ is another name.
        Some((changes, nearest)) if name.len() < 100 && changes <= 1 + nearest.len() / 3 => {
            format!("{what}{shown} is unknown; did you mean {nearest:?}? Known are {others}")
        }
        _ => format!("{what}{shown} is unknown; known are {others}"),
    }
}

//! The names of policies: which are valid, and the mark of a policy that counts in parts.

use crate::error::ConfigError;

pub(super) const PRINTABLE: &str = "name a policy with 1 to 64 printable characters of ASCII";

/// Marks the name of a policy that counts in parts.
pub(super) const PARTS: char = '‰';

/// Rejects policies with the same name, and names that a header cannot contain. A policy that [counts in
/// parts](super::Policy::into_stored) has a mark after its name.
pub(crate) fn check_names<'a>(
    names: &(impl Iterator<Item = &'a str> + Clone),
) -> Result<(), ConfigError> {
    const LONGEST: usize = 64;
    let printable = |byte: u8| (0x20..=0x7e).contains(&byte);
    for (index, name) in names.clone().enumerate() {
        let marked = name;
        let name = name.strip_suffix(PARTS).unwrap_or(name);
        if !(1..=LONGEST).contains(&name.len()) || !name.bytes().all(printable) {
            return Err(ConfigError::quoting("name", name, PRINTABLE));
        }
        let mut before = names.clone().take(index);
        if before.any(|other| other.eq_ignore_ascii_case(marked)) {
            let remedy = "give each policy a name of its own; case is ignored";
            return Err(ConfigError::quoting("name", name, remedy));
        }
    }
    Ok(())
}

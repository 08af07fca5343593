//! The names of policies: which are valid, and the mark of a policy that counts in parts.

use std::collections::HashSet;

use crate::error::ConfigError;

pub(super) const PRINTABLE: &str = "name a policy with 1 to 64 printable characters of ASCII";

/// Marks the name of a policy that counts in parts.
pub(super) const PARTS: char = '‰';

/// Rejects policies with the same name, and names that a header cannot contain. A policy that counts in
/// parts has a mark after its name.
///
/// # Errors
///
/// When a name is not one, or appears twice.
pub fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), ConfigError> {
    const LONGEST: usize = 64;
    let printable = |byte: u8| (0x20..=0x7e).contains(&byte);
    let mut taken = HashSet::new();
    for name in names {
        let marked = name;
        let name = name.strip_suffix(PARTS).unwrap_or(name);
        if !(1..=LONGEST).contains(&name.len()) || !name.bytes().all(printable) {
            return Err(ConfigError::quoting("name", name, PRINTABLE));
        }
        if !taken.insert(marked.to_ascii_lowercase()) {
            let remedy = "give each policy a name of its own; case is ignored";
            return Err(ConfigError::quoting("name", name, remedy));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name was compared with all before it, which takes a quarter of an hour for so many.
    #[test]
    fn many_names_are_checked_by_looking_at_each_once() {
        let names: Vec<String> = (0..200_000).map(|number| format!("p{number}")).collect();
        check_names(names.iter().map(String::as_str)).unwrap();
        let again = names.iter().map(String::as_str).chain(["P7"]);
        let error = check_names(again).unwrap_err();
        assert!(error.to_string().contains("\"P7\""), "{error}");
    }
}

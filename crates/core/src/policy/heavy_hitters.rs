use std::fmt;

use crate::key::{Key, Secret};

/// Which of the heaviest keys of a policy a snapshot has, and how it shows them; see
/// [`Policy::top_keys`](super::Policy::top_keys).
///
/// # Defaults
///
/// - keys are hashed with a secret of this process
#[derive(Clone, Debug)]
#[must_use = "a policy takes it"]
pub struct TopKeys {
    most: usize,
    shown: Shown,
}

#[derive(Clone)]
enum Shown {
    /// `None` if the system has no random bytes; then keys are not shown at all.
    Hashed(Option<Secret>),
    Masked,
    InTheClear,
}

/// The number of tracked keys for each reported one. More keys make the estimates better.
const TRACKED_FOR_EACH: usize = 8;

/// The least number of tracked keys.
const LEAST_TRACKED: usize = 64;

/// The largest number of reported keys.
const MOST: u32 = 1_000;

impl TopKeys {
    /// Reports this many keys, from 1 to 1,000. Numbers out of that range are moved into it.
    pub fn new(most: u32) -> Self {
        Self {
            most: most.clamp(1, MOST) as usize,
            shown: Shown::Hashed(Secret::of_the_process().ok()),
        }
    }

    /// Shows a hash of each key with this secret: the first 64 bits of [`Secret::hash`]. Nodes with the same secret show
    /// the same hash.
    pub fn hashed(self, secret: &Secret) -> Self {
        let shown = Shown::Hashed(Some(secret.clone()));
        Self { shown, ..self }
    }

    /// Shows the beginning of each key: a third of its [name](Key::name), and at most six characters.
    pub fn masked(self) -> Self {
        let shown = Shown::Masked;
        Self { shown, ..self }
    }

    /// Shows the [name](Key::name) of each key, which is the key itself, unless its extractor hashes it. Keys
    /// such as addresses are personal data: take care where a snapshot goes.
    pub fn in_the_clear(self) -> Self {
        let shown = Shown::InTheClear;
        Self { shown, ..self }
    }

    /// Returns how many keys are reported.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns how many keys each thread tracks.
    pub(crate) fn places(&self) -> usize {
        (TRACKED_FOR_EACH * self.most).max(LEAST_TRACKED)
    }

    /// Returns the text of this key in a snapshot.
    pub(crate) fn show(&self, key: &Key) -> String {
        match &self.shown {
            Shown::Hashed(None) => "hidden".to_owned(),
            Shown::Hashed(Some(secret)) => {
                let hash = secret.hash(*key).name();
                let digits = hash.as_str().trim_start_matches("s:");
                digits.chars().take(16).collect()
            }
            Shown::Masked => {
                let name = key.name();
                let beginning = (name.as_str().len() / 3).min(6);
                let mut shown: String = name.as_str().chars().take(beginning).collect();
                shown.push('…');
                shown
            }
            Shown::InTheClear => key.name().as_str().to_owned(),
        }
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hashed(_) => "hashed",
            Self::Masked => "masked",
            Self::InTheClear => "in the clear",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IntoKey;

    #[test]
    fn a_key_is_hidden_unless_it_is_asked_for() {
        let key = "ann@example.org".into_key();
        let secret = Secret::new([7; 16]).unwrap();
        let hashed = TopKeys::new(5).hashed(&secret).show(&key);
        assert_eq!(hashed.len(), 16);
        assert!(
            secret
                .hash("ann@example.org")
                .name()
                .as_str()
                .contains(&hashed)
        );
        assert_ne!(TopKeys::new(5).show(&key), hashed);
        assert_eq!(TopKeys::new(5).masked().show(&key), "t:ann…");
        assert_eq!(
            TopKeys::new(5).in_the_clear().show(&key),
            "t:ann@example.org"
        );
        let address = std::net::Ipv4Addr::new(192, 0, 2, 17).into_key();
        assert_eq!(TopKeys::new(5).masked().show(&address), "ip:1…");
    }
}

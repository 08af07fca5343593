//! The results of a limit so far, by key.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Tally {
    allowed: u64,
    /// The allowed requests that wait for their turn.
    held: u64,
    longest_delay: Duration,
    denied: u64,
    keys_denied: HashMap<String, u64>,
}

impl Tally {
    pub(super) fn allow(&mut self, delay: Duration) {
        self.allowed += 1;
        self.held += u64::from(!delay.is_zero());
        self.longest_delay = self.longest_delay.max(delay);
    }

    pub(super) fn deny(&mut self, key: &str) {
        self.denied += 1;
        match self.keys_denied.get_mut(key) {
            Some(times) => *times += 1,
            None => drop(self.keys_denied.insert(key.to_owned(), 1)),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        writeln!(f, "  {:>12} allowed", self.allowed)?;
        if self.held > 0 {
            let longest = self.longest_delay;
            writeln!(
                f,
                "  {:>12} of them held, for {longest:?} at most",
                self.held
            )?;
        }
        writeln!(
            f,
            "  {:>12} denied, to {} keys",
            self.denied,
            self.keys_denied.len()
        )?;
        let mut hit: Vec<_> = self.keys_denied.iter().collect();
        hit.sort_by(|(a_key, a), (b_key, b)| b.cmp(a).then(a_key.cmp(b_key)));
        for (key, times) in hit.iter().take(SHOWN) {
            writeln!(f, "  {times:>12} {key}")?;
        }
        if hit.len() > SHOWN {
            writeln!(f, "               and {} more", hit.len() - SHOWN)?;
        }
        Ok(())
    }
}

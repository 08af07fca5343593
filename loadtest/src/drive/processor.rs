//! The processor time that this process has used.

use std::time::Duration;

/// Returns the time, or `None` where the system does not tell it in `/proc`.
pub(super) fn used() -> Option<Duration> {
    of(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The times are fields 14 and 15 of proc(5), in ticks.
fn of(stat: &str) -> Option<Duration> {
    // The ticks in which Linux reports to processes, whatever its own clock does.
    const TICKS_PER_SECOND: u64 = 100;
    // The name of the program may have spaces and brackets.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(
        (user + system) * 1_000 / TICKS_PER_SECOND,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_does_not_count() {
        let stat = "42 (a) b (c) R 1 1 1 0 -1 4194304 99 0 0 0 250 50 7 8 20 0 4 0 1 2 3";
        assert_eq!(of(stat), Some(Duration::from_secs(3)));
        assert_eq!(of("42 (a)"), None);
    }
}

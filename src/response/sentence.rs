//! What a refusal says to people.

/// Returns the sentence of a refusal for humans. If the wait is several seconds it has three parts,
/// the second of which is the number.
pub(super) fn sentence(retry_after: Option<&str>) -> [&str; 3] {
    match retry_after {
        None => ["Too many requests. No wait will let this one pass.", "", ""],
        Some("1") => ["Too many requests. Retry after 1 second.", "", ""],
        Some(seconds) => ["Too many requests. Retry after ", seconds, SECONDS],
    }
}

pub(super) const SECONDS: &str = " seconds.";

//! The sentences of a refusal for people.

/// Returns the sentence of a refusal. `is_at_once` says that the request waits for others to end. With a wait
/// of several seconds the sentence has three parts, the second of which is the number.
pub(super) fn sentence(retry_after: Option<&str>, is_at_once: bool) -> [&str; 3] {
    match retry_after {
        None if is_at_once => [AT_ONCE, "", ""],
        None => ["Too many requests. No wait will let this one pass.", "", ""],
        Some("1") => ["Too many requests. Retry after 1 second.", "", ""],
        Some(seconds) => ["Too many requests. Retry after ", seconds, SECONDS],
    }
}

const AT_ONCE: &str = "Too many requests at once. Retry when another one has ended.";

pub(super) const SECONDS: &str = " seconds.";

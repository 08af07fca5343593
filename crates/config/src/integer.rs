//! Whole numbers: their bounds, and the number that a text means.

/// The largest number that a setting can have.
pub(super) trait Bounded {
    const MOST: u64;
}

impl Bounded for u8 {
    const MOST: u64 = u8::MAX as u64;
}

impl Bounded for u16 {
    const MOST: u64 = u16::MAX as u64;
}

impl Bounded for u32 {
    const MOST: u64 = u32::MAX as u64;
}

impl Bounded for usize {
    const MOST: u64 = i64::MAX as u64;
}

/// Returns whether a value that no number of 64 bits can hold is whole all the same.
pub(super) fn is_whole(shown: &str) -> bool {
    let digits = shown.strip_prefix('-').unwrap_or(shown);
    !digits.is_empty()
        && digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'_'))
}

/// Returns the number that a text such as `"10k"` or `"100"` means, with a separator between groups of
/// digits: JSON has none.
pub(super) fn number_meant(text: &str, separator: &str) -> Option<String> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'm' | b'M' => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let digits: String = digits
        .chars()
        .filter(|c| !matches!(c, '_' | ',' | ' '))
        .collect();
    let number: u64 = digits.parse().ok()?;
    let number = number.checked_mul(factor)?.to_string();
    let groups = number.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups
        .filter_map(|group| str::from_utf8(group).ok())
        .collect();
    Some(groups.join(separator))
}

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The SHA-256 of a file, or of a value that may be secret.
pub(super) type Sha = [u8; 32];

pub(super) fn digest(text: &str) -> Sha {
    Sha256::digest(text.as_bytes()).into()
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

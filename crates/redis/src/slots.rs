use crc16::{State, XMODEM};

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of keys with this hash tag.
pub(super) fn slot_of(tag: &[u8]) -> u16 {
    State::<XMODEM>::calculate(tag) % SLOTS
}

/// Returns the slot of this key, which may have its hash tag in braces.
pub(super) fn slot_of_key(key: &[u8]) -> u16 {
    let at = |bytes: &[u8], brace| bytes.iter().position(|byte| *byte == brace);
    let behind = at(key, b'{').map(|open| &key[open + 1..]);
    let tag = behind.and_then(|behind| Some(&behind[..at(behind, b'}')?]));
    slot_of(tag.filter(|tag| !tag.is_empty()).unwrap_or(key))
}

/// Returns a hash tag in this slot that no client has. The search takes half a millisecond.
pub(super) fn tag_in(slot: u16) -> String {
    let mut tags = (0_u32..).map(|number| format!("probe {number}"));
    let found = tags.find(|tag| slot_of(tag.as_bytes()) == slot);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the specification of clusters, and answers of a server of version 7.0.
    #[test]
    fn a_key_is_in_the_slot_that_a_server_tells() {
        for (key, slot) in [
            ("123456789", 0x31c3),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("rl:{2001:db8::/64}:m", 26),
        ] {
            assert_eq!(slot_of_key(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_probe_goes_to_the_slot_that_is_asked_for() {
        for slot in [0, 1, 8_191, 16_383] {
            assert_eq!(slot_of(tag_in(slot).as_bytes()), slot);
        }
    }
}

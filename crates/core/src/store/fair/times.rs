//! Numbers with a fraction, and what is told and kept of them.

use crate::clock::Micros;

/// What is larger, no rule writes: it would take 10^37 settlements of four billion units.
pub(super) const LARGEST: f64 = 1e60;

/// Reads a number with a fraction.
pub(super) fn fraction(bits: u64) -> Option<f64> {
    let number = f64::from_bits(bits);
    // A comparison with what is no number is false.
    (number.abs() <= LARGEST).then_some(number)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a time of so many years is rounded"
)]
pub(super) fn in_micros(time: Micros) -> f64 {
    time.get() as f64
}

/// Returns a time after which so much has passed, and no more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is too long is cut, and one below 0 is 0"
)]
pub(super) fn earlier(time: f64) -> Micros {
    Micros::new(time as u64)
}

/// Returns a wait after which this time has passed, however it was rounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is too long is cut"
)]
pub(super) fn later(time: f64) -> Micros {
    if time > 0.0 {
        Micros::new(time.ceil() as u64).saturating_add(Micros::new(1))
    } else {
        Micros::ZERO
    }
}

/// Returns a sum of weights or of slots.
#[expect(
    clippy::cast_precision_loss,
    reason = "a sum that passes 2^53 is rounded"
)]
pub(super) fn in_all(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number that is too large is cut, and one below 0 is 0"
)]
pub(super) fn rounded_up(number: f64) -> u32 {
    number.ceil() as u32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number that is too large is cut, and one below 0 is 0"
)]
pub(super) fn rounded_down(number: f64) -> u32 {
    number as u32
}

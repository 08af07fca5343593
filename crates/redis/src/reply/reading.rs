//! Reads the text of a reply.

use redis::Value;
use smallvec::SmallVec;

use super::{KeyReply, Own, ScriptReply};
use crate::failure::{NOT_READ, nonsense};
use crate::lease::{Grant, Leased};
use crate::opened::Charges;
use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::algorithm::State;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::error::StoreError;
use tower_ratelimit_core::store::Charge;

impl ScriptReply {
    pub(crate) fn read(value: Value, charges: &Charges) -> Result<Self, StoreError> {
        Self::parse(value, charges, false)
    }

    /// Reads the reply of a script that grants units.
    pub(crate) fn of_granting(value: Value, charges: &Charges) -> Result<Self, StoreError> {
        Self::parse(value, charges, true)
    }

    fn parse(value: Value, charges: &Charges, grants: bool) -> Result<Self, StoreError> {
        let read = || {
            let Value::BulkString(text) = value else {
                return None;
            };
            let mut parts = str::from_utf8(&text).ok()?.split(';');
            let at = micros_of(parts.next()?)?;
            let mut each = SmallVec::new();
            for &charge in charges {
                let (fits, blocked) = (parts.next()?, micros_of(parts.next()?)?);
                let grant = if grants {
                    let grant = grant_of([parts.next()?, parts.next()?, parts.next()?])?;
                    Some(grant).filter(|grant| grant.lasts > Micros::ZERO)
                } else {
                    None
                };
                let (allotment, text) = allotment_of(parts.next()?)?;
                let (leased, text) = leased_of(text)?;
                let (own, state) = state_of(text)?;
                each.push(KeyReply {
                    charge,
                    at,
                    fits: matches!(fits, "1" | "6"),
                    is_passed: fits == "4",
                    is_penalized: matches!(fits, "2" | "5" | "6"),
                    was_blocked: matches!(fits, "5" | "6"),
                    blocked,
                    own,
                    allotment,
                    leased,
                    grant,
                    state,
                });
            }
            parts.next().is_none().then_some(Self { each })
        };
        read().ok_or_else(|| nonsense(NOT_READ))
    }

    /// Reads how many units were taken, and the reply for a charge of that many, or of one if there were
    /// none.
    pub(crate) fn of_taking(value: Value, charges: &[Charge]) -> Result<(u32, Self), StoreError> {
        let read = || {
            let Value::BulkString(mut text) = value else {
                return None;
            };
            let end = text.iter().position(|byte| *byte == b';')?;
            let replies = text.split_off(end + 1);
            let units: u32 = str::from_utf8(&text[..end]).ok()?.parse().ok()?;
            Some((units, Value::BulkString(replies)))
        };
        let (units, replies) = read().ok_or_else(|| nonsense(NOT_READ))?;
        let each = charges.iter().map(|charge| Charge {
            cost: charge.cost.min(units.max(1)),
            ..*charge
        });
        Ok((units, Self::read(replies, &each.collect())?))
    }
}

/// Reads how many units are granted, the end of their class, and how long they last.
fn grant_of(words: [&str; 3]) -> Option<Grant> {
    let [units, end, lasts] = words;
    let (units, end, lasts) = (units.parse().ok()?, micros_of(end)?, micros_of(lasts)?);
    Some(Grant { units, end, lasts })
}

/// The last moment that is read. The longest wait ends before it, and no sum of it and some waits overflows.
const LAST_MOMENT: Micros = Micros::new(Micros::LONGEST.get() << 2);

/// Reads a moment or a length, up to [`LAST_MOMENT`].
fn micros_of(word: &str) -> Option<Micros> {
    let micros = word.parse().ok().map(Micros::new);
    micros.filter(|micros| *micros <= LAST_MOMENT)
}

/// Reads what the request may take, if others have a part of the limit, and returns the rest of the text.
fn allotment_of(text: &str) -> Option<(Option<Box<Allotment>>, &str)> {
    match text.strip_prefix('%') {
        None => Some((None, text)),
        Some(marked) => {
            let (numbers, text) = marked.split_once('|')?;
            let allotment = Allotment::read(&words(numbers)?)?;
            Some((Some(Box::new(allotment)), text))
        }
    }
}

/// Reads the units that nodes hold, if any, and returns the rest of the text.
fn leased_of(text: &str) -> Option<(Option<Box<Leased>>, &str)> {
    match text.strip_prefix('~') {
        None => Some((None, text)),
        Some(marked) => {
            let (leased, text) = marked.split_once('|')?;
            let leased = Leased::read(&words(leased)?)?;
            Some((Some(Box::new(leased)), text))
        }
    }
}

/// Reads the override, if there is one, and the state: words in decimal.
fn state_of(text: &str) -> Option<(Option<Own>, State)> {
    let (own, text) = match text.strip_prefix('=') {
        None => (None, text),
        Some(marked) => {
            let (own, text) = marked.split_once('|')?;
            let own = words(own)?;
            let (&lasts, numbers) = own.split_first()?;
            let own = Own {
                lasts: Micros::new(lasts),
                numbers: numbers.try_into().ok()?,
            };
            (Some(own), text)
        }
    };
    let words = words(text)?;
    let state = if words.iter().all(|word| *word == 0) {
        State::NEW
    } else {
        State::from_words(&words)
    };
    Some((own, state))
}

fn words(text: &str) -> Option<SmallVec<[u64; 16]>> {
    let words = text.split_ascii_whitespace();
    words.map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_ratelimit_core::key::IntoKey;

    /// Once, the sum of such a moment and a window overflowed.
    #[test]
    fn a_moment_that_no_server_can_mean_is_not_read() {
        let charges = Charges::from_slice(&[Charge::new(0, "ann".into_key(), 1)]);
        let read = |replies: &str| ScriptReply::read(Value::BulkString(replies.into()), &charges);
        let last = LAST_MOMENT.get();
        assert!(read(&format!("{last};1;{last};1 1 0")).is_ok());
        for (at, blocked) in [(last + 1, 0), (u64::MAX, 0), (1, last + 1)] {
            assert!(read(&format!("{at};1;{blocked};1 1 0")).is_err(), "{at}");
        }
    }
}

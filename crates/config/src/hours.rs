//! Hours: the limits of a policy at certain times.

use super::limits::{Own, limit};
use super::shape::Shape;
use super::tree::{Value, quoted};
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::__internal::Interval;
use tower_ratelimit::algorithm::{Algorithm, HourlyLimit, Hours};
use tower_ratelimit::calendar::Zone;
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::factor::Factor;
use tower_ratelimit::policy::{Http, Policy};

pub(super) static HOURS: Vocabulary<()> = Vocabulary(&[
    setting("zone")
        .says("The time zone: \"Europe/London\".")
        .together(Shape::Text),
    setting("limits")
        .says(
            "Under each interval, such as \"22:00-06:00\", its limit, or a share of the limit: \
             \"2 times\".",
        )
        .together(Shape::Map(&Shape::Named("limit"))),
]);

/// Reads the hours of a policy with this limit of its own. `None` if there is a mistake in either.
pub(super) fn with_hours(policy: &Policy<Http>, own: Own<'_>, at: &At<'_>) -> Option<Policy<Http>> {
    let hours = hours(at, policy.name(), own)?;
    own.limit?;
    at.made(policy.clone().hours(&hours))
}

fn hours(at: &At<'_>, policy: &str, own: Own<'_>) -> Option<Hours> {
    let table = at.table(&HOURS)?;
    let zone = table
        .need(
            "zone",
            "name the time zone of the hours, such as zone = \"Europe/London\"",
        )
        .and_then(|at| at.made(Zone::named(at.text()?)));
    let limits = table.need(
        "limits",
        "give a limit for each interval, such as limits = { \"22:00-06:00\" = \"2 times\" }",
    )?;
    let mut read: Vec<(Interval, HourlyLimit)> = Vec::new();
    let mut places = Vec::new();
    let mut are_good = true;
    for (name, at) in limits.entries()? {
        if read.len() == Hours::MOST {
            return limits.refuse(format!("there are more than {} intervals", Hours::MOST));
        }
        let interval = match Interval::parse(name.text) {
            Ok(interval) => interval,
            Err(error) => {
                at.refuse_name::<()>(name, error.to_string());
                are_good = false;
                continue;
            }
        };
        let mut before = read.iter().zip(&places);
        let overlapped = before.find(|((known, _), _)| known.overlaps(&interval));
        if let Some(((known, _), place)) = overlapped {
            let known = quoted(known.text());
            at.refuse_name::<()>(
                name,
                format!("it overlaps {known} ({place}); let no moment be in both"),
            );
            are_good = false;
            continue;
        }
        at.gives(policy, LimitRule::Hours(interval.text().into()));
        places.push(at.place());
        let limit = hourly_limit(&at, policy, own);
        are_good &= limit.is_some();
        // An interval with a mistake is kept, so that intervals that overlap it are found too.
        read.push((interval, limit.unwrap_or(Factor::ONE.into())));
    }
    if read.is_empty() && are_good {
        return limits.refuse("there is no interval; add one, or leave `hours` out");
    }
    let mut hours = Hours::of(zone?);
    for ((interval, limit), place) in read.iter().zip(places) {
        hours = match hours.at(interval.text(), *limit) {
            Ok(hours) => hours,
            Err(error) => return limits.refuse(format!("{place}: {error}")),
        };
    }
    are_good.then_some(hours)
}

/// Reads a limit, or a share of the limit of the request: `"2 times"`.
fn hourly_limit(at: &At<'_>, policy: &str, own: Own<'_>) -> Option<HourlyLimit> {
    if let Value::Text(text) = &at.node.value
        && let Some(share) = text.trim().strip_suffix("times")
    {
        return match thousandths(share.trim()) {
            Some(share) => Some(Factor::thousandths(share).into()),
            None => at.refuse(format!(
                "{} is not a share of a limit; write a number from 0.001 to 1000, such as \"2 times\" or \"0.5 times\"",
                quoted(text),
            )),
        };
    }
    match limit(at, policy, own)? {
        Algorithm::Unlimited => {
            at.refuse("an interval has a limit; give one that no client reaches")
        }
        limit => Some(limit.into()),
    }
}

/// Reads a decimal number with up to three digits after the point, in thousandths.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(part) || part.len() > 3 {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    let number = whole
        .parse::<u32>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(part)?;
    (Factor::LEAST.get()..=Factor::MOST.get())
        .contains(&number)
        .then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_decimal_number() {
        for (text, share) in [
            ("2", Some(2_000)),
            ("0.5", Some(500)),
            ("1.25", Some(1_250)),
            ("0.001", Some(1)),
            ("1000", Some(1_000_000)),
            ("0", None),
            ("1000.001", None),
            ("1.0001", None),
            ("-1", None),
            (".5", None),
            ("2.", None),
            ("two", None),
            ("99999999999", None),
        ] {
            assert_eq!(thousandths(text), share, "{text}");
        }
    }
}

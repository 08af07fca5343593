//! Limits: the algorithm of a policy, and the limits of plans, keys and operations that replace it.

use std::fmt::Display;

use super::fields::{LIMIT, QUOTA};
use super::tree::{Value, quoted};
use super::walk::{At, Table};
use crate::algorithm::{Algorithm, Concurrency, Limit};
use crate::quota::Quota;

/// The names, in the text of a calendar window, of the fields beside its limit.
const CALENDAR: &[(&str, &str)] = &[
    ("zone", "zone"),
    ("start", "start"),
    ("first_day", "first-day"),
];

const NUMBERS: &[&str] = &["burst", "capacity", "slots", "places", "up_to"];

/// The default algorithm of a policy.
const DEFAULT: &str = "anchored-window";

/// Reads the algorithm of a policy. `fallback` is its limit if it sets none.
pub(super) fn algorithm(table: &Table<'_>, fallback: Option<Algorithm>) -> Option<Algorithm> {
    if let Some(at) = table.get("concurrency") {
        for field in ["algorithm", "quota", "limit", "per"].iter().chain(NUMBERS) {
            table.either("concurrency", field);
        }
        return at.whole().map(|most| Concurrency::of(most).into());
    }
    let name = match table.get("algorithm") {
        None => DEFAULT,
        Some(at) => match at.text()? {
            text if is_whole(text) => {
                let calendar = CALENDAR.iter().map(|(field, _)| field);
                for field in ["quota", "limit", "per"]
                    .iter()
                    .chain(NUMBERS)
                    .chain(calendar)
                {
                    table.either("algorithm", field);
                }
                return at.made(text.parse());
            }
            name => known_name(at, name)?,
        },
    };
    if name.starts_with("calendar-") {
        return calendar(table, name);
    }
    for (field, _) in CALENDAR {
        if let Some(at) = table.get(field) {
            at.refuse::<()>(format!(
                "{name} has no `{field}`; a calendar-day, calendar-week, calendar-month or calendar-year has"
            ));
        }
    }
    if table.get("quota").is_none() && table.get("limit").is_none() && table.get("per").is_none() {
        return match fallback {
            Some(fallback) => Some(fallback),
            None => table.at.refuse(
                "`quota` is missing; write a limit and a period, such as quota = \"100/minute\"",
            ),
        };
    }
    let quota = quota(table)?;
    with_number(table, name, quota)
}

/// Reads a calendar window: a limit, and the boundaries of its windows.
fn calendar(table: &Table<'_>, name: &str) -> Option<Algorithm> {
    let mut is_good = true;
    for field in ["quota", "per"].iter().chain(NUMBERS) {
        if let Some(at) = table.get(field) {
            at.refuse::<()>(format!("{name} has no `{field}`; give `limit` and `zone`"));
            is_good = false;
        }
    }
    let limit = table
        .need("limit", "give a whole number")
        .and_then(At::whole::<u32>);
    table.need(
        "zone",
        "name the time zone, such as zone = \"Europe/London\"",
    )?;
    let mut text = format!("{name} {}", limit?);
    for (field, word) in CALENDAR {
        if let Some(at) = table.get(field) {
            let value = at.text()?;
            if value.is_empty() || value.contains(char::is_whitespace) {
                return at.expected("one word");
            }
            text.extend([" ", word, " ", value]);
        }
    }
    let made = table.at.made(text.parse())?;
    is_good.then_some(made)
}

/// Returns whether a text is an algorithm with its quota.
fn is_whole(text: &str) -> bool {
    let text = text.trim();
    text == "unlimited" || text.contains('/') || text.contains(char::is_whitespace)
}

fn known_name(at: &At<'_>, name: &str) -> Option<&'static str> {
    let known: Vec<&str> = Algorithm::names().map(|(known, _)| known).collect();
    let found = known.iter().copied().find(|known| *known == name);
    found.or_else(|| at.unknown("algorithm", name, &known))
}

/// Returns the quota of a policy as text: `quota`, or `limit` with `per`.
fn quota(table: &Table<'_>) -> Option<String> {
    let Some(at) = table.get("quota") else {
        let limit = table
            .need("limit", "give a whole number")
            .and_then(At::whole::<u32>);
        let per = table
            .need("per", "give a period such as \"minute\"")
            .and_then(period);
        return Some(format!("{}/{}", limit?, per?));
    };
    table.either("quota", "limit");
    table.either("quota", "per");
    match &at.node.value {
        Value::Table(_) => {
            let table = at.table(&QUOTA)?;
            let limit = table
                .need("limit", "give a whole number")
                .and_then(At::whole::<u32>);
            let per = table
                .need("per", "give a period such as \"minute\"")
                .and_then(period);
            Some(format!("{}/{}", limit?, per?))
        }
        Value::Text(text) => at
            .made(text.parse::<Quota>())
            .map(|quota| quota.to_string()),
        _ => at.expected("a quota; write a limit and a period, such as \"100/minute\""),
    }
}

fn period<'w>(at: &At<'w>) -> Option<&'w str> {
    let text = at.text()?;
    at.made(format!("1/{text}").parse::<Quota>())?;
    Some(text)
}

/// Adds the number of the kind, and rejects the numbers of other kinds.
fn with_number(table: &Table<'_>, name: &str, quota: impl Display) -> Option<Algorithm> {
    let own = Algorithm::names().find(|(known, _)| *known == name);
    let word = own.and_then(|(_, word)| word);
    // The name of a field has no hyphen.
    let field = word.map(|word| word.replace('-', "_"));
    let mut is_good = true;
    for other in NUMBERS
        .iter()
        .filter(|other| Some(**other) != field.as_deref())
    {
        if let Some(at) = table.get(other) {
            let remedy = match &field {
                Some(field) => format!("its number is `{field}`"),
                None => "leave it out".to_owned(),
            };
            at.refuse::<()>(format!("{name} has no `{other}`; {remedy}"));
            is_good = false;
        }
    }
    let number = field.and_then(|field| table.get(&field));
    let text = match (word, number) {
        (Some(word), Some(at)) => format!("{name} {quota} {word} {}", at.whole::<u32>()?),
        _ => format!("{name} {quota}"),
    };
    if !is_good {
        return None;
    }
    number.unwrap_or(&table.at).made(text.parse())
}

/// Reads a limit that replaces a policy's own: a quota or an algorithm as text, a number for the period of
/// the policy, a table, or `"unlimited"`.
pub(super) fn limit(at: &At<'_>, policy: &str, own: &Algorithm) -> Option<Algorithm> {
    let name = match own {
        Algorithm::Unlimited => DEFAULT,
        own => own.name(),
    };
    let limit: Algorithm = match &at.node.value {
        Value::Text(text) if text.trim().starts_with(|c: char| c.is_ascii_alphabetic()) => {
            at.made(text.parse())?
        }
        Value::Text(text) => {
            let quota = at.made(text.parse::<Quota>())?;
            at.made(format!("{name} {quota}{}", slots(own)).parse())?
        }
        Value::Whole(_) if own.is_held() => Concurrency::of(at.whole()?).into(),
        Value::Whole(_) if name.starts_with("calendar-") => {
            // A calendar window has no period.
            let limit: u32 = at.whole()?;
            own.under(Limit::new(limit, limit))?
        }
        Value::Whole(_) => {
            let limit: u32 = at.whole()?;
            at.made(format!("{name} {limit}/{}{}", period_of(own), slots(own)).parse())?
        }
        Value::Table(_) => {
            let table = at.table(&LIMIT)?;
            let limit = table
                .need("limit", "give a whole number")
                .and_then(At::whole::<u32>);
            let per = match table.get("per") {
                Some(at) => period(at)?.to_owned(),
                None => period_of(own),
            };
            if name.starts_with("calendar-") {
                let limit = limit?;
                own.under(Limit::new(limit, limit))?
            } else if slots(own).is_empty() {
                with_number(&table, name, format!("{}/{per}", limit?))?
            } else {
                at.made(format!("{name} {}/{per}{}", limit?, slots(own)).parse())?
            }
        }
        _ => return at.expected("a limit; write \"100/minute\", a whole number or \"unlimited\""),
    };
    let is_alike = limit == Algorithm::Unlimited || limit.differs_in_its_limit_alone(own);
    if is_alike || limit == *own {
        return Some(limit);
    }
    at.refuse(format!(
        "{} is of another kind or period than policy {}, {own}; give a limit for the same kind and period",
        at.node.value.shown(),
        quoted(policy),
    ))
}

/// Returns the period of an algorithm as text.
fn period_of(own: &Algorithm) -> String {
    let Some(period) = own.period() else {
        return "second".to_owned();
    };
    format!("{}us", period.as_micros())
}

/// Returns the number of slots in the text of the algorithm. It is not a limit, and does not change.
fn slots(own: &Algorithm) -> String {
    match own.frame() {
        ("sliding-slots", _, Some(slots)) => format!(" slots {slots}"),
        _ => String::new(),
    }
}

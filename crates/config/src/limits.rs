//! Limits: the algorithm of a policy, and the limits of plans, keys and operations that replace it.

use super::money::{self, BUDGET_EXAMPLE};
use super::shape::Shape;
use super::tree::{Value, quoted};
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::algorithm::{Algorithm, Concurrency, Limit};
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::quota::Quota;
use tower_ratelimit::usage::Money;

pub(super) static QUOTA: Vocabulary<()> = Vocabulary(&[
    setting("limit")
        .says("How many units a period has.")
        .together(Shape::Integer),
    setting("per")
        .says("The period: \"minute\", \"10s\".")
        .together(Shape::Text),
]);

pub(super) static LIMIT: Vocabulary<()> = Vocabulary(&[
    setting("limit")
        .says("How many units a period has.")
        .together(Shape::Integer),
    setting("per")
        .says("The period; the default is that of the policy.")
        .together(Shape::Text),
    setting("burst")
        .says("The burst of a bucket.")
        .together(Shape::Integer),
    setting("capacity")
        .says("The capacity of a leaky bucket.")
        .together(Shape::Integer),
    setting("places")
        .says("The places of a leaky queue.")
        .together(Shape::Integer),
]);

/// The names, in the text of a calendar window, of the fields beside its limit.
const CALENDAR: &[(&str, &str)] = &[
    ("zone", "zone"),
    ("start", "start"),
    ("first_day", "first-day"),
];

const NUMBERS: &[&str] = &["burst", "capacity", "slots", "places", "up_to"];

/// The default algorithm of a policy.
const DEFAULT: &str = "anchored-window";

/// The own limit of a policy, in whose place others come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'o> {
    /// `None` if it has a mistake.
    pub(super) limit: Option<&'o Algorithm>,
    /// The unit of a policy that counts money.
    pub(super) unit: Option<Money>,
}

/// Reads the algorithm of a policy, which may count money in this unit. If it says no quota, it has that of all `other` operations.
pub(super) fn algorithm(
    table: &TableAt<'_>,
    other: Option<&At<'_>>,
    unit: Option<Money>,
) -> Option<Algorithm> {
    if let Some(at) = table.get("concurrency") {
        for field in ["algorithm", "quota", "limit", "per", "budget"]
            .iter()
            .chain(NUMBERS)
        {
            table.either("concurrency", field);
        }
        return at.integer().map(|most| Concurrency::of(most).into());
    }
    if let Some(at) = table.get("quota")
        && matches!(&at.node.value, Value::Text(text) if text.trim() == "unlimited")
    {
        contradict(table, "quota", &["algorithm", "limit", "per", "budget"]);
        return Some(Algorithm::Unlimited);
    }
    let name = match table.get("algorithm") {
        None => Some(DEFAULT),
        Some(at) => match at.text() {
            Some(text) if has_quota_in_it(text) => {
                contradict(table, "algorithm", &["quota", "limit", "per", "budget"]);
                return at.made(text.parse());
            }
            Some(name) => known_name(at, name),
            None => None,
        },
    };
    let has_quota = ["quota", "limit", "per", "budget"];
    let has_quota = has_quota.iter().any(|field| table.get(field).is_some());
    let Some(name) = name else {
        // The fields beside it have mistakes of their own.
        if has_quota {
            quota(table, unit);
        }
        for at in NUMBERS.iter().filter_map(|number| table.get(number)) {
            at.integer::<u32>();
        }
        return None;
    };
    if name.starts_with("calendar-") {
        return calendar(table, name, unit);
    }
    for (field, _) in CALENDAR {
        if let Some(at) = table.get(field) {
            at.refuse::<()>(format!(
                "{name} has no `{field}`; a calendar-day, calendar-week, calendar-month or calendar-year has"
            ));
        }
    }
    match other {
        _ if has_quota => with_number(table, name, quota(table, unit)),
        Some(other) => of_other(table, name, other),
        None if table.get("operations").is_some() => table.at.refuse(
            "`quota` is missing; write a limit and a period, such as quota = \"100/minute\", or give `other` among the operations",
        ),
        // It is there under a wrong name.
        None if ["quota", "limit", "concurrency", "budget"]
            .iter()
            .any(|field| !table.lacks(field)) =>
        {
            None
        }
        None => table.at.refuse(
            "`quota` is missing; write a limit and a period, such as quota = \"100/minute\"",
        ),
    }
}

/// Notes these fields, and those of all kinds of algorithms, as contradicting one that says the whole limit.
fn contradict(table: &TableAt<'_>, whole: &str, others: &[&str]) {
    let calendar = CALENDAR.iter().map(|(field, _)| field);
    for other in others.iter().chain(NUMBERS).chain(calendar) {
        table.either(whole, other);
    }
}

/// Returns the algorithm with the limit of all `other` operations. A mistake in that is noted where the operations are read.
fn of_other(table: &TableAt<'_>, name: &str, other: &At<'_>) -> Option<Algorithm> {
    let Value::Text(text) = &other.node.value else {
        if matches!(other.node.value, Value::Integer(_)) {
            return table.at.refuse(
                "`quota` is missing, and `other` has no period; write it as \"50/minute\"",
            );
        }
        return None;
    };
    match text.parse::<Quota>() {
        Ok(quota) => with_number(table, name, Some(quota.to_string())),
        Err(_) => text.parse().ok(),
    }
}

/// Reads a calendar window: a limit, and the boundaries of its windows.
fn calendar(table: &TableAt<'_>, name: &str, unit: Option<Money>) -> Option<Algorithm> {
    let mut is_good = true;
    for field in ["quota", "per"].iter().chain(NUMBERS) {
        if let Some(at) = table.get(field) {
            at.refuse::<()>(format!("{name} has no `{field}`; give `limit` and `zone`"));
            is_good = false;
        }
    }
    let limit = match (table.get("quota"), table.get("budget")) {
        // It stands for the limit, and was refused.
        (Some(_), None) => table.get("limit").and_then(At::integer),
        (None, None) => {
            let limit = table.need("limit", "give a whole number");
            limit.and_then(At::integer)
        }
        (_, Some(at)) => {
            table.either("budget", "limit");
            budget_of_calendar(at, name, unit)
        }
    };
    let zone = table.need(
        "zone",
        "name the time zone, such as zone = \"Europe/London\"",
    );
    is_good &= zone.is_some();
    let mut words = String::new();
    for (field, word) in CALENDAR {
        let Some(at) = table.get(field) else { continue };
        match at.text() {
            Some(value) if value.is_empty() || value.contains(char::is_whitespace) => {
                at.expected::<()>("one word");
                is_good = false;
            }
            Some(value) => words.extend([" ", word, " ", value]),
            None => is_good = false,
        }
    }
    let limit = limit?;
    if !is_good {
        return None;
    }
    let made: Result<Algorithm, ConfigError> = format!("{name} {limit}{words}").parse();
    let wrong = made
        .as_ref()
        .err()
        .map(|error| error.field().replace('-', "_"));
    let at = wrong.and_then(|field| match &*field {
        "limit" => table.get("budget").or_else(|| table.get("limit")),
        field => table.get(field),
    });
    at.unwrap_or(&table.at).made(made)
}

fn budget_of_calendar(at: &At<'_>, name: &str, unit: Option<Money>) -> Option<u32> {
    match &at.node.value {
        Value::Text(text) if text.contains('/') => at.refuse(format!(
            "{name} has its period; write the amount alone, such as {BUDGET_EXAMPLE}"
        )),
        _ => at.units(unit),
    }
}

/// Returns whether a text is an algorithm with its quota.
fn has_quota_in_it(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_known = || Algorithm::names().any(|(known, _)| known == first);
    let is_of_no_quota = matches!(first, "unlimited" | "concurrency");
    is_of_no_quota || text.contains('/') || (words.next().is_some() && is_known())
}

fn known_name(at: &At<'_>, name: &str) -> Option<&'static str> {
    let known: Vec<&str> = Algorithm::names().map(|(known, _)| known).collect();
    let found = known.iter().copied().find(|known| *known == name);
    found.or_else(|| at.unknown("algorithm", name, &known))
}

/// Returns the quota of a policy as text: `quota`, `budget`, or `limit` with `per`.
fn quota(table: &TableAt<'_>, unit: Option<Money>) -> Option<String> {
    if let (Some(at), Some(unit)) = (table.get("budget"), unit) {
        table.either("budget", "quota");
        table.either("budget", "limit");
        return budget(table, at, unit);
    }
    let Some(at) = table.get("quota") else {
        return limit_and_period(table);
    };
    table.either("quota", "limit");
    table.either("quota", "per");
    match &at.node.value {
        Value::Table(_) => {
            let table = at.table(&QUOTA)?;
            limit_and_period(&table)
        }
        Value::Text(text) => {
            let mut calendar = ["month", "year"].into_iter();
            match calendar.find(|unit| text.trim().ends_with(&format!("/{unit}"))) {
                Some(unit) => at.refuse(format!(
                    "a {unit} has no fixed length; write algorithm = \"calendar-{unit}\" with `limit` and `zone`, or days such \
                     as 30d"
                )),
                None => Some(at.made(text.parse::<Quota>())?.to_string()),
            }
        }
        _ => at.expected("a quota; write a limit and a period, such as \"100/minute\""),
    }
}

/// Reads `budget = "50.00/day"`, or an amount beside `per`.
fn budget(table: &TableAt<'_>, at: &At<'_>, unit: Money) -> Option<String> {
    if let Value::Text(text) = &at.node.value
        && let Some((amount, per)) = text.split_once('/')
    {
        table.either("budget", "per");
        let quota = money::quota(at, amount, per, unit)?;
        return Some(at.made(quota.parse::<Quota>())?.to_string());
    }
    let units = at.units(Some(unit));
    let per = table.need("per", "give the period of the budget, as in \"50.00/day\"");
    let per = per.and_then(period);
    Some(format!("{}/{}", units?, per?))
}

fn limit_and_period(table: &TableAt<'_>) -> Option<String> {
    let limit = table.need("limit", "give a whole number");
    let limit = limit.and_then(At::integer::<u32>);
    let per = table.need("per", "give a period such as \"minute\"");
    let per = per.and_then(period);
    Some(format!("{}/{}", limit?, per?))
}

fn period<'w>(at: &At<'w>) -> Option<&'w str> {
    let text = at.text()?;
    at.made(format!("1/{text}").parse::<Quota>())?;
    Some(text)
}

/// Adds the number of the kind, and rejects the numbers of other kinds.
fn with_number(table: &TableAt<'_>, name: &str, quota: Option<String>) -> Option<Algorithm> {
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
    let number = field.as_ref().and_then(|field| table.get(field));
    if let (Some(field), Some(_), Some(_)) = (&field, number, table.get("budget")) {
        // Its number would be one of units.
        table.either("budget", field);
        return None;
    }
    let word = match (word, number) {
        (Some(word), Some(at)) => format!(" {word} {}", at.integer::<u32>()?),
        _ => String::new(),
    };
    let text = format!("{name} {}{word}", quota?);
    if !is_good {
        return None;
    }
    number.unwrap_or(&table.at).made(text.parse())
}

/// Reads a limit that replaces a policy's own: a quota or an algorithm as text, a number for the period of
/// the policy, a table, or `"unlimited"`. If the policy's own has a mistake, the limit is read for its mistakes.
pub(super) fn limit(at: &At<'_>, policy: &str, own: Own<'_>) -> Option<Algorithm> {
    let unit = own.unit;
    let Some(own) = own.limit else {
        if unit.is_none() {
            check_limit(at);
        }
        return None;
    };
    let name = match own {
        Algorithm::Unlimited => DEFAULT,
        own => own.name(),
    };
    let limit: Algorithm = match &at.node.value {
        _ if unit.is_some() => limit_of_money(at, name, own, unit?)?,
        Value::Text(text) if text.trim().starts_with(|c: char| c.is_ascii_alphabetic()) => {
            at.made(text.parse())?
        }
        Value::Text(text) => {
            let quota = at.made(text.parse::<Quota>())?;
            at.made(format!("{name} {quota}{}", slots(own)).parse())?
        }
        Value::Integer(_) if matches!(own, Algorithm::Concurrency(_)) => {
            Concurrency::of(at.integer()?).into()
        }
        Value::Integer(_) if name.starts_with("calendar-") => {
            // A calendar window has no period.
            let limit: u32 = at.integer()?;
            own.under(Limit::new(limit, limit))?
        }
        Value::Integer(_) => {
            let limit: u32 = at.integer()?;
            at.made(format!("{name} {limit}/{}{}", period_of(own), slots(own)).parse())?
        }
        Value::Table(_) => {
            let table = at.table(&LIMIT)?;
            let limit = table
                .need("limit", "give a whole number")
                .and_then(At::integer::<u32>);
            let per = match table.get("per") {
                Some(at) => period(at)?.to_owned(),
                None => period_of(own),
            };
            if name.starts_with("calendar-") {
                let limit = limit?;
                own.under(Limit::new(limit, limit))?
            } else if slots(own).is_empty() {
                with_number(&table, name, limit.map(|limit| format!("{limit}/{per}")))?
            } else {
                at.made(format!("{name} {}/{per}{}", limit?, slots(own)).parse())?
            }
        }
        _ => return at.expected(A_LIMIT),
    };
    let is_alike = limit == Algorithm::Unlimited || limit.frame() == own.frame();
    if is_alike || limit == *own {
        return Some(limit);
    }
    at.refuse(format!(
        "{} is of another kind or period than policy {}, {own}; give a limit for the same kind and period",
        at.shown(),
        quoted(policy),
    ))
}

/// Reads a limit of a policy that counts money: `"250.00"`, `"50.00/day"` or `"unlimited"`.
fn limit_of_money(at: &At<'_>, name: &str, own: &Algorithm, unit: Money) -> Option<Algorithm> {
    let is_calendar = name.starts_with("calendar-");
    let quota = match &at.node.value {
        Value::Text(text) if text.trim() == "unlimited" => return Some(Algorithm::Unlimited),
        Value::Text(text) => match text.split_once('/') {
            Some(_) if is_calendar => {
                return at.refuse(format!(
                    "{name} has its period; write the amount alone, such as \"250.00\""
                ));
            }
            Some((amount, per)) => money::quota(at, amount, per, unit)?,
            None => format!("{}/{}", at.units(Some(unit))?, period_of(own)),
        },
        Value::Integer(_) | Value::Other(_) => {
            format!("{}/{}", at.units(Some(unit))?, period_of(own))
        }
        _ => {
            return at.expected(
                "a limit of a policy that counts money; write \"250.00\", \"50.00/day\" or \"unlimited\"",
            );
        }
    };
    if is_calendar {
        // A calendar window has no period.
        let limit = at.units(Some(unit))?;
        return own.under(Limit::new(limit, limit));
    }
    at.made(format!("{name} {quota}{}", slots(own)).parse())
}

const A_LIMIT: &str = "a limit; write \"100/minute\", a whole number or \"unlimited\"";

/// Notes what is wrong in a limit whatever its policy is.
fn check_limit(at: &At<'_>) {
    match &at.node.value {
        Value::Text(text) if text.trim().starts_with(|c: char| c.is_ascii_alphabetic()) => {
            at.made(text.parse::<Algorithm>());
        }
        Value::Text(text) => {
            at.made(text.parse::<Quota>());
        }
        Value::Integer(_) => {
            at.integer::<u32>();
        }
        Value::Table(_) => {
            if let Some(table) = at.table(&LIMIT) {
                let limit = table.need("limit", "give a whole number");
                limit.and_then(At::integer::<u32>);
                table.get("per").and_then(period);
            }
        }
        _ => {
            at.expected::<()>(A_LIMIT);
        }
    }
}

/// Returns the period of an algorithm's quota as text. The period of a bucket's burst is another one.
fn period_of(own: &Algorithm) -> String {
    let (_, Some(period), _) = own.frame() else {
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

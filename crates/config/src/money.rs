//! Money: the prices of models, and the amounts of policies that count it.

use super::shape::Shape;
use super::tree::Value;
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::usage::{Money, Price, Prices};

pub(super) static PRICE: Vocabulary<()> = Vocabulary(&[
    setting("input")
        .says("What a million tokens of the input cost.")
        .together(Shape::Decimal),
    setting("output")
        .says("What a million tokens of the output cost.")
        .together(Shape::Decimal),
    setting("cached")
        .says("What a million tokens of the input cost that the service has read from a cache; the default is input.")
        .together(Shape::Decimal),
    setting("cache_write")
        .says("What a million tokens of the input cost that the service has written to a cache; the default is input.")
        .together(Shape::Decimal),
]);

/// A budget, for the remedy of one that is wrong.
pub(super) const BUDGET_EXAMPLE: &str = "budget = \"250.00\"";

/// The most digits of a number in JSON that its parser keeps.
const EXACT_IN_JSON: usize = 15;

/// Reads the prices of a file, under the names of models.
pub(super) fn prices(at: &At<'_>) -> Option<Prices> {
    let mut models = Vec::new();
    let mut other = None;
    let mut are_good = true;
    for (name, at) in at.entries()? {
        let price = price(&at);
        are_good &= price.is_some();
        if name.text == "other" {
            other = price;
            continue;
        }
        // A name alone shows what is wrong with it.
        if let Err(error) = Prices::new([(name.text, FREE)]) {
            at.refuse_name::<()>(name, error.to_string());
            are_good = false;
        }
        models.extend(price.map(|price| (name.text, price)));
    }
    if !are_good {
        return None;
    }
    match (models.is_empty(), other) {
        (true, Some(price)) => Some(Prices::of_all_models(price)),
        (true, None) => at.refuse("there is no price; add that of a model, or leave `prices` out"),
        (false, None) => at.made(Prices::new(models)),
        (false, Some(price)) => Some(at.made(Prices::new(models))?.other(price)),
    }
}

const FREE: Price = Price::new(Money::whole(0), Money::whole(0));

/// Returns what stands for prices with a mistake, so that the policies that need them have none.
pub(super) fn prices_or_none(at: &At<'_>) -> Prices {
    prices(at).unwrap_or_else(|| Prices::of_all_models(FREE))
}

fn price(at: &At<'_>) -> Option<Price> {
    let table = at.table(&PRICE)?;
    let need = |field: &str| {
        let remedy = "say what a million tokens cost, such as 2.50";
        table.need(field, remedy).and_then(At::money)
    };
    let (input, output) = (need("input"), need("output"));
    let or_input = |field: &str| match table.get(field) {
        Some(at) => at.money(),
        None => input,
    };
    let (cached, cache_write) = (or_input("cached"), or_input("cache_write"));
    let price = Price::new(input?, output?);
    Some(price.cached(cached?).cache_write(cache_write?))
}

/// Returns the unit of a policy that counts money, as it is if it has a mistake.
pub(super) fn unit(table: &TableAt<'_>) -> Option<Money> {
    table.get("budget")?;
    let unit = table.get("unit").and_then(|at| match at.money()? {
        none if none == Money::whole(0) => at.refuse("a unit is not 0; give one such as 0.000001"),
        unit => Some(unit),
    });
    Some(unit.unwrap_or(Money::MILLIONTH))
}

impl At<'_> {
    /// Reads a decimal number.
    pub(super) fn money(&self) -> Option<Money> {
        let text = match &self.node.value {
            Value::Text(text) => text.trim().to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Other(number) => {
                let digits = number.bytes().filter(u8::is_ascii_digit).count();
                if self.node.span.is_none() && digits > EXACT_IN_JSON {
                    return self.refuse(format!(
                        "{} has more digits than a number of JSON keeps; write it in quotes",
                        self.shown()
                    ));
                }
                number.replace('_', "")
            }
            _ => return self.expected("an amount of money; write a decimal number such as 2.50"),
        };
        self.made(text.parse())
    }

    /// Reads a whole number, or an amount in units of a policy that counts money.
    pub(super) fn units(&self, unit: Option<Money>) -> Option<u32> {
        match unit {
            Some(unit) => self.made(self.money()?.in_units_of(unit)),
            None => self.integer(),
        }
    }

    /// Returns whether the value is text that begins like a number.
    pub(super) fn is_text_of_a_number(&self) -> bool {
        matches!(&self.node.value, Value::Text(text) if text.trim().starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Returns the prices of the file in this unit, or notes that it has none.
    pub(super) fn prices(&self, unit: Money) -> Option<Prices> {
        match &self.common().prices {
            Some(prices) => self.made(prices.clone().unit(unit)),
            None => self.refuse(
                "the file has no table [prices], which says what tokens cost; add one, such as \
                 [prices] gpt-4o = { input = 2.50, output = 10 }",
            ),
        }
    }
}

/// Reads an amount with its period, `"50.00/day"`, into the text of a quota.
pub(super) fn quota(at: &At<'_>, amount: &str, period: &str, unit: Money) -> Option<String> {
    let money: Money = at.made(amount.trim().parse())?;
    let units = at.made(money.in_units_of(unit))?;
    let period = period.trim();
    if let Some(unit) = ["month", "year"].into_iter().find(|unit| period == *unit) {
        return at.refuse(format!(
            "a {unit} has no fixed length; write algorithm = \"calendar-{unit}\" with `zone` and {BUDGET_EXAMPLE}, or days \
             such as 30d"
        ));
    }
    Some(format!("{units}/{period}"))
}

/// Describes units of a policy that counts money, as an amount.
pub(super) fn shown(units: u32, unit: Option<Money>) -> String {
    match unit {
        Some(unit) => Money::of_units(units, unit).to_string(),
        None => units.to_string(),
    }
}

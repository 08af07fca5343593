//! What the tokens of a model cost.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;
use tower_ratelimit_core::__internal::warn_once_of;

use super::money::Money;
use crate::diagnostics::Diagnostic;
use crate::error::ConfigError;
use crate::key::{Head, JsonFields};

const UNPRICED: Diagnostic = Diagnostic::new(
    "TRL040",
    "",
    "an answer is of a model that has no price, so its tokens cost the highest price of the table",
    "give the model a price, or all others one, `Prices::other`; in a file of limits: a line under [prices], such as \
     other = { input = 10, output = 40 }",
);

/// The longest name of a model, in bytes.
pub(super) const LONGEST_NAME: usize = 256;

/// The field of a request's body that names the model.
pub(crate) const MODEL: &str = "model";

/// The tokens to which a price refers: a million.
const PER: u128 = 1_000_000;

/// What a million tokens of a model cost.
///
/// Tokens that are read from a cache, and those that are written to one, cost as much as others of the input, unless they
/// have a price of their own.
///
/// ```
/// use tower_ratelimit::usage::{Money, Price};
///
/// let price = Price::new(Money::cents(250), Money::whole(10)).cached(Money::cents(125));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    input: Money,
    output: Money,
    cached: Option<Money>,
    cache_write: Option<Money>,
}

impl Price {
    /// Creates a price from those of a million tokens of the input, and of a million of the output.
    pub const fn new(input: Money, output: Money) -> Self {
        Self {
            input,
            output,
            cached: None,
            cache_write: None,
        }
    }

    /// Sets what a million tokens of the input cost that the service has read from a cache.
    pub const fn cached(mut self, price: Money) -> Self {
        self.cached = Some(price);
        self
    }

    /// Sets what a million tokens of the input cost that the service has written to a cache.
    pub const fn cache_write(mut self, price: Money) -> Self {
        self.cache_write = Some(price);
        self
    }

    /// Returns a price that is at least as high as both, for each kind of tokens.
    fn highest(self, other: Self) -> Self {
        let kinds = |price: &Self| {
            let or_input = |kind: Option<Money>| kind.unwrap_or(price.input);
            [or_input(price.cached), or_input(price.cache_write)]
        };
        let (own, others) = (kinds(&self), kinds(&other));
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cached: Some(own[0].max(others[0])),
            cache_write: Some(own[1].max(others[1])),
        }
    }

    /// Returns what these tokens cost, in millionths of a billionth.
    fn of(&self, tokens: &Tokens) -> u128 {
        let parts = [
            (tokens.input, self.input),
            (tokens.cached, self.cached.unwrap_or(self.input)),
            (tokens.cache_write, self.cache_write.unwrap_or(self.input)),
            (tokens.output, self.output),
        ];
        let parts =
            parts.map(|(tokens, price)| u128::from(tokens) * u128::from(price.billionths()));
        parts.into_iter().fold(0, u128::saturating_add)
    }
}

/// The tokens of an answer by their kinds, none of which has those of another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) cache_write: u64,
    pub(super) output: u64,
}

/// The models by whose names a price is found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Models<'m> {
    /// The one that the answer names.
    pub(super) answered: Option<&'m str>,
    /// The one that the request names.
    pub(super) requested: Option<&'m str>,
}

/// What the tokens of models cost, for [`Usage::priced`](super::Usage::priced): a policy then counts money in place of tokens.
///
/// # Which price holds
///
/// - The model is the one that the answer names, since a service may choose another than the request asks for. If that has no
///   price, or the answer names none, the model of the request counts, as far as a layer has
///   [read its body](crate::middleware::ReadJsonLayer) or it stands in the path (`/models/NAME:…`).
/// - A name counts as it is, and without a date or a number of three digits or more at its end, or `-latest`:
///   `gpt-4o-2024-08-06` has the price of `gpt-4o`, `gemini-2.0-flash-001` that of `gemini-2.0-flash`. `gpt-4o-mini` is another
///   model than `gpt-4o`.
/// - A name in the table that ends in `*` is of all models that begin so: `ft:gpt-4o-mini*`. The longest counts.
/// - All others have the price of [`other`](Self::other). Without that, each token has the highest price that the table has
///   for one of its kind, and the log says so once ([`TRL040`](crate::diagnostics)). A model is never free by mistake.
///
/// # Units
///
/// A policy counts units of a millionth, unless they are [coarser](Self::unit). The cost of a request is computed exactly, and then
/// rounded up to whole units, once. So it is too high by less than a unit: a million requests are overcharged by less than one
/// dollar, in units of a millionth.
///
/// ```
/// use tower_ratelimit::usage::{self, Money, Price, Prices};
/// use tower_ratelimit::{FixedWindow, Policy, key};
///
/// let prices = Prices::new([
///     ("gpt-4o", Price::new(Money::cents(250), Money::whole(10)).cached(Money::cents(125))),
///     ("gpt-4o-mini", Price::new(Money::cents(15), Money::cents(60))),
/// ])?;
/// let spend = usage::openai().priced(&prices);
/// let policy = Policy::new("spend", FixedWindow::per_day(prices.limit(Money::whole(20))?))
///     .key(key::api_key())
///     .estimate_with(spend.estimate())
///     .settle(spend);
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Prices {
    models: Arc<HashMap<Box<str>, Price>>,
    /// Prices of all names that begin so, the longest first.
    beginnings: Arc<[(Box<str>, Price)]>,
    other: Option<Price>,
    /// What is at least as high as each price.
    highest: Price,
    unit: Money,
    /// Whether the log has said that a model has no price.
    is_reported: Arc<AtomicBool>,
}

impl Prices {
    /// Creates a table of prices by the names of models.
    ///
    /// # Errors
    ///
    /// When there is no price, a name is there twice, is empty, longer than 256 bytes, or `*` alone.
    pub fn new<N: AsRef<str>>(
        prices: impl IntoIterator<Item = (N, Price)>,
    ) -> Result<Self, ConfigError> {
        let mut models = HashMap::new();
        let mut beginnings: Vec<(Box<str>, Price)> = Vec::new();
        let mut highest = None;
        for (name, price) in prices {
            let name = name.as_ref();
            let wrong = |remedy| Err(ConfigError::quoting("prices", name, remedy));
            if name == "*" {
                return wrong("give the price of all other models by `other`");
            }
            if !(1..=LONGEST_NAME).contains(&name.len()) {
                return wrong("give the name of a model, of 1 to 256 bytes");
            }
            if models.insert(name.into(), price).is_some() {
                return wrong("give each model one price");
            }
            if let Some(beginning) = name.strip_suffix('*') {
                beginnings.push((beginning.into(), price));
            }
            highest = Some(highest.map_or(price, |highest| price.highest(highest)));
        }
        let Some(highest) = highest else {
            return Err(ConfigError::new("prices", 0, "give a model a price"));
        };
        beginnings.sort_by_key(|(beginning, _)| std::cmp::Reverse(beginning.len()));
        Ok(Self {
            models: Arc::new(models),
            beginnings: beginnings.into(),
            other: None,
            highest,
            unit: Money::MILLIONTH,
            is_reported: Arc::default(),
        })
    }

    /// Creates a table with one price, of all models.
    pub fn of_all_models(price: Price) -> Self {
        Self {
            models: Arc::default(),
            beginnings: Arc::default(),
            other: Some(price),
            highest: price,
            unit: Money::MILLIONTH,
            is_reported: Arc::default(),
        }
    }

    /// Sets the price of all other models.
    pub fn other(mut self, price: Price) -> Self {
        self.other = Some(price);
        self
    }

    /// Sets the unit in which a policy counts; the default is a [millionth](Money::MILLIONTH). Limits have 32 bits, so a limit is at
    /// most 4,294.96 in the default unit, and a hundred times that in units of 0.0001.
    ///
    /// # Errors
    ///
    /// When the unit is 0.
    pub fn unit(mut self, unit: Money) -> Result<Self, ConfigError> {
        if unit.billionths() == 0 {
            let remedy = "give a unit such as 0.000001";
            return Err(ConfigError::new("unit", 0, remedy));
        }
        self.unit = unit;
        Ok(self)
    }

    /// Returns the limit of a policy that may spend so much in a window, in its units.
    ///
    /// # Errors
    ///
    /// When the limit does not fit, or is no whole number of units: see [`Money::in_units_of`].
    pub fn limit(&self, money: Money) -> Result<u32, ConfigError> {
        money.in_units_of(self.unit)
    }

    /// Returns what so many tokens of input and output cost a request, in units, at the price of the model that it asks for. It is for
    /// estimates by a closure.
    ///
    /// ```
    /// # use tower_ratelimit::usage::{Money, Price, Prices};
    /// # let policy = tower_ratelimit::Policy::new("spend", tower_ratelimit::FixedWindow::per_day(1))
    /// #     .key(tower_ratelimit::key::global());
    /// # let prices = Prices::new([("gpt-4o", Price::new(Money::cents(250), Money::whole(10)))])?;
    /// let policy = policy.estimate_with(move |head| prices.units_of(head, 500, 1_024));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn units_of(&self, head: &Head<'_>, input: u64, output: u64) -> u32 {
        let requested = model_of(head.extension::<JsonFields>(), head.path());
        self.units_of_request(requested, input, output)
    }

    /// The same for a request that asks for this model.
    pub(super) fn units_of_request(&self, requested: Option<&str>, input: u64, output: u64) -> u32 {
        let price = requested.and_then(|requested| self.of_model(requested));
        let price = price.or(self.other).unwrap_or(self.highest);
        let tokens = Tokens {
            input,
            output,
            ..Tokens::default()
        };
        self.round_up(price.of(&tokens))
    }

    /// Returns what an answer of one of these models costs, in units.
    pub(super) fn units(&self, tokens: &Tokens, models: Models<'_>) -> u32 {
        let of_one = |name: Option<&str>| name.and_then(|name| self.of_model(name));
        let price = of_one(models.answered).or_else(|| of_one(models.requested));
        let price = price.or(self.other).unwrap_or_else(|| {
            self.tell_of_no_price(models.answered);
            self.highest
        });
        self.round_up(price.of(tokens))
    }

    fn round_up(&self, cost: u128) -> u32 {
        let unit = u128::from(self.unit.billionths()) * PER;
        u32::try_from(cost.div_ceil(unit)).unwrap_or(u32::MAX)
    }

    fn of_model(&self, name: &str) -> Option<Price> {
        let known = |name: &str| self.models.get(name).copied();
        let price = known(name).or_else(|| known(without_version(name)?));
        price.or_else(|| {
            let mut beginnings = self.beginnings.iter();
            let found = beginnings.find(|(beginning, _)| name.starts_with(&**beginning));
            found.map(|(_, price)| *price)
        })
    }

    /// A service may name any number of models, so the first one is reported.
    #[cold]
    fn tell_of_no_price(&self, model: Option<&str>) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let subject = match model {
                Some(model) => format!("model {model:?}"),
                None => "an answer that names no model".to_owned(),
            };
            warn_once_of(&UNPRICED, subject);
        }
    }
}

/// Returns the name without the version at its end: a date, a number of three digits or more, or `latest`.
fn without_version(name: &str) -> Option<&str> {
    if let Some(model) = name.strip_suffix("-latest") {
        return Some(model);
    }
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, last) = name.rsplit_once(['-', '@'])?;
    if last.len() >= 3 && digits(last) {
        return Some(rest);
    }
    // 2024-08-06
    let (rest, month) = rest.rsplit_once('-')?;
    let (rest, year) = rest.rsplit_once(['-', '@'])?;
    let is_date = [(year, 4), (month, 2), (last, 2)]
        .into_iter()
        .all(|(part, length)| part.len() == length && digits(part));
    is_date.then_some(rest)
}

/// Returns the model that a request asks for, which stands in its body or, for Gemini, in its path.
fn model_of<'a>(fields: Option<&'a JsonFields>, path: &'a str) -> Option<&'a str> {
    let in_body = fields.and_then(|fields| fields.text(MODEL));
    in_body.or_else(|| {
        let (_, model) = path.rsplit_once("/models/")?;
        model.split_once(':').map(|(model, _)| model)
    })
}

/// Returns the model that a request with these extensions asks for.
pub(crate) fn requested_model(extensions: &Extensions, path: &str) -> Option<Box<str>> {
    let model = model_of(extensions.get::<JsonFields>(), path)?;
    (model.len() <= LONGEST_NAME).then(|| model.into())
}

impl fmt::Debug for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prices")
            .field("models", &self.models)
            .field("other", &self.other)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(cents: u32) -> Price {
        Price::new(Money::cents(cents), Money::cents(cents))
    }

    #[test]
    fn a_model_is_found_by_its_name_without_a_version() {
        let prices = Prices::new([
            ("gpt-4", of(1)),
            ("gpt-4o", of(2)),
            ("gpt-4o-2024-05-13", of(3)),
            ("claude-sonnet-4", of(4)),
            ("gemini-2.0-flash", of(5)),
            ("ft:gpt-4o*", of(6)),
            ("ft:gpt-4o-mini*", of(7)),
        ]);
        let prices = prices.unwrap();
        for (name, price) in [
            ("gpt-4o", Some(2)),
            ("gpt-4o-2024-08-06", Some(2)),
            ("gpt-4o-2024-05-13", Some(3)),
            ("gpt-4o-latest", Some(2)),
            ("gpt-4-0613", Some(1)),
            ("claude-sonnet-4-20250514", Some(4)),
            ("claude-sonnet-4@20250514", Some(4)),
            ("gemini-2.0-flash-001", Some(5)),
            ("ft:gpt-4o-2024-08-06:acme::7", Some(6)),
            ("ft:gpt-4o-mini-2024-07-18:acme::7", Some(7)),
            // Other models, whose names begin like one.
            ("gpt-4o-mini", None),
            ("gpt-4-32k", None),
            ("gpt-4.1", None),
            ("gpt-4-1", None),
            ("claude-sonnet-4-5-20250929", None),
            ("gpt-4o-2024-8-6", None),
            ("gpt-4o-mini-2024-07-18", None),
            ("", None),
            ("-latest", None),
        ] {
            let found = prices.of_model(name);
            assert_eq!(found, price.map(of), "{name}");
        }
    }

    #[test]
    fn a_cost_is_exact_and_rounded_up_once() {
        let price = Price::new(Money::cents(250), Money::whole(10))
            .cached(Money::cents(125))
            .cache_write("3.125".parse().unwrap());
        let prices = Prices::new([("m", price)]).unwrap();
        let tokens = Tokens {
            input: 3,
            cached: 1,
            cache_write: 1,
            output: 7,
        };
        // 7.5 + 1.25 + 3.125 + 70 = 81.875
        let models = Models {
            answered: Some("m"),
            requested: None,
        };
        assert_eq!(prices.units(&tokens, models), 82);
        let coarse = prices.unit(Money::cents(1)).unwrap();
        assert_eq!(coarse.units(&tokens, models), 1);
        assert_eq!(coarse.units(&Tokens::default(), models), 0);
        let all = Tokens {
            input: u64::MAX,
            cached: u64::MAX,
            cache_write: u64::MAX,
            output: u64::MAX,
        };
        assert_eq!(coarse.units(&all, models), u32::MAX);
    }

    #[test]
    fn what_has_no_price_costs_the_highest() {
        let whole = Money::whole;
        let small = Price::new(whole(1), whole(9)).cached(whole(3));
        let prices = Prices::new([("small", small), ("large", Price::new(whole(2), whole(8)))]);
        let prices = prices.unwrap();
        let units = |prices: &Prices, answered, requested| {
            let tokens = Tokens {
                input: 1,
                cached: 1,
                cache_write: 0,
                output: 1,
            };
            prices.units(
                &tokens,
                Models {
                    answered,
                    requested,
                },
            )
        };
        assert_eq!(units(&prices, Some("small"), Some("large")), 13);
        assert_eq!(units(&prices, Some("alias"), Some("large")), 12);
        assert_eq!(units(&prices, None, Some("large")), 12);
        assert_eq!(units(&prices, None, None), 2 + 3 + 9);
        assert_eq!(units(&prices, Some("none"), Some("no")), 2 + 3 + 9);
        let prices = prices.other(Price::new(Money::whole(0), Money::whole(1)));
        assert_eq!(units(&prices, Some("none"), None), 1);
    }

    #[test]
    fn a_wrong_table_says_what_is_right() {
        let mistake = |names: &[&str]| {
            let prices = Prices::new(names.iter().map(|name| (name, of(1))));
            prices.map(|_| ()).unwrap_err().to_string()
        };
        assert!(mistake(&[]).ends_with("give a model a price"));
        assert!(mistake(&["*"]).ends_with("by `other`"));
        assert!(mistake(&[""]).ends_with("of 1 to 256 bytes"));
        assert!(mistake(&["a", "a"]).ends_with("give each model one price"));
        let prices = Prices::new([("a", of(1))]).unwrap();
        assert!(prices.unit(Money::whole(0)).is_err());
    }

    #[test]
    fn the_model_stands_in_the_path_of_gemini() {
        let of_path = |path| model_of(None, path);
        assert_eq!(
            of_path("/v1beta/models/gemini-2.0-flash:generateContent"),
            Some("gemini-2.0-flash")
        );
        assert_eq!(of_path("/v1/models/gpt-4o"), None);
        assert_eq!(of_path("/v1/chat/completions"), None);
    }
}

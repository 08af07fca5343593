//! Where answers say what they have used.

use std::fmt;
use std::sync::Arc;

use tower_ratelimit_core::__internal::or_panic;

use super::estimate;
use super::prices::{Models, Prices, Tokens};
use super::scanner::{MOST_PATHS, Wanted};
use crate::error::ConfigError;
use crate::key::{Head, JsonPath};

/// The numbers in an answer that say what it has used, and how many units each of them costs.
///
/// Numbers that are not in an answer cost nothing; an answer with none of them [cannot be read](crate::usage#what-cannot-be-read).
#[derive(Clone)]
pub struct Usage {
    shape: Arc<Shape>,
}

#[derive(Clone, Default)]
struct Shape {
    wanted: Wanted,
    parts: Vec<Part>,
    /// The paths of those tokens of the input that were read from a cache, if they are a part of the input.
    cached: Vec<usize>,
    /// The path of the sum, if the answer tells it. It counts in place of the parts while all of them weigh one.
    totals: Vec<usize>,
    /// Where the answer names its model.
    models: &'static [&'static str],
    /// What a request says about its answer.
    asks: estimate::Shape,
    prices: Option<Prices>,
}

/// A number of the answer, which stands at one of these paths, by the shape of the answer.
#[derive(Clone)]
struct Part {
    /// `None` for one that a user has named.
    side: Option<Side>,
    paths: Vec<usize>,
    weight: u32,
}

/// Whether a number is of what the client has sent, or of what the model has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Input,
    /// Of the input, and read from a cache.
    Cached,
    /// Of the input, and written to a cache.
    CacheWrite,
    Output,
}

/// Where the answers of a service have their numbers.
#[derive(Default)]
struct Known<'k> {
    parts: &'k [(Side, &'k [&'k str])],
    cached: &'k [&'k str],
    totals: &'k [&'k str],
    models: &'static [&'static str],
    asks: estimate::Shape,
}

/// The tokens in the answers of OpenAI, and of services that speak its language: chat completions, completions, embeddings and
/// responses, as JSON and as events.
///
/// A stream of chat completions tells its usage only if the request has `"stream_options": {"include_usage": true}`.
pub fn openai() -> Usage {
    Usage::known(&Known {
        parts: &[
            (
                Side::Input,
                &[
                    "usage.prompt_tokens",
                    "usage.input_tokens",
                    "response.usage.input_tokens",
                ],
            ),
            (
                Side::Output,
                &[
                    "usage.completion_tokens",
                    "usage.output_tokens",
                    "response.usage.output_tokens",
                ],
            ),
        ],
        cached: &[
            "usage.prompt_tokens_details.cached_tokens",
            "usage.input_tokens_details.cached_tokens",
            "response.usage.input_tokens_details.cached_tokens",
        ],
        totals: &["usage.total_tokens", "response.usage.total_tokens"],
        models: &["model", "response.model"],
        asks: estimate::OPENAI,
    })
}

/// The tokens in the answers of Anthropic's messages, as JSON and as events: those of the input, those that were written to a cache and
/// read from one, and those of the output.
pub fn anthropic() -> Usage {
    Usage::known(&Known {
        parts: &[
            (
                Side::Input,
                &["usage.input_tokens", "message.usage.input_tokens"],
            ),
            (
                Side::CacheWrite,
                &[
                    "usage.cache_creation_input_tokens",
                    "message.usage.cache_creation_input_tokens",
                ],
            ),
            (
                Side::Cached,
                &[
                    "usage.cache_read_input_tokens",
                    "message.usage.cache_read_input_tokens",
                ],
            ),
            (
                Side::Output,
                &["usage.output_tokens", "message.usage.output_tokens"],
            ),
        ],
        models: &["model", "message.model"],
        asks: estimate::ANTHROPIC,
        ..Known::default()
    })
}

/// The tokens in the answers of Gemini, as JSON, as an array and as events. Those of its thoughts are of the output.
pub fn gemini() -> Usage {
    Usage::known(&Known {
        parts: &[
            (Side::Input, &["usageMetadata.promptTokenCount"]),
            (Side::Input, &["usageMetadata.toolUsePromptTokenCount"]),
            (Side::Output, &["usageMetadata.candidatesTokenCount"]),
            (Side::Output, &["usageMetadata.thoughtsTokenCount"]),
        ],
        cached: &["usageMetadata.cachedContentTokenCount"],
        totals: &["usageMetadata.totalTokenCount"],
        models: &["modelVersion"],
        asks: estimate::GEMINI,
    })
}

/// A number at this path of the answer, of which each costs one unit. The path is the names of the members on the way with dots
/// between them, such as `usage.total_tokens`.
///
/// # Panics
///
/// If the path is not one. [`try_json`] returns an error instead.
#[track_caller]
pub fn json(path: &str) -> Usage {
    or_panic(try_json(path))
}

/// A number at this path of the answer; see [`json`].
///
/// # Errors
///
/// When the path has an empty name or one of more than 64 bytes, or more than eight names.
pub fn try_json(path: &str) -> Result<Usage, ConfigError> {
    json_sum([(path, 1)])
}

/// The sum of the numbers at these paths of the answer, of which each costs so many units.
///
/// ```
/// use tower_ratelimit::usage;
///
/// let usage = usage::json_sum([("usage.read", 1), ("usage.written", 4)])?;
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// # Errors
///
/// When there is no path, there are more than 32, or one is not a path: see [`try_json`].
pub fn json_sum<'a>(paths: impl IntoIterator<Item = (&'a str, u32)>) -> Result<Usage, ConfigError> {
    let mut shape = Shape::default();
    let mut all = Vec::new();
    for (path, weight) in paths {
        let path = JsonPath::parse(path, "usage.total_tokens")?;
        shape.parts.push(Part {
            side: None,
            paths: vec![all.len()],
            weight,
        });
        all.push(path);
    }
    if all.is_empty() || all.len() > MOST_PATHS {
        let remedy = "name 1 to 32 numbers, such as `usage.total_tokens`";
        return Err(ConfigError::new("json", all.len(), remedy));
    }
    shape.wanted = Wanted::numbers(all);
    Ok(Usage {
        shape: Arc::new(shape),
    })
}

impl Usage {
    fn known(known: &Known<'_>) -> Self {
        let mut paths = Vec::new();
        let mut places = |texts: &[&str]| {
            let begin = paths.len();
            paths.extend(texts.iter().map(|text| JsonPath::known(text)));
            (begin..paths.len()).collect()
        };
        let parts = known.parts.iter().map(|(side, texts)| Part {
            side: Some(*side),
            paths: places(texts),
            weight: 1,
        });
        let parts = parts.collect();
        let cached = places(known.cached);
        let totals = places(known.totals);
        Self {
            shape: Arc::new(Shape {
                wanted: Wanted::numbers(paths),
                parts,
                cached,
                totals,
                models: known.models,
                asks: known.asks,
                prices: None,
            }),
        }
    }

    /// Sets how many units a token of the input and one of the output cost; the default is 1 for each. The weights of
    /// [`json_sum`] stay as they are.
    ///
    /// ```
    /// use tower_ratelimit::usage;
    ///
    /// // A token that is written costs as much as four that are read.
    /// let usage = usage::openai().weighted(1, 4);
    /// ```
    pub fn weighted(mut self, input: u32, output: u32) -> Self {
        let shape = Arc::make_mut(&mut self.shape);
        for part in &mut shape.parts {
            part.weight = match part.side {
                Some(Side::Output) => output,
                Some(Side::Input | Side::Cached | Side::CacheWrite) => input,
                None => part.weight,
            };
        }
        self
    }

    /// Counts money in place of tokens: each costs what this table says of its model and its kind, in the
    /// [unit](Prices::unit) of the table. Weights do not count beside prices.
    ///
    /// The numbers that [`json`] and [`json_sum`] name count as tokens of output, as many times as they weigh.
    ///
    /// ```
    /// use tower_ratelimit::usage::{self, Money, Price, Prices};
    ///
    /// let prices = Prices::new([("gpt-4o", Price::new(Money::cents(250), Money::whole(10)))])?;
    /// let spend = usage::openai().priced(&prices);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn priced(mut self, prices: &Prices) -> Self {
        let shape = Arc::make_mut(&mut self.shape);
        let models = shape.models.iter().map(|path| JsonPath::known(path));
        shape.wanted = shape.wanted.clone().and_texts(models);
        shape.prices = Some(prices.clone());
        self
    }

    /// Returns an estimate of what a request will use, by its body, for [`Policy::estimate_with`](crate::Policy::estimate_with): the
    /// tokens of [`usage::estimate`](crate::usage::estimate) for the same service, at the same weights or prices. The
    /// model is the one that the request asks for.
    ///
    /// For numbers that [`json`] names, it is the estimate for services that speak the language of OpenAI.
    ///
    /// ```
    /// use tower_ratelimit::{AnchoredWindow, Policy, key, usage};
    ///
    /// let tokens = usage::openai().weighted(1, 4);
    /// let policy = Policy::new("tokens", AnchoredWindow::per_minute(100_000))
    ///     .key(key::api_key())
    ///     .estimate_with(tokens.estimate())
    ///     .settle(tokens);
    /// ```
    pub fn estimate(&self) -> impl Fn(&Head<'_>) -> u32 + Clone + Send + Sync + 'static {
        let shape = Arc::clone(&self.shape);
        move |head: &Head<'_>| {
            let (input, output) = shape.asks.tokens(head);
            match &shape.prices {
                Some(prices) => prices.units_of(head, input, output),
                None => shape.weigh(input, output),
            }
        }
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.shape.wanted
    }

    /// Returns whether the model of a request matters.
    pub(crate) fn is_priced(&self) -> bool {
        self.shape.prices.is_some()
    }

    /// Returns the units of an answer with these numbers at the paths, or `None` if it has none of them.
    pub(super) fn units(&self, found: &[Option<u64>], models: Models<'_>) -> Option<u32> {
        if let Some(prices) = &self.shape.prices {
            return Some(prices.units(&self.shape.tokens(found)?, models));
        }
        let parts = &self.shape.parts;
        let total = at(found, &self.shape.totals);
        let heaviest = parts.iter().map(|part| part.weight).max().unwrap_or(1);
        let is_plain = parts.iter().all(|part| part.weight == 1);
        let known = parts
            .iter()
            .filter_map(|part| Some(at(found, &part.paths)?.saturating_mul(part.weight.into())));
        let sum = known.clone().fold(0, u64::saturating_add);
        let units = match total {
            Some(total) if is_plain => total,
            _ if known.count() > 0 => sum,
            total => total?.saturating_mul(heaviest.into()),
        };
        Some(u32::try_from(units).unwrap_or(u32::MAX))
    }

    /// Returns what an answer of which nothing could be read is taken to have used, by the bytes of the request and of the answer.
    pub(crate) fn guess(&self, requested: Option<&str>, prompt: u64, answer: u64) -> u32 {
        match &self.shape.prices {
            Some(prices) => {
                let (input, output) = (prompt.div_ceil(4), answer.div_ceil(4));
                prices.units_of_request(requested, input, output).max(1)
            }
            None => guess(prompt, answer),
        }
    }
}

impl Shape {
    /// Returns the tokens of an answer by their kinds, or `None` if it has no number.
    fn tokens(&self, found: &[Option<u64>]) -> Option<Tokens> {
        let mut tokens = Tokens::default();
        let mut sum = None;
        for part in &self.parts {
            let Some(number) = at(found, &part.paths) else {
                continue;
            };
            sum = Some(number.saturating_add(sum.unwrap_or(0)));
            let (of, times) = match part.side {
                Some(Side::Input) => (&mut tokens.input, 1),
                Some(Side::Cached) => (&mut tokens.cached, 1),
                Some(Side::CacheWrite) => (&mut tokens.cache_write, 1),
                Some(Side::Output) => (&mut tokens.output, 1),
                None => (&mut tokens.output, part.weight),
            };
            *of = of.saturating_add(number.saturating_mul(times.into()));
        }
        // What a sum has beyond its parts, such as thoughts, was written by the model.
        let total = at(found, &self.totals);
        let beyond = total.map(|total| total.saturating_sub(sum.unwrap_or(0)));
        tokens.output = tokens.output.saturating_add(beyond.unwrap_or(0));
        let cached = at(found, &self.cached).unwrap_or(0).min(tokens.input);
        tokens.input -= cached;
        tokens.cached = tokens.cached.saturating_add(cached);
        sum.or(total).map(|_| tokens)
    }

    fn weigh(&self, input: u64, output: u64) -> u32 {
        let weight = |wanted: Side| {
            let mut parts = self.parts.iter();
            let part = parts.find(|part| part.side == Some(wanted));
            part.map_or(1, |part| u64::from(part.weight))
        };
        let input = input.saturating_mul(weight(Side::Input));
        let units = input.saturating_add(output.saturating_mul(weight(Side::Output)));
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

/// Returns what an answer of which nothing could be read is taken to have used.
fn guess(prompt: u64, answer: u64) -> u32 {
    let units = prompt.saturating_add(answer).div_ceil(4).max(1);
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Returns the number that stands at the first of these places.
fn at(found: &[Option<u64>], places: &[usize]) -> Option<u64> {
    places.iter().find_map(|place| *found.get(*place)?)
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.shape.wanted.paths()).finish()
    }
}

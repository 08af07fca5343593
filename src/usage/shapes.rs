//! Where answers say what they have used.

use std::fmt;
use std::sync::Arc;

use tower_ratelimit_core::__internal::or_panic;

use super::scanner::MOST_PATHS;
use crate::error::ConfigError;
use crate::key::JsonPath;

/// The numbers in an answer that say what it has used, and how many units each of them costs.
///
/// Numbers that are not in an answer cost nothing; an answer with none of them [cannot be read](crate::usage#what-cannot-be-read).
#[derive(Clone)]
pub struct Usage {
    shape: Arc<Shape>,
}

#[derive(Clone, Default)]
struct Shape {
    paths: Arc<[JsonPath]>,
    parts: Vec<Part>,
    /// The path of the sum, if the answer tells it. It counts in place of the parts while all of them weigh one.
    totals: Vec<usize>,
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
    Output,
}

/// The tokens in the answers of OpenAI, and of services that speak its language: chat completions, completions, embeddings and
/// responses, as JSON and as events.
///
/// A stream of chat completions tells its usage only if the request has `"stream_options": {"include_usage": true}`.
pub fn openai() -> Usage {
    Usage::known(
        &[
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
        &["usage.total_tokens", "response.usage.total_tokens"],
    )
}

/// The tokens in the answers of Anthropic's messages, as JSON and as events: those of the input, those that were written to a cache and
/// read from one, and those of the output.
pub fn anthropic() -> Usage {
    Usage::known(
        &[
            (
                Side::Input,
                &["usage.input_tokens", "message.usage.input_tokens"],
            ),
            (
                Side::Input,
                &[
                    "usage.cache_creation_input_tokens",
                    "message.usage.cache_creation_input_tokens",
                ],
            ),
            (
                Side::Input,
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
        &[],
    )
}

/// The tokens in the answers of Gemini, as JSON, as an array and as events. Those of its thoughts are of the output.
pub fn gemini() -> Usage {
    Usage::known(
        &[
            (Side::Input, &["usageMetadata.promptTokenCount"]),
            (Side::Input, &["usageMetadata.toolUsePromptTokenCount"]),
            (Side::Output, &["usageMetadata.candidatesTokenCount"]),
            (Side::Output, &["usageMetadata.thoughtsTokenCount"]),
        ],
        &["usageMetadata.totalTokenCount"],
    )
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
    shape.paths = all.into();
    Ok(Usage {
        shape: Arc::new(shape),
    })
}

impl Usage {
    fn known(parts: &[(Side, &[&str])], totals: &[&str]) -> Self {
        let mut paths = Vec::new();
        let mut places = |texts: &[&str]| {
            let begin = paths.len();
            paths.extend(texts.iter().map(|text| JsonPath::known(text)));
            (begin..paths.len()).collect()
        };
        let parts = parts.iter().map(|(side, texts)| Part {
            side: Some(*side),
            paths: places(texts),
            weight: 1,
        });
        let parts = parts.collect();
        let totals = places(totals);
        Self {
            shape: Arc::new(Shape {
                paths: paths.into(),
                parts,
                totals,
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
                Some(Side::Input) => input,
                Some(Side::Output) => output,
                None => part.weight,
            };
        }
        self
    }

    pub(super) fn paths(&self) -> Arc<[JsonPath]> {
        Arc::clone(&self.shape.paths)
    }

    /// Returns the units of an answer with these numbers at the paths, or `None` if it has none of them.
    pub(super) fn units(&self, found: &[Option<u64>]) -> Option<u32> {
        let at = |places: &[usize]| places.iter().find_map(|place| *found.get(*place)?);
        let parts = &self.shape.parts;
        let total = at(&self.shape.totals);
        let heaviest = parts.iter().map(|part| part.weight).max().unwrap_or(1);
        let is_plain = parts.iter().all(|part| part.weight == 1);
        let known = parts
            .iter()
            .filter_map(|part| Some(at(&part.paths)?.saturating_mul(part.weight.into())));
        let sum = known.clone().fold(0, u64::saturating_add);
        let units = match total {
            Some(total) if is_plain => total,
            _ if known.count() > 0 => sum,
            total => total?.saturating_mul(heaviest.into()),
        };
        Some(u32::try_from(units).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.shape.paths).finish()
    }
}

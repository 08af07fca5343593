//! What a request to a model will use, by its body: for [`Policy::estimate_with`](crate::Policy::estimate_with).
//!
//! The body says how many tokens the answer may have at most, and its texts are what the model is to read. A
//! [`ReadJsonLayer`](crate::middleware::ReadJsonLayer) outside of the limits reads the body; it always looks for the numbers of the presets, and
//! for others if it is told to:
//!
//! ```
//! use tower_ratelimit::middleware::ReadJsonLayer;
//! use tower_ratelimit::{AnchoredWindow, Policy, key, usage};
//!
//! let tokens = Policy::new("tokens", AnchoredWindow::per_minute(100_000))
//!     .key(key::api_key())
//!     .estimate_with(usage::estimate::openai())
//!     .settle(usage::openai());
//! let rows = Policy::new("rows", AnchoredWindow::per_minute(10_000))
//!     .key(key::api_key())
//!     .estimate(500)
//!     .estimate_with(usage::estimate::json("page.size"))
//!     .settle(usage::json("rows"));
//! let outside = ReadJsonLayer::new().number("page.size");
//! ```
//!
//! A number that stands twice in a body counts by its largest value. A body that cannot be read, since it is too long or of
//! another type, is estimated by its length and the default, if the layer [lets it pass](crate::middleware::ReadJsonLayer::read_if). Where
//! no layer has read the body, the log says so once ([`TRL039`](crate::diagnostics)), and the estimate is the default.

use tower_ratelimit_core::__internal::diagnose;

use crate::key::{Head, JsonFields, NOT_READ};

/// The tokens of an answer whose request bounds them by no number.
const UNBOUNDED: u64 = 1_024;

/// The members that bound the tokens of an answer, and those that say how many answers there are.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    most: &'static [&'static str],
    answers: &'static [&'static str],
}

pub(super) const OPENAI: Shape = Shape {
    most: &["max_completion_tokens", "max_tokens", "max_output_tokens"],
    answers: &["n"],
};

pub(super) const ANTHROPIC: Shape = Shape {
    most: &["max_tokens"],
    answers: &[],
};

// Its parser takes both spellings.
pub(super) const GEMINI: Shape = Shape {
    most: &[
        "generationConfig.maxOutputTokens",
        "generation_config.max_output_tokens",
        "generationConfig.max_output_tokens",
        "generation_config.maxOutputTokens",
    ],
    answers: &[
        "generationConfig.candidateCount",
        "generation_config.candidate_count",
        "generationConfig.candidate_count",
        "generation_config.candidateCount",
    ],
};

/// Returns the paths that the presets read.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    let shapes = [OPENAI, ANTHROPIC, GEMINI];
    shapes
        .into_iter()
        .flat_map(|shape| shape.most.iter().chain(shape.answers).copied())
}

/// The tokens of a request to OpenAI, and to services that speak its language: the bytes of all texts in the body, divided by
/// four, and `max_completion_tokens`, `max_tokens` or `max_output_tokens`, else 1,024, for each of `n` answers.
pub fn openai() -> impl Fn(&Head<'_>) -> u32 + Clone + Send + Sync + 'static {
    of(OPENAI)
}

/// The tokens of a request to Anthropic: the bytes of all texts in the body, divided by four, and `max_tokens`, else 1,024.
pub fn anthropic() -> impl Fn(&Head<'_>) -> u32 + Clone + Send + Sync + 'static {
    of(ANTHROPIC)
}

/// The tokens of a request to Gemini: the bytes of all texts in the body, divided by four, and
/// `generationConfig.maxOutputTokens`, else 1,024, for each of `generationConfig.candidateCount` answers.
pub fn gemini() -> impl Fn(&Head<'_>) -> u32 + Clone + Send + Sync + 'static {
    of(GEMINI)
}

/// The number at this path of the body, which the layer outside has to [name](crate::middleware::ReadJsonLayer::number). `None` if the body
/// does not have it, so that [`Policy::estimate`](crate::Policy::estimate) counts.
pub fn json(path: impl Into<String>) -> impl Fn(&Head<'_>) -> Option<u32> + Clone + Send + Sync {
    let path = path.into();
    move |head: &Head<'_>| {
        let fields = head.extension::<JsonFields>();
        let Some(fields) = fields.filter(|fields| fields.knows(&path)) else {
            diagnose(&NOT_READ);
            return None;
        };
        let number = fields.number(&path)?;
        Some(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

fn of(shape: Shape) -> impl Fn(&Head<'_>) -> u32 + Clone + Send + Sync + 'static {
    move |head: &Head<'_>| {
        let (read, written) = shape.tokens(head);
        u32::try_from(read.saturating_add(written)).unwrap_or(u32::MAX)
    }
}

impl Default for Shape {
    fn default() -> Self {
        OPENAI
    }
}

impl Shape {
    /// Returns how many tokens the model is to read, and how many it may write.
    pub(super) fn tokens(self, head: &Head<'_>) -> (u64, u64) {
        let fields = head.extension::<JsonFields>();
        if fields.is_none() {
            diagnose(&NOT_READ);
        }
        let largest = |paths: &[&str]| {
            let numbers = paths.iter().map(|path| fields?.number(path));
            numbers.max().flatten()
        };
        let read = fields.map_or(0, JsonFields::bytes_of_texts).div_ceil(4);
        let most = largest(self.most).unwrap_or(UNBOUNDED);
        let answers = largest(self.answers).unwrap_or(1).max(1);
        (read, most.saturating_mul(answers))
    }
}

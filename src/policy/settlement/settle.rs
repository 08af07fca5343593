//! Where the real cost of a request is found.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName};

use tower_ratelimit_core::__internal::or_panic;

use super::{Cost, Ending};
use crate::error::ConfigError;
use crate::usage::{Usage, UsageReader};

/// Where the real cost of a request is found, in units.
///
/// The real cost replaces the estimate, even above the limit. A number that exceeds a `u32` counts as its
/// largest value.
#[derive(Clone)]
pub struct Settle {
    sources: Vec<CostSource>,
}

#[derive(Clone)]
enum CostSource {
    Header(HeaderName),
    Cost,
    Spend,
    Bytes(NonZeroU32),
    Ending(Arc<Read>),
    #[cfg_attr(
        not(feature = "usage"),
        expect(dead_code, reason = "there is no usage to put in")
    )]
    Usage(Usage),
}

type Read = dyn Fn(&Ending<'_>) -> Option<u32> + Send + Sync;

/// The cost that a source has reported before the end, and the index of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedCost {
    place: usize,
    units: u32,
}

/// The costs that are known at the end of a request, by where they were reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownCosts {
    pub(crate) reported: Option<ReportedCost>,
    /// In its [`Spend`](super::Spend).
    pub(crate) spent: Option<u32>,
    /// In the body.
    pub(crate) used: Option<u32>,
}

impl ReportedCost {
    /// Returns the cost that counts if a trailer reports another one: that of the earlier source, and of the same source
    /// the later one.
    pub(crate) fn or_later(self, trailer: Self) -> Self {
        if trailer.place <= self.place {
            trailer
        } else {
            self
        }
    }
}

impl Settle {
    fn one(source: CostSource) -> Self {
        Self {
            sources: vec![source],
        }
    }

    /// Takes the cost from a header of the response, or from a trailer: a whole number. Of both, the trailer counts.
    ///
    /// If a complete successful response has neither, the log says so once ([`TRL025`](crate::diagnostics)).
    /// The header stays in the response.
    ///
    /// # Panics
    ///
    /// If the name is not a valid header name. [`try_from_header`](Self::try_from_header) returns an error
    /// instead.
    #[track_caller]
    pub fn from_header(name: &str) -> Self {
        or_panic(Self::try_from_header(name))
    }

    /// Takes the cost from a header of the response; see [`from_header`](Self::from_header).
    ///
    /// # Errors
    ///
    /// When the name is not a valid header name.
    pub fn try_from_header(name: &str) -> Result<Self, ConfigError> {
        let remedy = "give the name of a header, such as `x-cost`";
        let parsed = name.parse();
        let name: HeaderName = parsed.map_err(|_| ConfigError::quoting("header", name, remedy))?;
        Ok(Self::one(CostSource::Header(name)))
    }

    /// Takes the cost from the extensions of the response: a [`Cost`] that the handler has added.
    pub fn from_cost() -> Self {
        Self::one(CostSource::Cost)
    }

    /// Gives the handler a [`Spend`](super::Spend), in the extensions of the request, and takes the sum that
    /// the handler has added to it. The sum counts even if the request ends without an answer.
    ///
    /// A middleware inside of the layer may call the handler several times, such as `tower::retry`. The layer
    /// then charges the sum of all tries. A second layer inside of that middleware charges each try for itself.
    pub fn from_spend() -> Self {
        Self::one(CostSource::Spend)
    }

    /// Counts the bytes of the body that were sent.
    pub fn from_bytes() -> Self {
        Self::one(CostSource::Bytes(NonZeroU32::MIN))
    }

    /// Counts the bytes of the body that were sent, in units of this many bytes, rounded up.
    pub fn from_bytes_in_units_of(bytes: NonZeroU32) -> Self {
        Self::one(CostSource::Bytes(bytes))
    }

    /// Takes the cost from a closure over the end of the response.
    ///
    /// The layer then keeps a copy of the headers for it.
    pub fn from_ending(read: impl Fn(&Ending<'_>) -> Option<u32> + Send + Sync + 'static) -> Self {
        Self::one(CostSource::Ending(Arc::new(read)))
    }

    /// Takes the cost from what the body of the response [says that it has used](crate::usage).
    #[cfg(feature = "usage")]
    pub fn from_usage(usage: Usage) -> Self {
        Self::one(CostSource::Usage(usage))
    }

    /// Takes the cost from another source if it is not found here, neither in the head of the response nor in its
    /// trailers.
    pub fn or(mut self, other: Self) -> Self {
        self.sources.extend(other.sources);
        self
    }

    pub(super) fn asks_about_the_end(&self) -> bool {
        let asks = |source: &CostSource| matches!(source, CostSource::Ending(_));
        self.sources.iter().any(asks)
    }

    pub(super) fn takes_a_spend(&self) -> bool {
        let takes = |source: &CostSource| matches!(source, CostSource::Spend);
        self.sources.iter().any(takes)
    }

    pub(super) fn reported_cost(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Option<ReportedCost> {
        let reported = |(place, source): (usize, &CostSource)| {
            let units = match source {
                CostSource::Header(name) => number(headers.get(name)?.to_str().ok()?)?,
                CostSource::Cost => extensions.get::<Cost>()?.0,
                _ => return None,
            };
            Some(ReportedCost { place, units })
        };
        self.sources.iter().enumerate().find_map(reported)
    }

    pub(super) fn cost(&self, known: KnownCosts, ending: &Ending<'_>) -> Option<u32> {
        let cost = |(place, source): (usize, &CostSource)| match source {
            CostSource::Header(_) | CostSource::Cost => known
                .reported
                .filter(|reported| reported.place == place)
                .map(|reported| reported.units),
            CostSource::Spend => known.spent,
            CostSource::Bytes(unit) => {
                let units = ending.bytes().div_ceil(unit.get().into());
                Some(u32::try_from(units).unwrap_or(u32::MAX))
            }
            CostSource::Ending(read) => read(ending),
            CostSource::Usage(_) => known.used,
        };
        self.sources.iter().enumerate().find_map(cost)
    }

    /// Returns what reads the body of a response with these headers, if the body tells the cost.
    pub(super) fn reader(&self, headers: &HeaderMap) -> Option<UsageReader> {
        Some(UsageReader::new(self.usage()?, headers))
    }

    pub(super) fn usage(&self) -> Option<&Usage> {
        self.sources.iter().find_map(|source| match source {
            CostSource::Usage(usage) => Some(usage),
            _ => None,
        })
    }
}

/// Parses any number of digits, and nothing else.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.sources).finish()
    }
}

impl fmt::Debug for CostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => f.debug_tuple("Header").field(name).finish(),
            Self::Cost => f.write_str("Cost"),
            Self::Spend => f.write_str("Spend"),
            Self::Bytes(unit) => f.debug_tuple("Bytes").field(unit).finish(),
            Self::Ending(_) => f.write_str("Ending(closure)"),
            Self::Usage(usage) => f.debug_tuple("Usage").field(usage).finish(),
        }
    }
}

#[cfg(feature = "usage")]
impl From<Usage> for Settle {
    fn from(usage: Usage) -> Self {
        Self::from_usage(usage)
    }
}

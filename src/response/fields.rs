//! The rate limit headers of a response, in all dialects of the layer.
//!
//! Headers of an inner service stay where the syntax permits it. Draft 11 alone is the common case
//! and has a path of its own. A program that chooses no other dialect does not contain the others: they are called
//! through a trait object, which [`several`](super::several) makes.

use std::fmt;

use http::{HeaderMap, Response, StatusCode};

use super::draft11::{Draft11, Draft11Headers};
use super::refusal::Refusal;
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::store::Charge;

/// Writes the headers of all chosen dialects.
#[derive(Debug)]
pub(super) enum Writers {
    None,
    /// Draft 11 alone, as in most layers. Its path does not touch the other dialects.
    Draft11(Draft11),
    Several(Box<dyn WriteSeveral>),
}

/// Writes the headers of other dialects than draft 11 alone.
pub(super) trait WriteSeveral: fmt::Debug + Send + Sync {
    fn allowed(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Fields>;

    /// `most` is the longest `Retry-After`.
    fn denied(&self, charges: &[Charge], outcomes: &Outcomes, most: Micros) -> Option<Fields>;
}

/// The headers of one response.
#[derive(Debug)]
pub(crate) enum Fields {
    Draft11(Draft11Headers),
    Several(Box<dyn AddSeveral>),
    /// The decision beside them, for outer layers.
    Exposed(Box<(Option<Fields>, Decision)>),
}

/// The headers of one response in other dialects than draft 11 alone.
pub(crate) trait AddSeveral: fmt::Debug + Send + Sync {
    /// Adds the headers to those of a response.
    fn add_to(self: Box<Self>, headers: &mut HeaderMap);

    /// Adds the headers to those of a refusal, which no cache keeps.
    fn add_to_refusal(self: Box<Self>, headers: &mut HeaderMap);
}

impl Writers {
    #[inline]
    pub(super) fn allowed(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Fields> {
        match self {
            Self::None => None,
            Self::Draft11(writer) => writer.allowed(outcomes).map(Fields::Draft11),
            Self::Several(writers) => writers.allowed(charges, outcomes),
        }
    }

    /// `most` is the longest `Retry-After`.
    pub(super) fn denied(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        most: Micros,
    ) -> Option<Fields> {
        match self {
            Self::None => None,
            Self::Draft11(writer) => writer.denied(outcomes, most).map(Fields::Draft11),
            Self::Several(writers) => writers.denied(charges, outcomes, most),
        }
    }
}

impl Fields {
    /// Adds the decision to these headers, for the extensions of the response.
    pub(crate) fn with_decision(fields: Option<Self>, decision: Decision) -> Self {
        Self::Exposed(Box::new((fields, decision)))
    }

    /// Adds the headers to a response.
    ///
    /// A redirect and an informational response get none. The refusal of an inner layer gets none
    /// either: it lists the policies that the request violates, and no others.
    pub(crate) fn add_to<B>(self, response: &mut Response<B>) {
        if let Self::Exposed(exposed) = self {
            let (fields, decision) = *exposed;
            response.extensions_mut().insert(decision);
            if let Some(fields) = fields {
                fields.add_to(response);
            }
            return;
        }
        let status = response.status();
        let redirects = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
        if redirects || status.is_informational() {
            return;
        }
        if let Some(Refusal::Denied(_)) = response.extensions().get() {
            return;
        }
        self.add_to_headers(response.headers_mut());
    }

    /// Adds the headers to those of a response that goes to the client as it is.
    pub(super) fn add_to_headers(self, headers: &mut HeaderMap) {
        match self {
            Self::Draft11(ours) => ours.add_to(headers),
            Self::Several(several) => several.add_to(headers),
            Self::Exposed(exposed) => {
                if let (Some(fields), _) = *exposed {
                    fields.add_to_headers(headers);
                }
            }
        }
    }
}

#[cfg(feature = "tonic")]
impl Fields {
    /// Adds the headers to those of a refusal.
    pub(super) fn add_to_refusal(self, headers: &mut HeaderMap) {
        match self {
            Self::Draft11(ours) => ours.add_to(headers),
            Self::Several(several) => several.add_to_refusal(headers),
            Self::Exposed(exposed) => {
                if let (Some(fields), _) = *exposed {
                    fields.add_to_refusal(headers);
                }
            }
        }
    }
}

//! The rate limit headers of a response, in all dialects of the layer.
//!
//! Headers of an inner service stay where the syntax permits it. Draft 11 alone is the common case
//! and has a path of its own.

use std::sync::LazyLock;

use http::header::CACHE_CONTROL;
use http::{HeaderMap, Response, StatusCode};

use super::binding::Binding;
use super::dialect::Dialect;
use super::draft11::Draft11;
use super::form::Form;
use super::lists::Lists;
use super::names::{RATELIMIT, RATELIMIT_POLICY};
use super::options::AnswerOptions;
use super::partition;
use super::refusal::Refusal;
use super::set::Set;
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes, Rule};
use crate::key::Secret;
use crate::store::Charge;

/// Both headers of draft 11, for a response without other headers.
static ALONE: LazyLock<Form<2>> =
    LazyLock::new(|| Form::new(&[], [RATELIMIT_POLICY.clone(), RATELIMIT.clone()]));

/// Writes the headers of all chosen dialects.
#[derive(Debug)]
pub(super) enum Writers {
    None,
    /// Draft 11 alone, as in most layers. Its path does not touch the other dialects.
    Draft11(Draft11),
    Several(Box<SeveralWriters>),
}

#[derive(Debug)]
pub(super) struct SeveralWriters {
    draft11: Option<Draft11>,
    /// Makes the partition keys of draft 11.
    secret: Option<Secret>,
    others: Vec<Binding>,
    unless_public: bool,
}

/// The headers of one response.
#[derive(Debug)]
pub(crate) enum Fields {
    Draft11(Lists),
    Several(Box<Several>),
    /// The decision beside them, for outer layers.
    Exposed(Box<(Option<Fields>, Decision)>),
}

#[derive(Debug)]
pub(crate) struct Several {
    lists: Option<Lists>,
    sets: Vec<Set>,
    unless_public: bool,
}

impl Writers {
    pub(super) fn new(options: &AnswerOptions, rules: &[Rule]) -> Self {
        let (dialects, unless_public) = (&options.dialects, options.fields_unless_public);
        let secret = options.partition_secret.clone();
        match **dialects {
            [] => Self::None,
            [Dialect::Draft11] if secret.is_none() && !unless_public => {
                Self::Draft11(Draft11::new(rules))
            }
            _ => {
                let draft11 = dialects.contains(&Dialect::Draft11);
                let others = dialects.iter().filter(|other| **other != Dialect::Draft11);
                Self::Several(Box::new(SeveralWriters {
                    draft11: draft11.then(|| Draft11::new(rules)),
                    secret,
                    others: others.map(|other| Binding::new(*other, rules)).collect(),
                    unless_public,
                }))
            }
        }
    }

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

impl SeveralWriters {
    // A separate function keeps the path of draft 11 alone short.
    #[inline(never)]
    fn allowed(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Fields> {
        let lists = self
            .draft11
            .as_ref()
            .and_then(|writer| match self.partitions(charges) {
                None => writer.allowed(outcomes),
                Some(partitions) => writer.allowed_with(outcomes, &partitions),
            });
        let sets = self
            .others
            .iter()
            .filter_map(|other| other.allowed(outcomes));
        self.fields(lists, sets.collect())
    }

    #[inline(never)]
    fn denied(&self, charges: &[Charge], outcomes: &Outcomes, most: Micros) -> Option<Fields> {
        let lists = self
            .draft11
            .as_ref()
            .and_then(|writer| match self.partitions(charges) {
                None => writer.denied(outcomes, most),
                Some(partitions) => writer.denied_with(outcomes, &partitions, most),
            });
        let sets = self
            .others
            .iter()
            .filter_map(|other| other.denied(outcomes, most));
        self.fields(lists, sets.collect())
    }

    fn partitions(&self, charges: &[Charge]) -> Option<Vec<String>> {
        let secret = self.secret.as_ref()?;
        Some(partition::parameters(secret, charges))
    }

    /// Returns `None` if there is nothing to tell.
    fn fields(&self, lists: Option<Lists>, sets: Vec<Set>) -> Option<Fields> {
        let tells = lists.is_some() || !sets.is_empty();
        tells.then(|| {
            Fields::Several(Box::new(Several {
                lists,
                sets,
                unless_public: self.unless_public,
            }))
        })
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
            Self::Draft11(lists) if headers.capacity() == 0 => {
                *headers = ALONE.filled([lists.policies, lists.limits]);
            }
            Self::Draft11(lists) => lists.add_to(headers),
            Self::Several(several) if several.unless_public && is_public(headers) => {}
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
            Self::Draft11(lists) => lists.add_to(headers),
            Self::Several(several) => several.add_to(headers),
            Self::Exposed(exposed) => {
                if let (Some(fields), _) = *exposed {
                    fields.add_to_refusal(headers);
                }
            }
        }
    }
}

impl Several {
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        if let Some(lists) = self.lists {
            lists.add_to(headers);
        }
        for set in self.sets {
            set.add_to(headers);
        }
    }
}

/// Returns whether the response allows shared caches to keep it (RFC 9111, section 5.2.2).
fn is_public(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CACHE_CONTROL).iter();
    let mut directives = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    directives.any(|directive| {
        let name = directive.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("public") || name.eq_ignore_ascii_case("s-maxage")
    })
}

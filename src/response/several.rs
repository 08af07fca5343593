//! The headers of several dialects, of any but draft 11, and those that depend on more than the decision.

use http::HeaderMap;
use http::header::CACHE_CONTROL;

use tower_ratelimit_core::__internal::Rule;

use super::binding::Binding;
use super::dialect::Dialect;
use super::draft11::{Draft11, Draft11Headers};
use super::fields::{AddSeveral, Fields, WriteSeveral, Writers};
use super::partition;
use super::set::Set;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::key::Secret;
use crate::store::Charge;

/// The options of a layer for its headers.
#[derive(Clone, Debug)]
pub(super) struct HeaderOptions {
    pub(super) dialects: Vec<Dialect>,
    /// Whether responses that shared caches may keep have none.
    pub(super) unless_public: bool,
    pub(super) partition_secret: Option<Secret>,
}

#[derive(Debug)]
struct SeveralWriters {
    draft11: Option<Draft11>,
    /// Makes the partition keys of draft 11.
    secret: Option<Secret>,
    others: Vec<Binding>,
    unless_public: bool,
}

#[derive(Debug)]
struct Several {
    draft11: Option<Draft11Headers>,
    sets: Vec<Set>,
    unless_public: bool,
}

impl HeaderOptions {
    /// Returns whether all responses have the headers of draft 11, and no others.
    pub(super) fn is_draft11_alone(&self) -> bool {
        let is_plain = self.partition_secret.is_none() && !self.unless_public;
        is_plain && *self.dialects == [Dialect::Draft11]
    }
}

/// Makes the writers of all dialects that the options name.
pub(super) fn writers(options: &HeaderOptions, rules: &[Rule]) -> Writers {
    let dialects = &options.dialects;
    match **dialects {
        [] => Writers::None,
        _ if options.is_draft11_alone() => Writers::Draft11(Draft11::new(rules)),
        _ => {
            let draft11 = dialects.contains(&Dialect::Draft11);
            let others = dialects.iter().filter(|other| **other != Dialect::Draft11);
            Writers::Several(Box::new(SeveralWriters {
                draft11: draft11.then(|| Draft11::new(rules)),
                secret: options.partition_secret.clone(),
                others: others.map(|other| Binding::new(*other, rules)).collect(),
                unless_public: options.unless_public,
            }))
        }
    }
}

impl WriteSeveral for SeveralWriters {
    fn allowed(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Fields> {
        let draft11 = self
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
        self.fields(draft11, sets.collect())
    }

    fn denied(&self, charges: &[Charge], outcomes: &Outcomes, most: Micros) -> Option<Fields> {
        let draft11 = self
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
        self.fields(draft11, sets.collect())
    }
}

impl SeveralWriters {
    fn partitions(&self, charges: &[Charge]) -> Option<Vec<String>> {
        let secret = self.secret.as_ref()?;
        Some(partition::parameters(secret, charges))
    }

    /// Returns `None` if there is nothing to tell.
    fn fields(&self, draft11: Option<Draft11Headers>, sets: Vec<Set>) -> Option<Fields> {
        let tells = draft11.is_some() || !sets.is_empty();
        tells.then(|| {
            Fields::Several(Box::new(Several {
                draft11,
                sets,
                unless_public: self.unless_public,
            }))
        })
    }
}

impl AddSeveral for Several {
    fn add_to(self: Box<Self>, headers: &mut HeaderMap) {
        if !(self.unless_public && is_public(headers)) {
            self.add_to_refusal(headers);
        }
    }

    fn add_to_refusal(self: Box<Self>, headers: &mut HeaderMap) {
        if let Some(draft11) = self.draft11 {
            draft11.add_to(headers);
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

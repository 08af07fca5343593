//! The bodies of requests: which fields of them a file reads, and of which requests.

use std::fmt;
use std::sync::Arc;

use super::body_fields::{Field, FieldOf, OfPolicy};
use super::functions::Condition;
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::{ReadJsonLayer, Unreadable};
use tower_ratelimit::policy::{Mode, Modes};

pub(super) static REQUEST_BODY: Vocabulary<Bodies> = Vocabulary(&[
    setting("max_bytes")
        .says("The length of the longest body that is read, in bytes; the default is 65536.")
        .integer(|bodies, bytes| Bodies {
            max_bytes: Some(usize::try_from(bytes).unwrap_or(usize::MAX)),
            ..bodies
        }),
    setting("unreadable")
        .says(
            "What happens to a request whose body cannot be read; the default is refuse, unless it is only read for an \
             estimate.",
        )
        .of(Shape::Word(&UNREADABLE), |bodies, at| {
            Some(Bodies {
                unreadable: Some(at.one_of(&UNREADABLE)?),
                ..bodies
            })
        }),
]);

static UNREADABLE: [(&str, Unreadable); 2] =
    [("refuse", Unreadable::Refuse), ("pass", Unreadable::Pass)];

/// What a file reads of the bodies of requests.
#[derive(Clone, Default)]
pub(super) struct Bodies {
    policies: Arc<[OfPolicy]>,
    /// The conditions of requests that no policy decides.
    listed: Arc<[Arc<Condition>]>,
    max_bytes: Option<usize>,
    unreadable: Option<Unreadable>,
}

impl Bodies {
    /// Reads the table of the root, once the policies and the lists are read.
    pub(super) fn read(root: &TableAt<'_>) -> Option<Self> {
        let walk = root.at.walk;
        let others = OfPolicy {
            fields: walk.take_fields(),
            ..OfPolicy::default()
        };
        let policies = walk.take_bodies().into_iter().chain([others]);
        let mut bodies = Self {
            policies: policies.filter(|of| !of.reads_nothing()).collect(),
            listed: walk.take_listed().into(),
            ..Self::default()
        };
        let Some(at) = root.get("request_body") else {
            return Some(bodies);
        };
        let table = at.table(&REQUEST_BODY)?;
        REQUEST_BODY.apply(&table, &mut bodies)?;
        if bodies.policies.is_empty() {
            at.warn("no policy reads a body; leave it out, or name a field, such as key = { json = \"model\" }");
        }
        Some(bodies)
    }

    /// Returns whether no policy reads a body.
    pub(super) fn are_none(&self) -> bool {
        self.policies.is_empty()
    }

    /// Returns the layer that reads them, for policies with these switches.
    pub(super) fn layer(&self, modes: &Modes) -> Result<ReadJsonLayer, ConfigError> {
        let (bodies, switches) = (self.clone(), modes.clone());
        let mut layer = ReadJsonLayer::new()
            .and_no_others()
            .read_if(move |head| bodies.of(head, &switches));
        if self.policies.iter().any(|policy| policy.includes_usage) {
            let (bodies, switches) = (self.clone(), modes.clone());
            layer = layer.include_usage_if(move |head| bodies.include_usage(head, &switches));
        }
        for field in self.policies.iter().flat_map(|policy| &policy.fields) {
            layer = match field.is {
                FieldOf::Text => layer.try_text(&field.path)?,
                FieldOf::McpName => layer.try_mcp()?,
                FieldOf::Cost | FieldOf::Estimate => layer.try_number(&field.path)?,
            };
        }
        Ok(match self.max_bytes {
            Some(bytes) => layer.max_bytes(bytes),
            None => layer,
        })
    }

    /// Returns these with those of a file in shadow, for which no request is refused.
    pub(super) fn beside(&self, shadow: &Self) -> Self {
        let of_shadow = shadow.policies.iter().map(|of| OfPolicy {
            // Its modes are those of another file.
            name: None,
            is_shadow: true,
            ..of.clone()
        });
        Self {
            policies: self.policies.iter().cloned().chain(of_shadow).collect(),
            ..self.clone()
        }
    }

    /// Returns the policies that apply to a request and are not off, with their modes.
    fn applying(&self, head: &Head<'_>, modes: &Modes) -> impl Iterator<Item = (&OfPolicy, Mode)> {
        let policies = self.policies.iter().map(|policy| {
            let mode = policy.name.as_ref().and_then(|name| modes.of(name));
            (policy, mode.unwrap_or(Mode::Enforce))
        });
        policies.filter(|(policy, mode)| {
            *mode != Mode::Off && policy.when.as_ref().is_none_or(|when| when(head))
        })
    }

    /// Returns whether a policy asks for the usage of the stream that answers a request.
    fn include_usage(&self, head: &Head<'_>, modes: &Modes) -> bool {
        let is_listed = self.listed.iter().any(|holds| holds(head));
        let mut policies = self.applying(head, modes);
        !is_listed && policies.any(|(policy, _)| policy.includes_usage && !policy.is_shadow)
    }

    /// Returns what happens to a request if its body cannot be read, or `None` if no policy asks for it.
    fn of(&self, head: &Head<'_>, modes: &Modes) -> Option<Unreadable> {
        if self.policies.is_empty() || self.listed.iter().any(|holds| holds(head)) {
            return None;
        }
        let mut unreadable = None;
        for (policy, mode) in self.applying(head, modes) {
            if mode == Mode::Enforce && policy.refuses() {
                unreadable = Some(Unreadable::Refuse);
            }
            unreadable = unreadable.or(Some(Unreadable::Pass));
        }
        unreadable.map(|by_default| self.unreadable.unwrap_or(by_default))
    }
}

impl fmt::Debug for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bodies")
            .field("max_bytes", &self.max_bytes)
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}

/// Reads the path of a field of the body, and notes that the file reads it.
pub(super) fn field<'w>(at: &At<'w>, is: FieldOf) -> Option<&'w str> {
    let path = at.text()?;
    at.made(tower_ratelimit::key::try_json(path))?;
    at.walk.reads_field(Field {
        path: path.to_owned(),
        is,
    });
    Some(path)
}

use http::{HeaderMap, HeaderName, HeaderValue};

use super::dialect::Dialect;
use super::names::RATELIMIT_POLICY;

/// The headers of one response in a dialect with room for one policy.
#[derive(Debug)]
pub(super) struct Set {
    dialect: Dialect,
    /// `None` if the headers have no limit.
    remaining: Option<u32>,
    fields: Vec<(&'static HeaderName, HeaderValue)>,
}

impl Set {
    pub(super) fn of(dialect: Dialect) -> Self {
        Self {
            dialect,
            remaining: None,
            fields: Vec::new(),
        }
    }

    pub(super) fn limit(
        &mut self,
        remaining: u32,
        fields: Vec<(&'static HeaderName, HeaderValue)>,
    ) {
        self.remaining = Some(remaining);
        self.fields = fields;
    }

    pub(super) fn policies(&mut self, list: String) {
        if let (false, Ok(list)) = (list.is_empty(), list.try_into()) {
            self.fields.push((&RATELIMIT_POLICY, list));
        }
    }

    pub(super) fn if_any(self) -> Option<Self> {
        (!self.fields.is_empty()).then_some(self)
    }

    /// Adds the headers, unless the response already has such headers with a lower number.
    ///
    /// Each of these headers has one value, and a client would read two lines as none. The set with
    /// the lower number stays, as a whole. A set without a readable number stays too.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        let family = self.dialect.family();
        if family.iter().any(|name| headers.contains_key(name)) {
            let ours = self.remaining.map(u64::from);
            let theirs = self.remaining_in(headers);
            if !matches!((ours, theirs), (Some(ours), Some(theirs)) if ours < theirs) {
                return;
            }
            for name in family {
                headers.remove(name);
            }
        }
        for (name, value) in self.fields {
            // A full map stays as it is.
            if headers.try_insert(name, value).is_err() {
                return;
            }
        }
    }

    /// Returns the lowest remaining number in the headers of this family, or `None` unless all are
    /// numbers.
    fn remaining_in(&self, headers: &HeaderMap) -> Option<u64> {
        let lines = |name| headers.get_all(name).iter().map(HeaderValue::to_str);
        let numbers: Option<Vec<u64>> = match (self.dialect, self.dialect.family()) {
            (Dialect::Draft07, [_, name]) => lines(name)
                .flat_map(|line| line.unwrap_or_default().split(','))
                .filter_map(|member| member.trim().strip_prefix("remaining="))
                .map(|number| number.parse().ok())
                .collect(),
            (_, [_, name, ..]) => lines(name)
                .map(|number| number.ok()?.trim().parse().ok())
                .collect(),
            _ => None,
        };
        numbers?.into_iter().min()
    }
}

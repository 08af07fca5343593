use http::{HeaderMap, HeaderName, HeaderValue};

/// A header map with fixed headers first, and then `OPEN` headers whose values each response fills
/// in.
///
/// A copy of the map costs less than the insertion of its headers, because it hashes no name.
pub(super) struct Form<const OPEN: usize>(HeaderMap);

impl<const OPEN: usize> Form<OPEN> {
    /// The names must be unique.
    pub(super) fn new(fixed: &[(HeaderName, &'static str)], open: [HeaderName; OPEN]) -> Self {
        let fixed = fixed.iter().map(|(name, value)| (name.clone(), *value));
        let open = open.into_iter().map(|name| (name, ""));
        let fields = fixed.chain(open);
        Self(
            fields
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .collect(),
        )
    }

    #[inline]
    pub(super) fn filled(&self, values: [HeaderValue; OPEN]) -> HeaderMap {
        let mut fields = self.0.clone();
        let fixed = fields.len().saturating_sub(OPEN);
        let mut open = fields.values_mut();
        open.by_ref().take(fixed).for_each(drop);
        for value in values {
            if let Some(open) = open.next() {
                *open = value;
            }
        }
        fields
    }
}

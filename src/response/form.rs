use http::{HeaderMap, HeaderName, HeaderValue};

/// A header map with `FIXED` headers, and then `OPEN` headers whose values each response fills in.
///
/// A copy of the map costs less than the insertion of its headers, because it hashes no name.
#[derive(Debug)]
pub(super) struct Form<const FIXED: usize, const OPEN: usize>(HeaderMap);

impl<const FIXED: usize, const OPEN: usize> Form<FIXED, OPEN> {
    /// The names must be unique.
    pub(super) fn new(fixed: [(HeaderName, HeaderValue); FIXED], open: [HeaderName; OPEN]) -> Self {
        let open = open.map(|name| (name, HeaderValue::from_static("")));
        Self(fixed.into_iter().chain(open).collect())
    }

    #[inline]
    pub(super) fn filled(&self, values: [HeaderValue; OPEN]) -> HeaderMap {
        let mut fields = self.0.clone();
        let mut open = fields.values_mut();
        for _ in 0..FIXED {
            open.next();
        }
        for value in values {
            if let Some(open) = open.next() {
                *open = value;
            }
        }
        fields
    }
}

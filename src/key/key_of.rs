use super::{Key, Missing};

/// Makes the key for a value, without a request that has the value.
///
/// Extractors have the method `key_of`, which uses this trait, so that nothing has to be imported. The trait
/// documents the type of the value. See [keys for an operator](crate::key#keys-for-an-operator).
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no key of a value alone",
    note = "a closure reads a request: make one up that is like the client's, and call `Extract::extract(&extractor, &Head::of(&request))`"
)]
pub trait KeyOf {
    /// The value that the extractor reads from a request.
    type Value<'a>;

    /// Returns the key that counts a request with this value.
    ///
    /// # Errors
    ///
    /// When a request with this value has no key, as [`Extract::extract`](super::Extract::extract) says.
    fn make(&self, value: Self::Value<'_>) -> Result<Key, Missing>;
}

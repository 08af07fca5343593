use super::{Head, Key, Missing, Secret};

/// The value that an extractor of this room reads, before it is a key.
///
/// `map` passes it to a closure in its own type, borrowed from the request.
pub trait Take: Send + Sync + 'static {
    type Out<'a>;

    fn take<'a>(&self, head: &Head<'a>) -> Result<Self::Out<'a>, Missing>;

    /// Returns the value that lists compare: the value taken, unless it replaces another one.
    fn list_value<'a>(&self, head: &Head<'a>) -> Result<Self::Out<'a>, Missing> {
        self.take(head)
    }

    /// Returns the text for [`Extract::identity`](super::Extract::identity), for the value taken.
    fn reads(&self) -> Option<String> {
        None
    }

    /// Returns the secret for the keys made from the value, if that is a credential.
    fn secret(&self) -> Option<&Secret> {
        None
    }

    /// Converts the key made from the value, for example by a hash.
    fn seal(&self, plain: Key) -> Key {
        match self.secret() {
            Some(secret) => secret.hash(plain),
            None => plain,
        }
    }
}

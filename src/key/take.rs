use super::{Head, Key, Missing, Secret};

/// What an extractor of this room reads, before it is a key.
///
/// `map` passes it to a closure in its own type, borrowed from the request.
pub trait Take: Send + Sync + 'static {
    type Out<'a>;

    fn take<'a>(&self, head: &Head<'a>) -> Result<Self::Out<'a>, Missing>;

    /// Returns the value that lists compare: the value taken, unless it replaces another one.
    fn told<'a>(&self, head: &Head<'a>) -> Result<Self::Out<'a>, Missing> {
        self.take(head)
    }

    /// As [`Extract::identity`](super::Extract::identity), for the value taken.
    fn reads(&self) -> Option<String> {
        None
    }

    /// What keys are hashed with that are made of what is taken, if that is a credential.
    fn secret(&self) -> Option<&Secret> {
        None
    }

    /// What becomes of the key that is made of it.
    fn seal(&self, plain: Key) -> Key {
        match self.secret() {
            Some(secret) => secret.hash(plain),
            None => plain,
        }
    }
}

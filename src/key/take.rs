use super::{Head, Key, Missing, Secret};

/// What an extractor of this room reads, before it is a key, so that `map` can hand it to a
/// closure in its own type, borrowed from the request.
pub trait Take: Send + Sync + 'static {
    type Out<'a>;

    fn take<'a>(&self, head: &Head<'a>) -> Result<Self::Out<'a>, Missing>;

    /// What lists are compared with: what is taken, unless that stands in for something else.
    fn told<'a>(&self, head: &Head<'a>) -> Result<Self::Out<'a>, Missing> {
        self.take(head)
    }

    /// As [`Extract::identity`](super::Extract::identity), of what is taken.
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

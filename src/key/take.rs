use super::{Head, Key, Missing};

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

    /// Finishes the key that is made of the value: hashes it if the extractor is hashed.
    fn seal(&self, plain: Key) -> Key {
        plain
    }
}

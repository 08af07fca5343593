use super::{Extract, Head, Key, KeyOf, Missing, Origin, Read};

/// The key of the first of two sources that has one.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: Extract, B: Extract> Origin for Or<A, B> {
    fn identity(&self) -> Option<String> {
        let (first, second) = (self.first.identity()?, self.second.identity()?);
        Some(format!("({first} or {second})"))
    }

    fn root(&self) -> Option<String> {
        let (first, second) = (self.first.root()?, self.second.root()?);
        Some(format!("({first} or {second})"))
    }

    fn credential(&self) -> Option<String> {
        let second = || self.second.credential_in_the_clear();
        self.first.credential_in_the_clear().or_else(second)
    }

    fn is_of_this_process(&self) -> bool {
        self.first.is_of_this_process() || self.second.is_of_this_process()
    }

    fn chosen(&self) -> Option<String> {
        let second = || self.second.chosen_by_client();
        self.first.chosen_by_client().or_else(second)
    }
}

impl<A: Extract, B: Extract> Read for Or<A, B> {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match self.first.extract(head) {
            Ok(key) => Ok(key.of_first()),
            Err(Missing::ByClient) => Ok(self.second.extract(head)?.of_second()),
            Err(by_server) => Err(by_server),
        }
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        match self.first.plain(head) {
            Err(Missing::ByClient) => self.second.plain(head),
            answer => answer,
        }
    }
}

/// The source that a request has, of two that are joined by `or`. [`key_of`](super::Extractor::key_of) makes a key of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source<A, B> {
    /// The first source.
    First(A),
    /// The second source, of a request without the first.
    Second(B),
}

impl<A: KeyOf, B: KeyOf> KeyOf for Or<A, B> {
    type Value<'a> = Source<A::Value<'a>, B::Value<'a>>;

    fn make(&self, value: Self::Value<'_>) -> Result<Key, Missing> {
        match value {
            Source::First(value) => Ok(self.first.make(value)?.of_first()),
            Source::Second(value) => Ok(self.second.make(value)?.of_second()),
        }
    }
}

use super::{Extract, Head, IntoKey, Key, KeyOf, Missing, Origin, Read};

/// Two keys as one.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B> {
    first: A,
    second: B,
}

impl<A, B> And<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: Extract, B: Extract> Origin for And<A, B> {
    fn identity(&self) -> Option<String> {
        let (first, second) = (self.first.identity()?, self.second.identity()?);
        Some(format!("({first} and {second})"))
    }

    fn root(&self) -> Option<String> {
        let (first, second) = (self.first.root()?, self.second.root()?);
        Some(format!("({first} and {second})"))
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

impl<A: Extract, B: Extract> Read for And<A, B> {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        both(self.first.extract(head), self.second.extract(head))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        both(self.first.plain(head), self.second.plain(head))
    }
}

impl<A: KeyOf, B: KeyOf> KeyOf for And<A, B> {
    type Value<'a> = (A::Value<'a>, B::Value<'a>);

    fn make(&self, (first, second): Self::Value<'_>) -> Result<Key, Missing> {
        both(self.first.make(first), self.second.make(second))
    }
}

/// A part that the server fails to provide is reported first, even if the client has left the other
/// part out.
fn both(first: Result<Key, Missing>, second: Result<Key, Missing>) -> Result<Key, Missing> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second).into_key()),
        (Err(by_server @ Missing::ByServer(_)), _) | (_, Err(by_server @ Missing::ByServer(_))) => {
            Err(by_server)
        }
        _ => Err(Missing::ByClient),
    }
}

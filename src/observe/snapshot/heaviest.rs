/// The keys that asked for most units under a policy in the last ten to twenty minutes, by a sketch of fixed memory: see
/// [`Policy::heaviest_keys`](crate::Policy::heaviest_keys).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HeavyKeys {
    pub(crate) total: u64,
    pub(crate) error: u64,
    pub(crate) keys: Vec<HeavyKey>,
}

impl HeavyKeys {
    /// Returns the units that all keys asked for.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the error bound in units: no number is too high by more than this, and a key that is missing
    /// asked for no more than this. It is about [`total`](Self::total) without the heaviest keys, divided by
    /// 64 or by eight times the number of reported keys, and never more than an eighth.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Returns the keys, the heaviest first: by the units that they asked for at least.
    pub fn keys(&self) -> &[HeavyKey] {
        &self.keys
    }
}

/// A key that asked for many units.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HeavyKey {
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) error: u64,
    pub(crate) refused: u64,
}

impl HeavyKey {
    /// Returns the key as text: a hash, unless the policy sets another form.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the units that it asked for, and where requests are settled what they cost in the end; at most [`error`](Self::error) too many, and never too few.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns by how much the units may be too many.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Returns how many of its requests were refused since it is tracked.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

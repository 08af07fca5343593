/// The keys that were charged most under a policy, by a sketch of fixed memory.
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

    /// Returns the error bound in units: no count is more too high than this, and every key that asked for more than
    /// this is listed, if it is among the first.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Returns the keys, the heaviest first.
    pub fn keys(&self) -> &[HeavyKey] {
        &self.keys
    }
}

/// A key that was charged much.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HeavyKey {
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) error: u64,
    pub(crate) refused: u64,
}

impl HeavyKey {
    /// Returns the key as it is shown: a hash, unless the sketch was told otherwise.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the units that it asked for; at most [`error`](Self::error) too many, and never too few.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns by how much the units may be too many.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Returns how many of its requests were refused since it is listed.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

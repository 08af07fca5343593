/// The keys that asked for most units under a policy in the last ten to twenty minutes, by a sketch of fixed memory: see
/// [`Policy::top_keys`](crate::Policy::top_keys).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeavyHitters {
    /// The units that all keys asked for.
    pub total: u64,
    /// The error bound in units: no number is too high by more than this, and a key that is missing asked for no more
    /// than this. It is about [`total`](Self::total) without the heaviest keys, divided by 64 or by eight times the number
    /// of reported keys, and never more than an eighth.
    pub error: u64,
    /// The keys, the heaviest first: by the units that they asked for at least.
    pub keys: Vec<HeavyHitter>,
}

/// A key that asked for many units.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeavyHitter {
    /// The key as text: a hash, unless the policy sets another form.
    pub key: String,
    /// The units that it asked for, and where requests are settled what they cost in the end; at most
    /// [`error`](Self::error) too many, and never too few.
    pub cost: u64,
    /// By how much the units may be too many.
    pub error: u64,
    /// How many of its requests were refused since it is tracked.
    pub refused: u64,
}

/// The differences between a file in shadow and the file in force.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ShadowStats {
    pub(crate) compared: u64,
    pub(crate) would_refuse: u64,
    pub(crate) would_allow: u64,
    pub(crate) last: Vec<String>,
    pub(crate) error: Option<String>,
}

impl ShadowStats {
    /// Returns how many requests both files have decided.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Returns how many of them were allowed, and would be refused.
    pub fn would_refuse(&self) -> u64 {
        self.would_refuse
    }

    /// Returns how many of them were refused, and would be allowed.
    pub fn would_allow(&self) -> u64 {
        self.would_allow
    }

    /// Returns the last differences as text, ten at most, the newest first: `GET /search: refused in shadow by minute`.
    pub fn last(&self) -> &[String] {
        &self.last
    }

    /// Returns why the newest file in shadow does not decide, or `None` if it does.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

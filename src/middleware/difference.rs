use std::fmt;
use std::time::SystemTime;

use http::Method;

use crate::decision::Decision;

/// A request that the file in shadow decides otherwise than the file in force; see
/// [`Watched::shadow`](crate::config::Watched::shadow).
///
/// It is in the extensions of a request that the file in shadow would refuse, and of the response to a
/// request that it would have allowed.
#[derive(Clone, Debug)]
pub struct Difference {
    pub(super) at: SystemTime,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) would_refuse: bool,
    pub(super) decision: Option<Decision>,
}

impl Difference {
    /// Returns when the request was decided, by the clock of this node.
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// Returns the method of the request.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the path of the request without its query, cut to 256 characters.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether the file in shadow would refuse a request that was allowed. If not, it would allow a request that was
    /// refused.
    pub fn would_refuse(&self) -> bool {
        self.would_refuse
    }

    /// Returns the decision that refuses: that of the file in shadow if it [would
    /// refuse](Self::would_refuse), and otherwise that of the file in force. `None` if a list or a missing
    /// key refuses, and not a policy.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }
}

/// Writes one line, such as `GET /search: refused in shadow by minute`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let says = if self.would_refuse {
            "refused in shadow"
        } else {
            "allowed in shadow, and refused"
        };
        write!(f, "{} {}: {says}", self.method, self.path)?;
        match self.decision.as_ref().and_then(Decision::binding) {
            Some((policy, _)) => write!(f, " by {policy}"),
            None => f.write_str(" without a policy"),
        }
    }
}

use super::Algorithm;
use crate::clock::Micros;
use crate::quota::Quota;

/// An algorithm's rule in Lua, for stores that run it where the state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lua {
    /// The name of the rule, and of the table that the text declares.
    pub(crate) name: &'static str,
    /// The text, which stands beside the same rule in Rust.
    pub(crate) text: &'static str,
    /// What its functions are given: the limit, and three numbers more.
    pub(crate) numbers: [u64; 4],
}

impl Algorithm {
    /// The rule in Lua; `None` if unlimited.
    pub(crate) fn lua(&self) -> Option<Lua> {
        Some(match self {
            Self::FixedWindow(window) => Lua {
                name: "fixed_window",
                text: include_str!("fixed_window/step.lua"),
                numbers: numbers(window.quota()),
            },
            Self::AnchoredWindow(window) => Lua {
                name: "anchored_window",
                text: include_str!("anchored_window/step.lua"),
                numbers: numbers(window.quota()),
            },
            Self::SlidingWindow(window) => Lua {
                name: "sliding_window",
                text: include_str!("sliding_window/step.lua"),
                numbers: numbers(window.quota()),
            },
            Self::SlidingLog(log) => Lua {
                name: "sliding_log",
                text: include_str!("sliding_log/step.lua"),
                numbers: numbers(log.quota()),
            },
            Self::SlidingSlots(slots) => slots.lua(),
            Self::TokenBucket(bucket) => bucket.lua(),
            Self::LeakyBucket(bucket) => bucket.as_gcra().lua(),
            Self::Gcra(gcra) => gcra.lua(),
            Self::LeakyQueue(queue) => queue.as_gcra().lua(),
            Self::Unlimited => return None,
        })
    }
}

impl Algorithm {
    /// The same with other numbers, as [`lua`](Self::lua) tells them; `None` where they cannot be its.
    pub(crate) fn with_numbers(&self, [most, a, _, c]: [u64; 4]) -> Option<Self> {
        let limit = match self {
            Self::TokenBucket(bucket) if bucket.is_by_interval() => a,
            Self::TokenBucket(_) | Self::LeakyBucket(_) | Self::Gcra(_) | Self::LeakyQueue(_) => c,
            _ => most,
        };
        self.with_limits([u32::try_from(limit).ok()?, u32::try_from(most).ok()?])
    }
}

/// A window's limit and period.
fn numbers(quota: Quota) -> [u64; 4] {
    [
        quota.limit().into(),
        Micros::from(quota.period()).get(),
        0,
        0,
    ]
}

use super::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};
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
    pub(crate) fn with_numbers(&self, [limit, a, _, c]: [u64; 4]) -> Option<Self> {
        let limit = u32::try_from(limit).ok()?;
        let of = |limit, quota: Quota| Quota::new(limit, quota.period()).ok();
        let rate = |quota| of(u32::try_from(c).ok()?, quota);
        Some(match self {
            Self::FixedWindow(window) => FixedWindow::of(of(limit, window.quota())?).into(),
            Self::AnchoredWindow(window) => AnchoredWindow::of(of(limit, window.quota())?).into(),
            Self::SlidingWindow(window) => SlidingWindow::of(of(limit, window.quota())?).into(),
            Self::SlidingLog(log) => {
                let quota = of(limit, log.quota())?;
                SlidingLog::up_to(u32::MAX, quota).ok()?.into()
            }
            Self::SlidingSlots(slots) => {
                let quota = of(limit, slots.quota())?;
                SlidingSlots::cut(quota, slots.count()).ok()?.into()
            }
            Self::TokenBucket(bucket) if bucket.is_by_interval() => {
                let quota = of(u32::try_from(a).ok()?, bucket.quota())?;
                TokenBucket::of(quota).burst(limit).by_interval().into()
            }
            Self::TokenBucket(bucket) => TokenBucket::of(rate(bucket.quota())?).burst(limit).into(),
            Self::LeakyBucket(bucket) => LeakyBucket::of(rate(bucket.quota())?)
                .capacity(limit)
                .into(),
            Self::Gcra(gcra) => Gcra::of(rate(gcra.quota())?).burst(limit).into(),
            Self::LeakyQueue(queue) => LeakyQueue::of(rate(queue.quota())?)
                .places(limit.saturating_sub(1))
                .into(),
            Self::Unlimited => return None,
        })
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

use std::num::NonZeroU32;

use super::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};
use crate::quota::Quota;

impl Algorithm {
    /// What algorithms of one [frame](Self::frame) differ in: the quota's limit, and the most at one
    /// instant. `None` if unlimited.
    pub(crate) fn limits(&self) -> Option<[u32; 2]> {
        Some(match self {
            Self::FixedWindow(window) => [window.quota().limit(); 2],
            Self::AnchoredWindow(window) => [window.quota().limit(); 2],
            Self::SlidingWindow(window) => [window.quota().limit(); 2],
            Self::SlidingLog(log) => [log.quota().limit(); 2],
            Self::SlidingSlots(slots) => [slots.quota().limit(); 2],
            Self::TokenBucket(bucket) => [bucket.quota().limit(), bucket.size()],
            Self::LeakyBucket(bucket) => [bucket.quota().limit(), bucket.size()],
            Self::Gcra(gcra) => [gcra.quota().limit(), gcra.size()],
            Self::LeakyQueue(queue) => [queue.quota().limit(), queue.as_gcra().size()],
            Self::Unlimited => return None,
        })
    }

    /// What each of so many nodes takes of it: its limits divided among them, rounded up.
    pub(crate) fn shared_by(&self, nodes: NonZeroU32) -> Self {
        let share = |limits: [u32; 2]| limits.map(|limit| limit.div_ceil(nodes.get()));
        let shared = self.limits().map(share);
        shared
            .and_then(|limits| self.with_limits(limits))
            .unwrap_or(*self)
    }

    /// The same with these limits; `None` where they cannot be its.
    pub(crate) fn with_limits(&self, [limit, most]: [u32; 2]) -> Option<Self> {
        let of = |quota: Quota| Quota::new(limit, quota.period()).ok();
        Some(match self {
            Self::FixedWindow(window) => FixedWindow::of(of(window.quota())?).into(),
            Self::AnchoredWindow(window) => AnchoredWindow::of(of(window.quota())?).into(),
            Self::SlidingWindow(window) => SlidingWindow::of(of(window.quota())?).into(),
            Self::SlidingLog(log) => {
                let quota = of(log.quota())?;
                SlidingLog::up_to(u32::MAX, quota).ok()?.into()
            }
            Self::SlidingSlots(slots) => {
                let quota = of(slots.quota())?;
                SlidingSlots::cut(quota, slots.count()).ok()?.into()
            }
            Self::TokenBucket(bucket) => {
                let same = TokenBucket::of(of(bucket.quota())?).burst(most);
                let is_by_interval = bucket.is_by_interval();
                if is_by_interval {
                    same.by_interval()
                } else {
                    same
                }
                .into()
            }
            Self::LeakyBucket(bucket) => {
                let quota = of(bucket.quota())?;
                LeakyBucket::of(quota).capacity(most).into()
            }
            Self::Gcra(gcra) => Gcra::of(of(gcra.quota())?).burst(most).into(),
            Self::LeakyQueue(queue) => {
                let quota = of(queue.quota())?;
                LeakyQueue::of(quota).places(most.saturating_sub(1)).into()
            }
            Self::Unlimited => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_make_of_one_algorithm_another_of_its_frame() {
        let all = [
            "fixed-window 7/minute",
            "anchored-window 7/minute",
            "sliding-window 7/minute",
            "sliding-log 70000/minute up-to 70000",
            "sliding-slots 7/minute slots 60",
            "token-bucket 7/minute burst 9",
            "token-bucket-interval 7/minute burst 9",
            "leaky-bucket 7/minute capacity 9",
            "gcra 7/minute burst 9",
            "leaky-queue 7/minute places 9",
        ];
        for text in all {
            let algorithm: Algorithm = text.parse().unwrap();
            let other = algorithm.with_limits([3, 4]).unwrap();
            assert_ne!(other, algorithm);
            assert!(other.differs_in_its_limit_alone(&algorithm));
            let same = other.with_limits(algorithm.limits().unwrap());
            assert_eq!(same, Some(algorithm));
        }
        assert_eq!(Algorithm::Unlimited.limits(), None);
        assert_eq!(Algorithm::Unlimited.with_limits([1, 1]), None);
    }

    #[test]
    fn nodes_take_equal_shares_that_are_the_whole_at_least() {
        let shared = |text: &str, nodes| {
            let algorithm: Algorithm = text.parse().unwrap();
            algorithm.shared_by(NonZeroU32::new(nodes).unwrap())
        };
        for (text, nodes, share) in [
            ("fixed-window 10/minute", 3, "fixed-window 4/minute"),
            ("fixed-window 0/minute", 3, "fixed-window 0/minute"),
            ("sliding-window 1/minute", 100, "sliding-window 1/minute"),
            (
                "sliding-log 70000/minute up-to 70000",
                2,
                "sliding-log 35000/minute up-to 35000",
            ),
            (
                "sliding-slots 10/minute slots 60",
                3,
                "sliding-slots 4/minute slots 60",
            ),
            (
                "token-bucket 5/second burst 10",
                2,
                "token-bucket 3/second burst 5",
            ),
            ("gcra 5/second burst 1", 2, "gcra 3/second burst 1"),
            (
                "leaky-queue 9/minute places 9",
                2,
                "leaky-queue 5/minute places 4",
            ),
            ("fixed-window 10/minute", 1, "fixed-window 10/minute"),
        ] {
            let share: Algorithm = share.parse().unwrap();
            assert_eq!(shared(text, nodes).limits(), share.limits(), "{text}");
            assert!(shared(text, nodes).differs_in_its_limit_alone(&text.parse().unwrap()));
        }
        let nodes = NonZeroU32::new(7).unwrap();
        assert_eq!(Algorithm::Unlimited.shared_by(nodes), Algorithm::Unlimited);
    }
}

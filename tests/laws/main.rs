//! The laws of the algorithms, as properties: for every algorithm, as a pure step and through a
//! limiter over the store in memory.

#[path = "../support/mod.rs"]
mod support;

mod all_or_nothing;
mod blocks;
mod buckets;
#[cfg(feature = "calendar")]
mod calendars;
mod case;
mod changing;
mod either_or;
mod factors;
#[cfg(feature = "calendar")]
mod hours;
mod laws;
mod models;
mod mount;
mod overriding;
mod penalties;
mod property;
mod queue;
#[cfg(feature = "redis")]
mod redis;
mod reserve;
mod restart;
mod state;
mod stepping_back;
mod subject;
mod verbs;

use tower_ratelimit::{
    AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, SlidingLog, SlidingSlots,
    SlidingWindow, TokenBucket,
};

use crate::mount::mount;
use crate::subject::Subject;
use crate::support::{buckets as bucket, windows};

// Each line becomes a module with every law in it, once for each driver.
mount! {
    #[cfg(feature = "calendar")]
    calendar_window: calendars::subject;
    fixed_window: |n| Subject::new(
        FixedWindow::of(n.quota()),
        windows::FixedWindow { limit: n.limit, period: n.period },
    );
    anchored_window: |n| Subject::new(
        AnchoredWindow::of(n.quota()),
        windows::AnchoredWindow { limit: n.limit, period: n.period },
    );
    sliding_log: |n| Subject::new(
        SlidingLog::up_to(u32::MAX, n.quota()).unwrap(),
        windows::SlidingLog { limit: n.limit, period: n.period },
    );
    sliding_window: |n| Subject::new(
        SlidingWindow::of(n.quota()),
        windows::SlidingWindow { limit: n.limit, period: n.period },
    );
    sliding_slots: |n| Subject::new(
        SlidingSlots::cut(n.quota(), n.slots).unwrap(),
        windows::SlidingSlots { limit: n.limit, period: n.period, slots: n.slots },
    );
    gcra: |n| Subject::new(
        Gcra::of(n.quota()).burst(n.size),
        bucket::Bucket { limit: n.limit, period: n.period, burst: n.size },
    );
    token_bucket: |n| Subject::new(
        TokenBucket::of(n.quota()).burst(n.size),
        bucket::Bucket { limit: n.limit, period: n.period, burst: n.size },
    );
    leaky_bucket: |n| Subject::new(
        LeakyBucket::of(n.quota()).capacity(n.size),
        bucket::Bucket { limit: n.limit, period: n.period, burst: n.size },
    );
    leaky_queue: |n| Subject::new(
        LeakyQueue::of(n.quota()).places(n.size.saturating_sub(1)),
        bucket::Bucket { limit: n.limit, period: n.period, burst: n.size.max(1) },
    );
    token_bucket_by_interval: |n| Subject::new(
        TokenBucket::of(n.quota()).burst(n.size).by_interval(),
        bucket::IntervalBucket { limit: n.limit, period: n.period, burst: n.size },
    );
}

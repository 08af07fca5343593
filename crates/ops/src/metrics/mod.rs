#![doc = include_str!("../../docs/metrics.md")]

mod publisher;

pub use self::publisher::Publisher;

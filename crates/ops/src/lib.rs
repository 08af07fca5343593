#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(feature = "metrics")]
pub mod metrics;

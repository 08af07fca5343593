//! Advice for who writes the limits: configurations that are valid and are probably not meant.
//!
//! Each is reported once, as a [diagnostic](crate::diagnostics), and changes no decision.
//!
//! These read the policies of a limiter; `advice` of `tower-ratelimit` sees keys and layers of HTTP. `algorithm/unparsed.rs` is a trait by
//! which the compiler names the missing call where a text stands for an algorithm.

mod mistakes;
pub(crate) mod never_binds;

pub(crate) use self::mistakes::Mistakes;

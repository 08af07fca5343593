//! Advice for who writes the limits: configurations that are valid and are probably not meant.
//!
//! Each is reported once, as a [diagnostic](crate::diagnostics), and changes no decision.
//!
//! These read the policies of a limiter. Three other lints stand where what they read is: `middleware/nesting.rs` of `tower-ratelimit` sees
//! requests pass a layer of HTTP twice, and `algorithm/unparsed.rs` and `middleware/unbuilt.rs` are traits by which the compiler
//! names the missing call where a text or a builder stands for what it makes.

mod mistakes;
pub(crate) mod never_binds;

pub(crate) use self::mistakes::Mistakes;

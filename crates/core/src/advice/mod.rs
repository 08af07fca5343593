//! Advice for who writes the limits: configurations that are valid and are probably not meant.
//!
//! Each is reported once, as a [diagnostic](crate::diagnostics), and changes no decision.

mod mistakes;
pub(crate) mod never_binds;

pub(crate) use self::mistakes::Mistakes;

//! Advice for who writes the limits: configurations that are valid and are probably not meant.
//!
//! Each is reported once, as a [diagnostic](crate::diagnostics), and changes no decision.

#[cfg(feature = "http")]
mod in_the_clear;
mod mistakes;
pub(crate) mod never_binds;

#[cfg(feature = "http")]
pub(crate) use self::in_the_clear::warn_of_sharing;
pub(crate) use self::mistakes::Mistakes;
#[cfg(feature = "http")]
pub(crate) use self::never_binds::{Pointless, find_pointless};

//! Advice for who builds layers: programs that compile and limit otherwise than is probably meant.
//!
//! Each is reported once, as a [diagnostic](crate::diagnostics), and changes no decision. `advice` of the core reads the policies of a
//! limiter. Where the compiler can name a missing call, a trait beside the type does: `middleware/unbuilt.rs`, and in the core
//! `algorithm/unparsed.rs`.

mod in_the_clear;
mod invented_tenants;
mod nesting;

pub(crate) use self::in_the_clear::warn_of_sharing;
pub(crate) use self::invented_tenants::warn_of_invented_tenants;
pub(crate) use self::nesting::{Life, Within, look_for_itself};

//! Fields of a JSON body, which a layer outside has read.

mod field;
mod fields;
mod mcp;
mod path;
mod scan;

pub(crate) use self::field::NOT_READ;
pub use self::field::{json, try_json};
pub(crate) use self::fields::{AheadOfBody, WantedFields};
pub use self::fields::{JsonFields, Unread};
pub use self::mcp::mcp_name;
pub(crate) use self::path::{JsonPath, LONGEST_NAME};
pub(crate) use self::scan::whole_number;

use super::{Extractor, Head, IntoKey, Key, KeyOf, Keyed, Missing, Origin, Read, Typed};

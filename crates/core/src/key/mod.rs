//! Keys: which requests are counted together.
//!
//! A [`Key`] is a short value, which an [`IntoKey`] makes of a text, a number, an address or a tuple of these.

mod into_key;
mod missing;
mod name;
mod secret;
mod value;

pub use self::into_key::IntoKey;
pub use self::missing::{Extracted, Missing};
pub use self::name::KeyName;
pub use self::secret::Secret;
pub use self::value::Key;

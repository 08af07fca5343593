//! The vocabulary of a file: each table, its fields, and their values.
//!
//! The walk through a file and the JSON Schema both use this list, so the two cannot differ.

mod adapt;
mod limits;
mod policy;
mod requests;
mod responses;
mod root;
mod store;

pub(super) use self::adapt::CLASS;
#[cfg(feature = "adapt")]
pub(super) use self::adapt::{ADAPT, CONCURRENCY, PARTITION, STEP};
pub(super) use self::limits::{KEY_LIMITS, LIMIT, QUOTA};
#[cfg(feature = "calendar")]
pub(super) use self::policy::HOURS;
pub(super) use self::policy::{ENDING, HEAVIEST_KEYS, PENALTY, POLICY, SETTLE};
pub(super) use self::requests::{CLIENT_IP, CONDITION, COST, FUNCTION, KEY};
#[cfg(feature = "tonic")]
pub(super) use self::responses::GRPC;
pub(super) use self::responses::{BODY, RESPONSES};
#[cfg(feature = "resolver")]
pub(super) use self::root::RESOLVER;
pub(super) use self::root::{LISTS, PLAN_OF, PROXIES, ROOT};
#[cfg(feature = "redis-sentinel")]
pub(super) use self::store::SENTINEL;
pub(super) use self::store::{ENV, STORE};

/// The fields of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields(pub(crate) &'static [Field]);

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// A sentence for editors.
    pub(crate) says: &'static str,
    pub(crate) shape: Shape,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Text,
    Whole,
    Flag,
    Duration,
    /// One of these words.
    Word(&'static [&'static str]),
    List(&'static Shape),
    /// One value, or a list of values.
    OneOrList(&'static Shape),
    /// A table with free names.
    Map(&'static Shape),
    Table(&'static Fields),
    Any(&'static [Shape]),
    /// What may be secret: no message shows it, nor the free names in it.
    Secret(&'static Shape),
    /// One of the shapes in [`NAMED`].
    Named(&'static str),
}

impl Fields {
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.0.iter().map(|field| field.name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|field| field.name == name)
    }
}

const fn field(name: &'static str, says: &'static str, shape: Shape) -> Field {
    Field { name, says, shape }
}

/// The shapes that have a name in the schema.
pub(crate) const NAMED: &[(&str, Shape)] = &[
    (
        "limit",
        Shape::Any(&[Shape::Text, Shape::Whole, Shape::Table(&LIMIT)]),
    ),
    (
        "key",
        Shape::Any(&[
            Shape::Text,
            Shape::List(&Shape::Named("key")),
            Shape::Table(&KEY),
        ]),
    ),
    ("condition", Shape::Table(&CONDITION)),
    (
        "secret",
        Shape::Secret(&Shape::Any(&[Shape::Text, Shape::Table(&ENV)])),
    ),
    ("policy", Shape::Table(&POLICY)),
];

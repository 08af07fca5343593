//! The vocabulary of a file: the list of settings of each table.
//!
//! A setting is declared once, as an entry of such a list: its name, a sentence, the values that it takes, and what it
//! changes. The walk through a file, the hints for unknown names, the JSON Schema, the marks of what may be secret and
//! the application of the settings all read the list. A new setting is a new entry.

use std::time::Duration;

use super::conditions::CONDITION;
use super::fields::{ENV, LIMIT, POLICY};
use super::keys::KEY;
use super::walk::{At, Table};

/// The settings of a table. Each of them changes a `T`, such as a builder.
pub(super) struct Vocabulary<T: 'static>(pub(super) &'static [Setting<T>]);

/// A setting of a table.
pub(super) struct Setting<T: 'static> {
    name: &'static str,
    /// A sentence for editors.
    says: &'static str,
    takes: Takes<T>,
}

pub(super) const fn setting<T>(
    name: &'static str,
    says: &'static str,
    takes: Takes<T>,
) -> Setting<T> {
    Setting { name, says, takes }
}

/// An entry that is read by hand.
pub(super) const fn field(name: &'static str, says: &'static str, shape: Shape) -> Setting<()> {
    setting(name, says, Takes::Together(shape))
}

/// The values that a setting takes, and what it changes.
pub(super) enum Takes<T: 'static> {
    /// `true` changes something, and `false` is the default.
    Flag(fn(T) -> T),
    Whole(fn(T, u32) -> T),
    Time(fn(T, Duration) -> T),
    /// A value of this shape, which the function reads. It returns `None` for a mistake, which it has noted.
    Of(Shape, fn(T, &At<'_>) -> Option<T>),
    /// A value of this shape, which is read together with other settings of the table.
    Together(Shape),
}

/// The shape of a value.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    Whole,
    Flag,
    Duration,
    /// One of these words.
    Word(&'static dyn Words),
    List(&'static Shape),
    /// One value, or a list of values.
    OneOrList(&'static Shape),
    /// A table with free names.
    Map(&'static Shape),
    Table(&'static dyn Fields),
    Any(&'static [Shape]),
    /// What may be secret: no message shows it, nor the free names in it.
    Secret(&'static Shape),
    /// One of the shapes in [`NAMED`].
    Named(&'static str),
}

/// The shapes that have a name in the schema.
pub(super) const NAMED: &[(&str, Shape)] = &[
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

/// One condition, or a list of conditions.
pub(super) const CONDITIONS: Shape = Shape::OneOrList(&Shape::Named("condition"));

/// One text, or a list of texts.
pub(super) const TEXTS: Shape = Shape::OneOrList(&Shape::Text);

/// The table `{ function = "name" }`.
pub(super) static FUNCTION: Vocabulary<()> =
    Vocabulary(&[field("function", "What code has registered.", Shape::Text)]);

/// The words of a setting, whatever they mean.
pub(super) trait Words: Sync {
    fn words(&self) -> Vec<&'static str>;
}

impl<M: Sync, const N: usize> Words for [(&'static str, M); N] {
    fn words(&self) -> Vec<&'static str> {
        self.iter().map(|(word, _)| *word).collect()
    }
}

impl<const N: usize> Words for [&'static str; N] {
    fn words(&self) -> Vec<&'static str> {
        self.to_vec()
    }
}

/// A setting, whatever it changes.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) shape: Shape,
}

/// The settings of a table, whatever they change.
pub(super) trait Fields: Sync {
    fn fields(&self) -> Vec<Field>;
}

impl<T> Fields for Vocabulary<T> {
    fn fields(&self) -> Vec<Field> {
        let settings = self.0.iter();
        let fields = settings.map(|Setting { name, says, takes }| Field {
            name,
            says,
            shape: takes.shape(),
        });
        fields.collect()
    }
}

impl<T> Takes<T> {
    fn shape(&self) -> Shape {
        match self {
            Self::Flag(_) => Shape::Flag,
            Self::Whole(_) => Shape::Whole,
            Self::Time(_) => Shape::Duration,
            Self::Of(shape, _) | Self::Together(shape) => *shape,
        }
    }
}

impl<T: Clone> Vocabulary<T> {
    /// Applies the settings of a table in the order of the list, each of them even if another is wrong. Returns `None` if
    /// one has a mistake.
    pub(super) fn apply(&self, table: &Table<'_>, to: &mut T) -> Option<()> {
        let mut are_good = true;
        for setting in self.0 {
            let Some(at) = table.get(setting.name) else {
                continue;
            };
            match setting.takes.change(at, to.clone()) {
                Some(changed) => *to = changed,
                None => are_good = false,
            }
        }
        are_good.then_some(())
    }
}

impl<T> Takes<T> {
    fn change(&self, at: &At<'_>, to: T) -> Option<T> {
        match self {
            Self::Flag(change) => at.flag().map(|is_on| if is_on { change(to) } else { to }),
            Self::Whole(change) => at.whole().map(|number| change(to, number)),
            Self::Time(change) => at.duration().map(|time| change(to, time)),
            Self::Of(_, change) => change(to, at),
            Self::Together(_) => Some(to),
        }
    }
}

//! The vocabulary of a file: the list of settings of each table.
//!
//! A setting is declared once, as an entry of such a list: its name, a sentence, the values that it takes, and what it
//! changes. The walk through a file, the hints for unknown names, the JSON Schema, the marks of what may be secret and
//! the application of the settings all read the list. A new setting is a new entry.

use std::time::Duration;

use super::functions::Kind;
use super::shape::{Field, Fields, Shape};
use super::walk::{At, TableAt};

/// The settings of a table. Each of them changes a `T`, such as a builder.
pub(super) struct Vocabulary<T: 'static>(pub(super) &'static [Setting<T>]);

/// A setting of a table.
pub(super) struct Setting<T: 'static> {
    name: &'static str,
    /// A sentence for editors.
    says: &'static str,
    takes: Takes<T>,
}

/// The values that a setting takes, and what it changes.
enum Takes<T: 'static> {
    Flag(fn(T) -> T),
    Text(fn(T, &str) -> T),
    Integer(fn(T, u32) -> T),
    Time(fn(T, Duration) -> T),
    Of(Shape, fn(T, &At<'_>) -> Option<T>),
    Together(Shape),
}

/// Begins an entry, as in `setting("soft").says("Lets requests over the limit go on.").flag(Policy::soft)`.
pub(super) const fn setting(name: &'static str) -> Named {
    Named(name)
}

/// An entry without its sentence.
pub(super) struct Named(&'static str);

impl Named {
    pub(super) const fn says(self, says: &'static str) -> Described {
        Described { name: self.0, says }
    }
}

/// An entry without its values.
pub(super) struct Described {
    name: &'static str,
    says: &'static str,
}

impl Described {
    const fn takes<T>(self, takes: Takes<T>) -> Setting<T> {
        let Self { name, says } = self;
        Setting { name, says, takes }
    }

    /// `true` changes something, and `false` is the default.
    pub(super) const fn flag<T>(self, change: fn(T) -> T) -> Setting<T> {
        self.takes(Takes::Flag(change))
    }

    pub(super) const fn text<T>(self, change: fn(T, &str) -> T) -> Setting<T> {
        self.takes(Takes::Text(change))
    }

    pub(super) const fn integer<T>(self, change: fn(T, u32) -> T) -> Setting<T> {
        self.takes(Takes::Integer(change))
    }

    pub(super) const fn time<T>(self, change: fn(T, Duration) -> T) -> Setting<T> {
        self.takes(Takes::Time(change))
    }

    /// A value of this shape, which the function reads. It returns `None` for a mistake, which it has noted.
    pub(super) const fn of<T>(
        self,
        shape: Shape,
        change: fn(T, &At<'_>) -> Option<T>,
    ) -> Setting<T> {
        self.takes(Takes::Of(shape, change))
    }

    /// A value of this shape, which is read together with other settings of the table.
    pub(super) const fn together<T>(self, shape: Shape) -> Setting<T> {
        self.takes(Takes::Together(shape))
    }
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
            Self::Text(_) => Shape::Text,
            Self::Integer(_) => Shape::Integer,
            Self::Time(_) => Shape::Duration,
            Self::Of(shape, _) | Self::Together(shape) => *shape,
        }
    }
}

impl<T: Clone> Vocabulary<T> {
    /// Applies the settings of a table in the order of the list, each of them even if another is wrong. Returns `None` if
    /// one has a mistake.
    pub(super) fn apply(&self, table: &TableAt<'_>, to: &mut T) -> Option<()> {
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
            Self::Text(change) => at.text().map(|text| change(to, text)),
            Self::Integer(change) => at.integer().map(|number| change(to, number)),
            Self::Time(change) => at.duration().map(|time| change(to, time)),
            Self::Of(_, change) => change(to, at),
            Self::Together(_) => Some(to),
        }
    }
}

/// The table `{ function = "name" }`.
pub(super) static FUNCTION: Vocabulary<()> = Vocabulary(&[setting("function")
    .says("What code has registered.")
    .together(Shape::Text)]);

impl At<'_> {
    /// Reads `{ function = "name" }`.
    pub(super) fn function<K: Kind>(&self) -> Option<K> {
        let table = self.table(&FUNCTION)?;
        let name = table.need("function", "name a function that code has registered");
        name?.registered()
    }
}

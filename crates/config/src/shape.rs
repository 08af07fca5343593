//! The shapes of values, and the names and the shapes of the settings of a table.

/// The shape of a value.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    Integer,
    /// A decimal number, or text with one.
    Decimal,
    Flag,
    Duration,
    /// One of these words.
    Word(&'static dyn Words),
    List(&'static Shape),
    /// A list of at least and at most so many values.
    ListOf(&'static Shape, [usize; 2]),
    /// One value, or a list of values.
    OneOrList(&'static Shape),
    /// A table with free names.
    Map(&'static Shape),
    Table(&'static dyn Fields),
    Any(&'static [Shape]),
    /// What may be secret: no message shows it, nor the free names in it.
    Secret(&'static Shape),
    /// One of the shapes that have a name in the schema.
    Named(&'static str),
}

/// A number of units, or an amount of a policy that counts money.
pub(super) const AMOUNT: Shape = Shape::Any(&[Shape::Integer, Shape::Decimal]);

/// One condition, or a list of conditions.
pub(super) const CONDITIONS: Shape = Shape::OneOrList(&Shape::Named("condition"));

/// One text, or a list of texts.
pub(super) const TEXTS: Shape = Shape::OneOrList(&Shape::Text);

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

    /// Returns the names of settings that the table needs, whatever else is in it.
    fn needed(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether a setting is read only so that its mistake is told well.
    fn is_refused(&self, _name: &str) -> bool {
        false
    }
}

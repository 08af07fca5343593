//! Trees: a table with levels stands for a policy of each of them.

use super::policy::{POLICY, ReadPolicy, policy};
use super::shape::{Field, Fields, Shape};
use super::tree::quoted;
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::policy::Policy;

static OWN: Vocabulary<()> = Vocabulary(&[setting("name")
    .says("The name of the level: its policy is TREE.NAME.")
    .together(Shape::Text)]);

/// The settings of a level: a name, and those of a policy.
pub(super) struct LevelFields;

impl Fields for LevelFields {
    fn fields(&self) -> Vec<Field> {
        let mut fields = OWN.fields();
        let of_policy = POLICY.fields().into_iter();
        fields.extend(of_policy.filter(|field| field.name != "levels"));
        fields
    }
}

/// What cannot be the same for all levels.
const OF_A_LEVEL: [&str; 2] = ["key", "was"];

/// A policy that stands alone, or a level of a tree.
pub(super) struct Declared<'w> {
    pub(super) name: String,
    /// Its settings, with those that all levels of its tree have.
    pub(super) table: TableAt<'w>,
    /// `None` if it has a mistake. Its name is known all the same, so that mistakes in plans that mention it are found too.
    pub(super) policy: Option<ReadPolicy>,
}

impl<'w> Declared<'w> {
    pub(super) fn read(name: String, table: TableAt<'w>) -> Self {
        Self {
            policy: policy(&name, &table),
            name,
            table,
        }
    }
}

/// Reads the levels of a tree from the root down, each with the settings of the tree that it does not have itself. `None` if this
/// policy has no levels. Levels without a name are left out, as mistakes.
pub(super) fn levels<'w>(tree: &str, of_tree: &TableAt<'w>) -> Option<Vec<Declared<'w>>> {
    let all = of_tree.get("levels")?;
    for field in OF_A_LEVEL {
        if let Some(at) = of_tree.get(field) {
            at.refuse::<()>(format!("`{field}` is that of a level; write it there"));
        }
    }
    let list = all.list().unwrap_or_default();
    if all.is_list() && !(1..=8).contains(&list.len()) {
        all.refuse::<()>(format!(
            "{} is no number of levels; give one to eight, from the root down",
            list.len()
        ));
    }
    let level = |at: &At<'w>| {
        let table = at.table(&LevelFields)?;
        let at = table.need("name", "name the level, such as name = \"team\"")?;
        let name = at.text()?;
        if name.is_empty() || name.contains('.') {
            return at.refuse(format!(
                "{} is not the name of a level; give one without dots",
                quoted(name)
            ));
        }
        let table = table.or_of(of_tree);
        if let Some(at) = table.get("fair") {
            return at.refuse("a level of a tree is not divided among tenants; leave it out, and divide the limit of a policy beside the tree");
        }
        Some(Declared::read(format!("{tree}.{name}"), table))
    };
    Some(above_each_other(
        tree,
        list.iter().filter_map(level).collect(),
    ))
}

/// Lets the key of each level be one under those of the levels before it.
fn above_each_other<'w>(name: &str, mut levels: Vec<Declared<'w>>) -> Vec<Declared<'w>> {
    let read = || levels.iter().filter_map(|level| level.policy.as_ref());
    let tree = read().fold(Policy::tree(name), |tree, policy| {
        tree.level_of(policy.keyed.clone())
    });
    // The walk has told of the mistakes of a tree that cannot be built.
    let built = tree.build().unwrap_or_default();
    let read = levels.iter_mut().filter_map(|level| level.policy.as_mut());
    for (policy, keyed) in read.zip(built) {
        policy.keyed = keyed;
    }
    levels
}

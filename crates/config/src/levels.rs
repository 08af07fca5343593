//! Trees: a table with levels stands for a policy of each of them.

use super::policy::{POLICY, ReadPolicy, policy_of};
use super::shape::{Field, Fields, Shape};
use super::tree::{Value, quoted};
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, Name, TableAt};
use tower_ratelimit::policy::{Policy, Tree};

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

/// What belongs to a level, and not to all of them.
const OF_A_LEVEL: [&str; 13] = [
    "key",
    "quota",
    "budget",
    "concurrency",
    "limit",
    "per",
    "burst",
    "capacity",
    "was",
    "key_limits",
    "operations",
    "hours",
    "heaviest_keys",
];

/// A level, and its settings with those of the tree.
pub(super) struct Level<'w> {
    /// That of its policy: `spend.team`.
    pub(super) name: String,
    pub(super) table: TableAt<'w>,
}

/// Returns the policies that a table declares by their names, each with where it stands. Mistakes are not told.
pub(super) fn declared<'w>((name, at): (&str, At<'w>)) -> Vec<(String, At<'w>)> {
    let Some(levels) = at.field("levels") else {
        return vec![(name.to_owned(), at)];
    };
    let levels = match &levels.node.value {
        Value::List(_) => levels.list().unwrap_or_default(),
        _ => Vec::new(),
    };
    let named = |at: At<'w>| match &at.field("name")?.node.value {
        Value::Text(level) => Some((format!("{name}.{level}"), at)),
        _ => None,
    };
    levels.into_iter().filter_map(named).collect()
}

/// Returns the levels of a tree from the root down, or `None` if the policy has none. Levels that have no name are left out, as mistakes.
pub(super) fn levels<'w>(tree: Name<'_>, at: &At<'w>) -> Option<Vec<Level<'w>>> {
    let all = at.field("levels")?;
    let of_tree = at.table(&POLICY)?;
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
        Some(Level {
            name: format!("{}.{name}", tree.text),
            table: table.below(&of_tree),
        })
    };
    Some(list.iter().filter_map(level).collect())
}

/// Reads the policies of a tree. `None` for one whose limit is unknown.
pub(super) fn policies(tree: &str, levels: &[Level<'_>]) -> Vec<Option<ReadPolicy>> {
    let read = levels
        .iter()
        .map(|level| policy_of(&level.name, &level.table));
    let read: Vec<Option<ReadPolicy>> = read.collect();
    let keyed = read
        .iter()
        .map(|policy| Some(policy.as_ref()?.keyed.clone()));
    let Some(keyed) = keyed.collect::<Option<Vec<_>>>() else {
        // The walk has told of the mistake.
        return read;
    };
    let tree = keyed.into_iter().fold(Policy::tree(tree), Tree::level_of);
    let Ok(below) = tree.build() else {
        return read;
    };
    let read = read.into_iter().zip(below);
    let read = read.map(|(policy, keyed)| Some(ReadPolicy { keyed, ..policy? }));
    read.collect()
}

//! Trees: a table with levels stands for a policy of each of them.

use super::policy::{POLICY, ReadPolicy, part, policy};
use super::shape::{Field, Fields, Shape};
use super::store::ReadStore;
use super::tree::{Value, quoted};
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::policy::Policy;
use tower_ratelimit::quota::Quota;

static OWN: Vocabulary<()> = Vocabulary(&[
    setting("name")
        .says("The name of the level: its policy is TREE.NAME.")
        .together(Shape::Text),
    setting("share")
        .says("The share of the limit of the level above, from 0.000001 to 1, in place of a limit.")
        .together(Shape::Decimal),
    setting("guaranteed")
        .says("What each key of the level has of the level above, whatever others ask, in the period of that one: \"100/minute\".")
        .together(Shape::Text),
]);

/// The settings of a level: a name, a share, a guarantee, and those of a policy.
pub(super) struct LevelFields;

impl Fields for LevelFields {
    fn fields(&self) -> Vec<Field> {
        let mut fields = OWN.fields();
        let of_policy = POLICY.fields().into_iter();
        fields.extend(of_policy.filter(|field| field.name != "levels"));
        fields
    }

    fn needed(&self) -> &'static [&'static str] {
        &["name"]
    }

    fn is_refused(&self, name: &str) -> bool {
        OF_TENANTS.contains(&name)
    }
}

/// What a level cannot have, since it is not divided among tenants.
const OF_TENANTS: [&str; 5] = [
    "fair",
    "weights",
    "active_for",
    "most_tenants",
    "unverified",
];

/// What cannot be the same for all levels.
const OF_A_LEVEL: [&str; 2] = ["key", "renamed_from"];

/// What a level with a share has from the level above.
const OF_A_LIMIT: [&str; 16] = [
    "algorithm",
    "quota",
    "limit",
    "per",
    "budget",
    "unit",
    "concurrency",
    "burst",
    "capacity",
    "slots",
    "places",
    "up_to",
    "zone",
    "start",
    "first_day",
    "hours",
];

/// The limits of single requests, which a share does not follow.
const OF_REQUESTS: [&str; 3] = ["key_limits", "operations", "limit_by"];

/// A policy that stands alone, or a level of a tree.
pub(super) struct Declared<'w> {
    pub(super) name: String,
    /// Its settings, with those that all levels of its tree have.
    pub(super) table: TableAt<'w>,
    /// The policy of whose limit its own is a share, if it is.
    pub(super) share_of: Option<String>,
    /// `None` if it has a mistake. Its name is known all the same, so that mistakes in plans that mention it are found too.
    pub(super) policy: Option<ReadPolicy>,
}

impl<'w> Declared<'w> {
    pub(super) fn read(name: String, table: TableAt<'w>) -> Self {
        Self {
            policy: policy(&name, &table),
            name,
            table,
            share_of: None,
        }
    }

    /// Adds what each key has of the level above.
    fn guaranteed(mut self, quota: Option<Quota>) -> Self {
        if let (Some(policy), Some(quota)) = (&mut self.policy, quota) {
            policy.keyed = policy.keyed.clone().guaranteed(quota);
            policy.unkeyed = policy.unkeyed.clone().guaranteed(quota);
        }
        self
    }

    /// Reads a level below this one, which has a share of its limit.
    fn share(&self, name: String, table: TableAt<'w>, share: Option<f64>) -> Self {
        for field in OF_REQUESTS {
            if let (Some(at), Some(share)) = (self.table.get(field), table.get("share")) {
                share.refuse::<()>(format!(
                    "the level above has `{field}` ({}), which a share does not follow; give those limits in plans, or give this \
                     level a quota",
                    at.place()
                ));
            }
        }
        Self {
            policy: part(&name, &table, self.policy.as_ref().zip(share)),
            name,
            table,
            share_of: Some(self.name.clone()),
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
    let mut declared: Vec<Declared<'w>> = Vec::new();
    let mut is_known = true;
    for (place, at) in list.iter().enumerate() {
        let above = declared.last().filter(|_| is_known);
        let read = level((tree, of_tree), (place, at), above);
        is_known = read.is_some();
        declared.extend(read);
    }
    Some(above_each_other(tree, declared))
}

/// Reads a level of a tree, at this place from the root. `None` if it has no name, or the level is not what a tree can have.
fn level<'w>(
    (tree, of_tree): (&str, &TableAt<'w>),
    (place, at): (usize, &At<'w>),
    above: Option<&Declared<'w>>,
) -> Option<Declared<'w>> {
    let table = at.table(&LevelFields)?;
    let share = table.get("share").cloned();
    for field in OF_A_LIMIT.iter().filter(|_| share.is_some()) {
        table.either("share", field);
    }
    let at = table.need("name", "name the level, such as name = \"team\"")?;
    let name = at.text()?;
    if name.is_empty() || name.contains('.') {
        return at.refuse(format!(
            "{} is not the name of a level; give one without dots",
            quoted(name)
        ));
    }
    let table = match &share {
        Some(_) => table.or_of(&of_tree.without(&OF_A_LIMIT)),
        None => table.or_of(of_tree),
    };
    if let Some(at) = table.get("fair") {
        return at.refuse("a level of a tree is not divided among tenants; leave it out, and divide the limit of a policy beside the tree");
    }
    let name = format!("{tree}.{name}");
    let guaranteed = guaranteed(&table, place == 0);
    let Some(share) = share else {
        return Some(Declared::read(name, table).guaranteed(guaranteed));
    };
    if place == 0 {
        return share.refuse(
            "nothing is above the root, of which it could have a share; give it a quota, such as quota = \"1000/minute\"",
        );
    }
    let number = number(&share);
    // A level without a name has told of its mistake.
    let declared = match above {
        Some(above) => above.share(name, table, number),
        None => Declared {
            policy: part(&name, &table, None),
            name,
            table,
            share_of: None,
        },
    };
    Some(declared.guaranteed(guaranteed))
}

/// Reads what each key of a level has of the level above.
fn guaranteed(table: &TableAt<'_>, is_root: bool) -> Option<Quota> {
    let at = table.get("guaranteed")?;
    if is_root {
        return at.refuse("nothing is above the root, of which it could have a part; leave it out");
    }
    at.made(at.text()?.parse())
}

/// Rejects a guarantee that the level above, the other policies or the store cannot keep.
pub(super) fn check_guarantees(
    tables: &[(String, TableAt<'_>)],
    (limiter, policies): (&LimiterBuilder, Vec<Policy>),
    store: Option<&ReadStore>,
) -> Option<()> {
    let guaranteeing = |(_, table): &&(String, TableAt<'_>)| table.get("guaranteed").is_some();
    let Some((_, first)) = tables.iter().find(guaranteeing) else {
        return Some(());
    };
    let at = first.get("guaranteed")?;
    if store.is_some_and(|store| !store.keeps_guarantees()) {
        return at.refuse("the store of the program keeps no guarantees; take the memory of this process or Redis, or leave `guaranteed` out");
    }
    let Err(error) = limiter.clone().policies(policies).build() else {
        return Some(());
    };
    if error.field() != "guaranteed" {
        // Told elsewhere.
        return Some(());
    }
    let its = |(name, _): &&(String, TableAt<'_>)| error.value().ends_with(&quoted(name));
    let its = tables.iter().filter(guaranteeing).find(its);
    let at = its.and_then(|(_, table)| table.get("guaranteed"));
    at.unwrap_or(&first.at).refuse(error.to_string())
}

/// Reads a share.
fn number(at: &At<'_>) -> Option<f64> {
    let text = match &at.node.value {
        Value::Text(text) => text.trim().to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Other(number) => number.replace('_', ""),
        _ => return at.expected(A_SHARE),
    };
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => at.expected(A_SHARE),
    }
}

const A_SHARE: &str = "a share; give a number from 0.000001 to 1, such as 0.4";

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
        if let Some(above) = keyed.as_ref().above() {
            policy.unkeyed = policy.unkeyed.clone().below(above);
        }
        policy.keyed = keyed;
    }
    levels
}

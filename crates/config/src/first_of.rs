//! Groups of policies of which one pays for a request: the table `first_of`.

use std::collections::HashMap;

use super::levels::Declared;
use super::shape::{Field, Fields, Shape};
use super::store::ReadStore;
use super::tree::quoted;
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::__internal::{PolicyEffect, Sealed};
use tower_ratelimit::MemoryStore;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{MemoryBackend, Payers, Store};

/// Policies of which the first that has room is charged.
#[derive(Clone, Debug)]
pub(super) struct FirstOf {
    pub(super) name: String,
    pub(super) members: Vec<String>,
    /// Whether the next members take what an answer costs beyond the room of one.
    pub(super) spills: bool,
    pub(super) place: String,
}

/// The most members that a group may have.
const MOST: usize = 255;

/// What stands under the name of a group: its members, or a table of them and more.
pub(super) static GROUP: Shape = Shape::Any(&[MEMBERS, Shape::Table(&Group)]);

const MEMBERS: Shape = Shape::ListOf(&Shape::Text, [2, MOST]);

struct Group;

impl Fields for Group {
    fn fields(&self) -> Vec<Field> {
        SETTINGS.fields()
    }

    fn needed(&self) -> &'static [&'static str] {
        &["of"]
    }
}

static SETTINGS: Vocabulary<()> = Vocabulary(&[
    setting("of")
        .says("The policies of which one pays, the one to be charged first at the front.")
        .together(MEMBERS),
    setting("spill")
        .says("Whether the next ones take what an answer costs beyond the room of the one that has paid; the default is false.")
        .together(Shape::Flag),
]);

impl FirstOf {
    /// Says when a member of the group pays for a request, of which this is known. `None` if another policy pays, or if it is not a
    /// member.
    pub(super) fn turn(&self, policy: &str, all: &[(String, PolicyEffect)]) -> Option<String> {
        let rank = self.members.iter().position(|name| name == policy)?;
        let of = |name: &String| all.iter().find(|(of, _)| of == name);
        let members: Vec<_> = self.members.iter().filter_map(of).collect();
        let pays = |it: &PolicyEffect| match it {
            PolicyEffect::Counts {
                is_shadow,
                is_passed_over,
                ..
            } => !is_shadow && !is_passed_over,
            _ => false,
        };
        let (_, considered) = of(&self.members[rank])?;
        match considered {
            PolicyEffect::Counts { .. } | PolicyEffect::CountsNothing(_) => {}
            PolicyEffect::HasNoKey(Some(_)) if members.iter().any(|(_, it)| pays(it)) => {
                return Some(", unless another policy pays".to_owned());
            }
            _ => return None,
        }
        let before = members.iter().take_while(|(name, _)| name != policy);
        let mut free = before.clone();
        if let Some((free, _)) = free.find(|(_, it)| matches!(it, PolicyEffect::CountsNothing(_))) {
            return Some(format!(", and never pays, since {free} always has room"));
        }
        if matches!(considered, PolicyEffect::Counts { .. }) && !pays(considered) {
            return Some(", and never pays".to_owned());
        }
        let before = before.filter(|(_, it)| pays(it));
        let before: Vec<&str> = before.map(|(name, _)| &**name).collect();
        Some(match &*before {
            [] => format!(", first of {}", self.name),
            [before] => format!(", if {before} has no room"),
            before => format!(", if {} have no room", before.join(" and ")),
        })
    }
}

/// Reads the groups, each with its value, if there are any. All policies are known by then, with and without mistakes.
pub(super) fn groups<'w>(
    root: &TableAt<'w>,
    policies: &[Declared<'_>],
) -> Option<Vec<(FirstOf, At<'w>)>> {
    let Some(at) = root.get("first_of") else {
        return Some(Vec::new());
    };
    if !at.is_table() {
        return at.expected(
            "a table; write the policies of each group under its name, such as spend = [\"plan\", \"credits\"]",
        );
    }
    let entries = at.entries()?;
    if entries.is_empty() {
        return at.refuse("there is no group; name its policies, such as spend = [\"plan\", \"credits\"], or leave `first_of` out");
    }
    let known: Vec<&str> = policies.iter().map(|declared| &*declared.name).collect();
    let mut taken: HashMap<&str, String> = HashMap::new();
    let mut groups = Vec::new();
    for (name, at) in entries {
        let read = group(&at, &known, &mut taken);
        let read = read.filter(|(members, spills)| !spills || count_alike(&at, members, policies));
        groups.push(read.map(|(members, spills)| {
            let group = FirstOf {
                name: name.text.to_owned(),
                members,
                spills,
                place: at.place(),
            };
            (group, at)
        }));
    }
    groups.into_iter().collect()
}

/// Reads the policies of a group, and whether it spills.
fn group<'w>(
    at: &At<'w>,
    known: &[&str],
    taken: &mut HashMap<&'w str, String>,
) -> Option<(Vec<String>, bool)> {
    if !at.is_table() {
        return Some((members(at, known, taken)?, false));
    }
    let table = at.table(&Group)?;
    let of = table.need(
        "of",
        "name the policies, such as of = [\"plan\", \"credits\"]",
    );
    let members = of.and_then(|of| members(of, known, taken));
    let spills = match table.get("spill") {
        Some(at) => at.flag()?,
        None => false,
    };
    Some((members?, spills))
}

/// Checks that one unit of a member is one of the next.
fn count_alike(at: &At<'_>, members: &[String], policies: &[Declared<'_>]) -> bool {
    let unit = |name: &str| {
        let policy = policies.iter().find(|declared| declared.name == name);
        Some(policy?.policy.as_ref()?.counts.unit)
    };
    let units = members.iter();
    let mut units = units.filter_map(|name| Some((name, unit(name)?)));
    let Some((first, its)) = units.next() else {
        return true;
    };
    let Some((other, _)) = units.find(|(_, unit)| *unit != its) else {
        return true;
    };
    at.refuse::<()>(format!(
        "{} and {} count other units, and with `spill` a unit of one is a unit of the next; give them the same `unit`, or leave `spill` out",
        quoted(first),
        quoted(other)
    ));
    false
}

/// Reads the policies of a group. `taken` has the places of those that are members already.
fn members<'w>(
    at: &At<'w>,
    known: &[&str],
    taken: &mut HashMap<&'w str, String>,
) -> Option<Vec<String>> {
    let list = at.list()?;
    if list.len() < 2 {
        return at.refuse("one policy alone always pays; name two or more, the one to be charged first at the front");
    }
    let members = list.iter().map(|at| {
        let name = at.text()?;
        if !known.contains(&name) {
            return at.unknown("policy", name, known);
        }
        match taken.insert(name, at.place()) {
            Some(place) => at.refuse(format!(
                "{} is a member already ({place}); name each policy once, in one group",
                quoted(name)
            )),
            None => Some(name.to_owned()),
        }
    });
    // Each mistake is told.
    let members: Vec<_> = members.collect();
    members.into_iter().collect()
}

/// Checks what the groups do not go with, by building what the file says without its store. A mistake is told where the
/// policy says it, or else where the groups are.
fn check(
    groups: &[(FirstOf, At<'_>)],
    policies: &[(String, TableAt<'_>)],
    layer: &RateLimitLayerBuilder,
    store: Option<&ReadStore>,
) -> Option<()> {
    let Some((_, at)) = groups.first() else {
        return Some(());
    };
    let payers = store.map_or(Payers::OfAnyKeys, ReadStore::chooses_payers);
    let Err(error) = with(layer.clone(), groups).store(Like(payers)).build() else {
        return Some(());
    };
    if layer.clone().build().is_err() {
        // The builder tells of its other mistakes by itself.
        return Some(());
    }
    let of = policies
        .iter()
        .find(|(name, _)| quoted(name) == error.value());
    let said = of.and_then(|(_, table)| table.get(field(&error)));
    said.unwrap_or(at).refuse(error.to_string())
}

/// Returns how a file spells the option of a policy that an error is about.
fn field(error: &ConfigError) -> &str {
    match error.field() {
        "factor" => "adapt",
        field => field,
    }
}

/// Declares the groups to the builders of a file, of these policies. `None` if they cannot be declared.
pub(super) fn declare(
    groups: Vec<(FirstOf, At<'_>)>,
    (layer, mut limiter): (RateLimitLayerBuilder, LimiterBuilder),
    policies: &[(String, TableAt<'_>)],
    store: Option<&ReadStore>,
) -> Option<(RateLimitLayerBuilder, LimiterBuilder, Vec<FirstOf>)> {
    check(&groups, policies, &layer, store)?;
    let mut layer = with(layer, &groups);
    if !groups.is_empty() {
        // Code outside of the layer learns who pays.
        layer = layer.expose_decision_in_response();
    }
    for (group, _) in &groups {
        limiter = limiter.first_of(&group.name, &group.members);
        if group.spills {
            limiter = limiter.spill(&group.name);
        }
    }
    let groups = groups.into_iter().map(|(group, _)| group);
    Some((layer, limiter, groups.collect()))
}

/// Adds the groups to a layer.
fn with(layer: RateLimitLayerBuilder, groups: &[(FirstOf, At<'_>)]) -> RateLimitLayerBuilder {
    let mut layer = layer;
    for (group, _) in groups {
        layer = layer.first_of(&group.name, &group.members);
        if group.spills {
            layer = layer.spill(&group.name);
        }
    }
    layer
}

/// A store that chooses who pays as another one does.
struct Like(Payers);

impl Sealed for Like {}

impl Store for Like {
    type Backend = MemoryBackend;

    fn open(&self, policies: &[Rule]) -> Result<MemoryBackend, ConfigError> {
        MemoryStore::new().open(policies)
    }

    fn counts_refusals(&self) -> bool {
        true
    }

    fn divides_limits(&self) -> bool {
        true
    }

    fn keeps_guarantees(&self) -> bool {
        true
    }

    fn chooses_payers(&self) -> Payers {
        self.0
    }
}

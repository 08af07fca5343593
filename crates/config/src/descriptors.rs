//! The tables `envoy`: limits of the descriptors that Envoy sends.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::digest::hexadecimal;
use super::levels::Declared;
use super::limits::{Own, algorithm, limit};
use super::policy::{MODES, POLICY, ReadPolicy, UNKEYED, limit_of, unkeyed};
use super::shape::{Field, Fields, Shape, TEXTS};
use super::tree::{Value, quoted};
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, TableAt};
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::policy::{Mode, Policy};

static OWN: Vocabulary<()> = Vocabulary(&[
    setting("domain")
        .says("The domain that Envoy sends.")
        .together(Shape::Text),
    setting("entries")
        .says(
            "The entries of the descriptor, in their order: \"tenant\" counts each value apart, \"path=/export\" has this value, \
             and `*` in a value stands for any characters. A table has the same as `key` and `value`.",
        )
        .together(Shape::List(&Shape::Any(&[Shape::Text, Shape::Table(&ENTRY)]))),
    setting("policy")
        .says("The policy of this file whose limit holds, in place of a limit that stands here.")
        .together(Shape::Text),
    setting("plan")
        .says("The plan of this file that gives the limit of that policy.")
        .together(Shape::Text),
    setting("together")
        .says("Counts all values that match a `*` together.")
        .together(Shape::Flag),
    setting("name")
        .says("The name by which other tables replace this one.")
        .together(Shape::Text),
    setting("replaces")
        .says("The names of other tables, which do not limit a request that this one limits too.")
        .together(TEXTS),
    setting("alternative")
        .says("Lets a request pass that is over this limit and not over another alternative of it.")
        .together(Shape::Flag),
    setting("charge")
        .says("Whether units are charged within the limit, or after the fact and past it; the default is before.")
        .together(Shape::Word(&CHARGE)),
]);

static ENTRY: Vocabulary<()> = Vocabulary(&[
    setting("key")
        .says("The key of the entry, which may have any characters.")
        .together(Shape::Text),
    setting("value")
        .says("The value, in which `*` stands for any characters. Without it, each value is counted apart.")
        .together(Shape::Text),
    setting("together")
        .says("Counts all values that match the `*` together.")
        .together(Shape::Flag),
    setting("in_metrics")
        .says("Whether the metrics have the value of each request; a client that chooses it makes many series.")
        .together(Shape::Flag),
]);

static CHARGE: [(&str, bool); 2] = [("before", false), ("after", true)];

/// The settings of a table: its own, and those of a policy that read no request.
pub(super) struct Envoy;

impl Fields for Envoy {
    fn fields(&self) -> Vec<Field> {
        let mut fields = OWN.fields();
        let of_policy = POLICY.fields().into_iter();
        fields.extend(of_policy.filter(|field| UNKEYED.contains(&field.name)));
        fields
    }
}

/// The longest domain, and the longest key of an entry, in bytes.
const LONGEST: usize = 1_024;

/// The most entries of a descriptor.
const MOST_ENTRIES: usize = 16;

/// A key, and the value or the pattern of one.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Option<String>,
    /// Whether all values that match are counted together.
    is_together: bool,
    is_in_metrics: bool,
}

/// The limit of a descriptor that Envoy sends to a rate limit service: a table `envoy` of a file.
#[derive(Clone, Debug)]
pub struct DescriptorLimit {
    domain: String,
    entries: Vec<Entry>,
    policy: Policy,
    mode: Mode,
    name: Option<String>,
    replaces: Vec<String>,
    is_alternative: bool,
    is_charged_after: bool,
    line: Option<usize>,
}

impl DescriptorLimit {
    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the entries: a key, and the value, in which `*` stands for any characters. Without a value, each value is counted
    /// apart.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, Option<&str>)> {
        self.entries.iter().map(Entry::borrowed)
    }

    /// Returns for each entry whether all values that match its `*` are counted together.
    pub fn together(&self) -> impl ExactSizeIterator<Item = bool> {
        self.entries.iter().map(|entry| entry.is_together)
    }

    /// Returns for each entry whether metrics have the value of each request.
    pub fn in_metrics(&self) -> impl ExactSizeIterator<Item = bool> {
        self.entries.iter().map(|entry| entry.is_in_metrics)
    }

    /// Returns the policy, whose name is made of the domain and the entries.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the mode of the policy.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the name by which other limits replace this one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the names of the limits that do not hold for a request that this one limits too.
    pub fn replaces(&self) -> impl ExactSizeIterator<Item = &str> {
        self.replaces.iter().map(String::as_str)
    }

    /// Returns whether it refuses a request only if all alternatives of that request do.
    pub fn is_alternative(&self) -> bool {
        self.is_alternative
    }

    /// Returns whether units are charged after the fact: whole, and past the limit.
    pub fn is_charged_after(&self) -> bool {
        self.is_charged_after
    }

    /// Returns the line of the table in the file; `None` in JSON.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Describes the limit, as in `token-bucket 10/second, in shadow`.
    pub(super) fn says(&self) -> String {
        let mut says = self.policy.algorithm().to_string();
        for (is_so, what) in [
            (self.mode == Mode::Shadow, ", in shadow"),
            (self.mode == Mode::Off, ", off"),
            (self.together().any(|it| it), ", all values together"),
            (self.is_alternative, ", an alternative"),
            (self.is_charged_after, ", charged after"),
        ] {
            if is_so {
                says += what;
            }
        }
        if let Some(name) = &self.name {
            says.extend([", named ", name]);
        }
        if !self.replaces.is_empty() {
            says.extend([", replaces ", &self.replaces.join(", ")]);
        }
        says
    }
}

impl Entry {
    fn borrowed(&self) -> (&str, Option<&str>) {
        (&self.key, self.value.as_deref())
    }

    fn has_pattern(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.contains('*'))
    }
}

/// Reads all tables of a file with these policies.
pub(super) fn descriptors(
    root: &TableAt<'_>,
    policies: &[Declared<'_>],
) -> Option<Arc<[DescriptorLimit]>> {
    let Some(at) = root.get("envoy") else {
        return Some([].into());
    };
    if !at.is_list() {
        return at.expected("a list of tables; write each of them under [[envoy]]");
    }
    let policies = policies.iter();
    let policies = policies.map(|declared| (declared.name.as_str(), &declared.policy));
    let file = Reader {
        root,
        policies: policies.collect(),
    };
    let tables = at.list()?;
    let read: Vec<_> = tables.iter().map(|at| file.table(at)).collect();
    let mut seen: HashMap<(&str, Vec<_>), String> = HashMap::new();
    for (at, limit) in tables.iter().zip(&read) {
        let Some(limit) = limit else { continue };
        if let Some(before) = seen.insert((&limit.domain, limit.entries().collect()), at.place()) {
            at.refuse::<()>(format!(
                "the domain has these entries already ({before}); leave one of them"
            ));
        }
    }
    read.into_iter().collect()
}

struct Reader<'r, 'w> {
    root: &'r TableAt<'w>,
    policies: HashMap<&'r str, &'r Option<ReadPolicy>>,
}

impl<'w> Reader<'_, 'w> {
    fn table(&self, at: &At<'w>) -> Option<DescriptorLimit> {
        let table = at.table(&Envoy)?;
        let remedy = "name the domain that Envoy sends, such as domain = \"shop\"";
        let domain = table
            .need("domain", remedy)
            .and_then(|at| name(at, at.text()?));
        let remedy = "name the keys of a descriptor, such as entries = [\"tenant\"]";
        let mut entries = table.need("entries", remedy).and_then(entries);
        let is_charged_after = match table.get("charge") {
            None => Some(false),
            Some(at) => at.one_of(&CHARGE),
        };
        let is_alternative = table.get("alternative").map_or(Some(false), At::flag);
        let is_together = table.get("together").map_or(Some(false), At::flag);
        if let (Some(true), Some(entries), Some(at)) =
            (is_together, &mut entries, table.get("together"))
        {
            let with_pattern = entries.iter_mut().filter(|entry| entry.has_pattern());
            if with_pattern.map(|entry| entry.is_together = true).count() == 0 {
                at.refuse::<()>(
                    "no entry has a `*`; write one, such as \"path=/export/*\", or leave it out",
                );
            }
        }
        let named = names(&table);
        let state = match (&domain, &entries) {
            (Some(domain), Some(entries)) => {
                let entries: Vec<_> = entries.iter().map(Entry::borrowed).collect();
                state_name(domain, &entries)
            }
            // The limit is read for its mistakes.
            _ => String::new(),
        };
        let limited = if let Some(of) = table.get("policy") {
            self.limit_of_policy(&table, of, &state)
        } else {
            if let Some(at) = table.get("plan") {
                at.refuse::<()>("a plan gives the limit of a policy; name that as `policy`");
            }
            let policy = unkeyed(&state, algorithm(&table, None, None), &table);
            policy.map(|policy| (policy, mode(table.get("mode"))))
        };
        let (policy, mode) = limited?;
        if policy.as_ref().shapes() || matches!(policy.algorithm(), Algorithm::Concurrency(_)) {
            let of = table.get("policy").or_else(|| limit_of(&table));
            return of.unwrap_or(at).refuse(
                "Envoy lets no request wait, and does not tell when it ends; give an algorithm that counts, such as token-bucket",
            );
        }
        at.gives(&state, LimitRule::Policy);
        is_together?;
        let (name, replaces) = named?;
        Some(DescriptorLimit {
            domain: domain?,
            entries: entries?,
            policy,
            mode,
            name,
            replaces,
            is_alternative: is_alternative?,
            is_charged_after: is_charged_after?,
            line: at.line(),
        })
    }

    /// Returns the limit of a policy of the file, or that of a plan for it.
    fn limit_of_policy(
        &self,
        table: &TableAt<'w>,
        of: &At<'w>,
        state: &str,
    ) -> Option<(Policy, Mode)> {
        for field in UNKEYED.iter().filter(|field| **field != "mode") {
            table.either("policy", field);
        }
        let name = of.text()?;
        let Some(known) = self.policies.get(name) else {
            let mut known: Vec<&str> = self.policies.keys().copied().collect();
            known.sort_unstable();
            return of.unknown("policy", name, &known);
        };
        let Some(at) = self.root.get("policies")?.field(name) else {
            return of.refuse(format!(
                "{} is a level of a tree, which Envoy's descriptors have no keys for; name another policy, or give the limit here",
                quoted(name)
            ));
        };
        let known = known.as_ref()?;
        let mut own = *known.unkeyed.algorithm();
        if let Some(plan) = table.get("plan") {
            let its = Own {
                limit: Some(&own),
                unit: known.counts.unit,
            };
            own = self.limit_of_plan(plan, name, its)?;
        }
        if table.at.walk.is_wrong() {
            // A mistake of the policy would be told twice.
            return None;
        }
        let its = at.some_of(UNKEYED);
        let without_limit = at.some_of(&["on_store_failure", "lease", "adapt"]);
        let policy = unkeyed(state, Some(own), &without_limit)?;
        let mode = mode(table.get("mode").or_else(|| its.get("mode")));
        Some((policy.mode(mode), mode))
    }

    fn limit_of_plan(&self, at: &At<'w>, policy: &str, own: Own<'_>) -> Option<Algorithm> {
        let name = at.text()?;
        let plans = self.root.get("plans");
        let Some(plan) = plans.and_then(|plans| plans.field(name)) else {
            let plans = plans.map_or_else(Vec::new, At::fields);
            let known: Vec<&str> = plans.iter().map(|(name, _)| *name).collect();
            return at.unknown("plan", name, &known);
        };
        if matches!(own.limit, Some(Algorithm::ByHours(_))) {
            return at.refuse(format!(
                "the limit of policy {} depends on the hour; write that of the plan here, in place of `policy`",
                quoted(policy)
            ));
        }
        match plan.field(policy) {
            Some(_) if at.walk.is_wrong() => None,
            Some(its) => limit(&its, policy, own),
            None => own.limit.copied(),
        }
    }
}

/// Returns the mode that this value says. A mistake in it is noted elsewhere.
fn mode(at: Option<&At<'_>>) -> Mode {
    let text = at.and_then(|at| match &at.node.value {
        Value::Text(text) => Some(text),
        _ => None,
    });
    let said = text.and_then(|text| MODES.iter().find(|(word, _)| word == text));
    said.map_or(Mode::Enforce, |(_, mode)| *mode)
}

/// Reads the name of a table, and the names of those that it replaces.
fn names(table: &TableAt<'_>) -> Option<(Option<String>, Vec<String>)> {
    let own = match table.get("name") {
        None => Some(None),
        Some(at) => at.text().and_then(|text| name(at, text)).map(Some),
    };
    let replaced = table.get("replaces").map_or(Some(Vec::new()), |at| {
        at.each(|at| {
            let other = name(at, at.text()?)?;
            if own.as_ref().is_some_and(|own| own.as_ref() == Some(&other)) {
                return at
                    .refuse("a table does not replace itself; give the `name` of another one");
            }
            Some(other)
        })
    });
    Some((own?, replaced?))
}

fn name(at: &At<'_>, text: &str) -> Option<String> {
    match text.len() {
        0 => at.refuse("a name is empty; write one"),
        1..=LONGEST => Some(text.to_owned()),
        length => at.refuse(format!("a name has {length} bytes; give {LONGEST} at most")),
    }
}

fn entries(at: &At<'_>) -> Option<Vec<Entry>> {
    let list = at.list()?;
    if !(1..=MOST_ENTRIES).contains(&list.len()) {
        let number = list.len();
        return at.refuse(format!(
            "there are {number} entries; give 1 to {MOST_ENTRIES}"
        ));
    }
    let entries: Vec<_> = list.iter().map(entry).collect();
    entries.into_iter().collect()
}

fn entry(at: &At<'_>) -> Option<Entry> {
    if !at.is_table() {
        let Value::Text(text) = &at.node.value else {
            return at
                .expected("an entry; write a text, such as \"tenant\", or a table with `key`");
        };
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (&**text, None),
        };
        return Some(Entry {
            key: name(at, key)?,
            value,
            is_together: false,
            is_in_metrics: false,
        });
    }
    let table = at.table(&ENTRY)?;
    let remedy = "name the key that Envoy sends, such as { key = \"tenant\" }";
    let key = table
        .need("key", remedy)
        .and_then(|at| name(at, at.text()?));
    let value = match table.get("value") {
        None => Some(None),
        Some(at) => at.text().map(|text| Some(text.to_owned())),
    };
    let is_together = table.get("together").map_or(Some(false), At::flag);
    let is_in_metrics = table.get("in_metrics").map_or(Some(false), At::flag);
    let entry = Entry {
        key: key?,
        value: value?,
        is_together: is_together?,
        is_in_metrics: is_in_metrics?,
    };
    if let Some(at) = table.get("together")
        && entry.is_together
        && !entry.has_pattern()
    {
        return at
            .refuse("the value has no `*`; write one, such as \"/export/*\", or leave it out");
    }
    Some(entry)
}

/// The longest name of a policy.
const LONGEST_STATE: usize = 64;

/// Returns the name of the state of a limit: `shop/tenant=gold/path`. A name that is too long for one, or could be that of another
/// limit, ends in a hash.
pub fn state_name(domain: &str, steps: &[(&str, Option<&str>)]) -> String {
    let mut name = domain.to_owned();
    for (key, value) in steps {
        name += "/";
        name += key;
        if let Some(value) = value {
            name += "=";
            name += value;
        }
    }
    let is_clear = |text: &str| {
        let is_one =
            |c: char| matches!(c, ' '..='~') && !c.is_ascii_uppercase() && !"/=~".contains(c);
        text.chars().all(is_one)
    };
    let mut texts = steps
        .iter()
        .flat_map(|(key, value)| [Some(*key), *value])
        .flatten();
    if name.len() <= LONGEST_STATE && is_clear(domain) && texts.all(is_clear) {
        return name;
    }
    let steps = steps.iter();
    let texts = steps.flat_map(|(key, value)| {
        [
            *key,
            if value.is_some() { "=" } else { "" },
            value.unwrap_or(""),
        ]
    });
    let hash = hexadecimal(&digest([domain].into_iter().chain(texts))[..8]);
    let printable = name
        .chars()
        .map(|c| if matches!(c, ' '..='}') { c } else { '_' });
    let begin: String = printable.take(LONGEST_STATE - 1 - hash.len()).collect();
    format!("{begin}~{hash}")
}

/// Returns the SHA-256 of a list of texts, no two of which run together.
pub fn digest(texts: impl Iterator<Item = impl AsRef<[u8]>>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for text in texts {
        let text = text.as_ref();
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Steps<'a> = &'a [(&'a str, Option<&'a str>)];

    #[test]
    fn names_of_states_are_apart_and_short() {
        let long = "x".repeat(80);
        let lists: [(&str, Steps<'_>); 12] = [
            ("shop", &[("tenant", Some("gold")), ("path", None)]),
            ("shop", &[("tenant", Some("gold/path"))]),
            ("shop/tenant", &[("path", None)]),
            ("shop", &[("tenant", Some("Gold"))]),
            ("shop", &[("tenant", Some("gold"))]),
            ("shop", &[("tenant=gold", None)]),
            ("shop", &[("tenant", Some(""))]),
            ("shop", &[("tenant", None)]),
            ("shop", &[("tenant", Some(&long))]),
            ("shop", &[("tenant", Some("é"))]),
            ("shop", &[("tenant~", None)]),
            ("", &[("a", None)]),
        ];
        let names = lists.map(|(domain, steps)| state_name(domain, steps));
        assert_eq!(names[0], "shop/tenant=gold/path");
        let folded: std::collections::HashSet<_> =
            names.iter().map(|it| it.to_lowercase()).collect();
        assert_eq!(folded.len(), names.len(), "{names:?}");
        for name in &names {
            assert!(
                name.len() <= LONGEST_STATE && name.chars().all(|c| matches!(c, ' '..='~')),
                "{name}"
            );
        }
    }
}

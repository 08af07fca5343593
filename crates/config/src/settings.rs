//! The whole file: its tables together.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use http::HeaderName;

use super::adapt::{ADAPT, CONCURRENCY};
use super::bodies::{Bodies, REQUEST_BODY};
use super::common::Common;
use super::conditions::{self, CONDITION};
use super::descriptors::{DescriptorLimit, Envoy, descriptors};
use super::digest::{Sha, digest};
use super::elsewhere::{NUMBER, SECRET, as_written, nodes, resolved, secret};
use super::fair;
use super::first_of::{self, FirstOf};
use super::keys::{KEY, networks};
use super::levels::{self, Declared, LevelFields};
use super::limits::LIMIT;
use super::load;
use super::money::{PRICE, prices_or_none};
use super::plans::{PLAN_OF, ReadPlans, plans};
use super::policies::policies;
use super::policy::{Counts, MODES, POLICY, ReadPolicy, limit_of, unkeyed_of};
use super::resolving::RESOLVER;
use super::resolving::{ReadResolver, resolver};
use super::responses::RESPONSES;
use super::secret_files::SecretFiles;
use super::shape::{CONDITIONS, Shape, TEXTS};
use super::store::{ReadStore, STORE, store};
use super::tree::quoted;
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, Places, TableAt};
use tower_ratelimit::__internal::Pointless;
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::key::{self, Forwarding, Head, Proxies, Secret};
use tower_ratelimit::limiter::{Limiter, LimiterBuilder};
use tower_ratelimit::middleware::{RateLimitLayer, RateLimitLayerBuilder, ReadJsonLayer};
use tower_ratelimit::policy::{Modes, Policy};
use tower_ratelimit::quota::Quota;
use tower_ratelimit_adapt::Adapt;
use tower_ratelimit_adapt::middleware::AdaptiveConcurrencyLayer;

pub(super) static ROOT: Vocabulary<Builders> = Vocabulary(&[
    setting("$schema")
        .says("The address of the JSON Schema, for editors.")
        .together(Shape::Text),
    setting("version")
        .says("The version of the format of this file: 1, the only one.")
        .of(Shape::Integer, |it, at| match at.integer()? {
            1_u32 => Some(it),
            _ => at.refuse("this program reads files of version 1; write version = 1, or leave it out"),
        }),
    setting("policies")
        .says("The policies, each a table under its name.")
        .together(Shape::Map(&Shape::Named("policy"))),
    setting("envoy")
        .says("Limits of the descriptors that Envoy sends to a rate limit service.")
        .together(Shape::List(&Shape::Table(&Envoy))),
    setting("first_of")
        .says("Groups of policies of which one pays for a request: the first of these names that has room.")
        .together(Shape::Map(&first_of::GROUP)),
    setting("plans")
        .says("The plans: under the name of each, a limit for each policy that it speaks of.")
        .together(Shape::Map(&Shape::Map(&Shape::Named("limit")))),
    setting("default_plan")
        .says("The plan of requests without a plan, and of requests with an unknown one.")
        .together(Shape::Text),
    setting("plan_of")
        .says("How the plan of a request is found.")
        .together(Shape::Table(&PLAN_OF)),
    setting("resolver")
        .says("Looks up the plan or the limits of a request, by what code has registered.")
        .together(Shape::Table(&RESOLVER)),
    setting("adjustable")
        .says("Lets code change limits while they are in force.")
        .flag(|it| Builders {
            layer: it.layer.adjustable(),
            limiter: it.limiter.adjustable(),
            ..it
        }),
    setting("proxies")
        .says("The trusted proxies.")
        .together(Shape::Table(&PROXIES)),
    setting("lists")
        .says("Requests that no policy decides.")
        .of(Shape::Table(&LISTS), |it, at| it.with_table(&LISTS, at)),
    setting("responses")
        .says("The responses to clients.")
        .of(Shape::Table(&RESPONSES), |it, at| {
            it.with_table(&RESPONSES, at)
        }),
    setting("request_body")
        .says("How the bodies of requests are read, for the policies that ask for a field.")
        .together(Shape::Table(&REQUEST_BODY)),
    setting("prices")
        .says("What a million tokens of each model cost, and `other` for all other models, for policies with a budget.")
        .together(Shape::Map(&Shape::Table(&PRICE))),
    setting("store")
        .says("The store that keeps the state; the default is this process.")
        .together(Shape::Table(&STORE)),
    setting("nodes")
        .says(
            "Divides each limit by this number of nodes, which share no store; or the environment variable that \
             has the number.",
        )
        .of(
            Shape::Any(&[Shape::Integer, Shape::Table(&NUMBER)]),
            Builders::nodes,
        ),
    setting("mode")
        .says("The mode of all policies together, which weakens theirs.")
        .of(Shape::Word(&MODES), |it, at| {
            let mode = at.one_of(&MODES)?;
            Some(Builders {
                layer: it.layer.mode(mode),
                limiter: it.limiter.mode(mode),
                ..it
            })
        }),
    setting("shadow")
        .says(
            "The path of another file of limits, from the directory of this one. It decides \
             beside this file on state of its own, and refuses no request.",
        )
        .of(Shape::Text, |it, at| {
            Some(Builders {
                shadow: Some(path(at)?),
                ..it
            })
        }),
    setting("wait_places")
        .says("How many requests may wait for their turn, under all policies together.")
        .integer(|it, places| Builders {
            layer: it.layer.wait_places(places),
            ..it
        }),
    setting("secret")
        .says("Hashes keys that are credentials.")
        .together(Shape::Named("secret")),
    setting("adapt")
        .says("What the limits of policies follow that have `adapt`.")
        .together(Shape::Table(&ADAPT)),
    setting("concurrency")
        .says(
            "How many requests may be in flight at once, learnt from how long they take: \
             \"adaptive\", or a table.",
        )
        .together(Shape::Any(&[
            Shape::Word(&["adaptive"]),
            Shape::Table(&CONCURRENCY),
        ])),
]);

/// The shapes that have a name in the schema.
pub(super) const NAMED: &[(&str, Shape)] = &[
    (
        "limit",
        Shape::Any(&[Shape::Text, Shape::Integer, Shape::Table(&LIMIT)]),
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
        Shape::Secret(&Shape::Any(&[Shape::Text, Shape::Table(&SECRET)])),
    ),
    ("policy", Shape::Table(&POLICY)),
    ("level", Shape::Table(&LevelFields)),
];

static PROXIES: Vocabulary<()> = Vocabulary(&[
    setting("networks")
        .says("The networks of the proxies.")
        .together(TEXTS),
    setting("hops")
        .says("The number of proxies, in place of their networks.")
        .together(Shape::Integer),
    setting("unix_socket")
        .says("Trusts the other end of a Unix socket.")
        .together(Shape::Flag),
    setting("header")
        .says(
            "The header with the address of the client: x-forwarded-for, forwarded, or the name \
             of a header with one value.",
        )
        .together(Shape::Text),
]);

static LISTS: Vocabulary<RateLimitLayerBuilder> = Vocabulary(&[
    setting("exempt_paths")
        .says("Paths without a limit and without headers.")
        .of(Shape::List(&Shape::Text), exempt_paths),
    setting("allow")
        .says("Requests without a limit and without headers.")
        .of(CONDITIONS, |layer, at| {
            let holds = conditions::exemption(at)?;
            at.walk.lists(Arc::clone(&holds));
            Some(layer.allow(move |head| holds(head)))
        }),
    setting("deny")
        .says("Requests that get 403.")
        .of(CONDITIONS, |layer, at| {
            let holds = conditions::any(at)?;
            at.walk.lists(Arc::clone(&holds));
            Some(layer.deny(move |head| holds(head)))
        }),
]);

/// The settings of a file, ready to build a layer.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The names of the policies, and their own limits.
    pub(super) policies: Vec<(String, Algorithm)>,
    /// The states of the levels above a policy, the root first, for those below a root.
    pub(super) above: HashMap<String, Vec<String>>,
    /// What each key of a level is guaranteed of the level above.
    pub(super) guarantees: HashMap<String, Quota>,
    /// The policies whose limits are divided among tenants.
    pub(super) divided: Vec<String>,
    /// The same limits, each by the name under which the policy began.
    pub(super) states: Vec<(String, Algorithm)>,
    /// What each of them counts.
    pub(super) counts: Vec<Counts>,
    pub(super) layer: RateLimitLayerBuilder,
    pub(super) limiter: LimiterBuilder,
    pub(super) store: ReadStore,
    /// The switches of all layers and limiters of these settings.
    pub(super) modes: Modes,
    /// Where the limits are in the file.
    pub(super) places: Places,
    pub(super) proxies: Option<Proxies>,
    /// The header in which they tell the address of the client.
    pub(super) client_header: Option<HeaderName>,
    pub(super) adapt: Option<Adapt>,
    pub(super) followed: Option<load::Followed>,
    pub(super) concurrency: Option<AdaptiveConcurrencyLayer>,
    /// The headers that the file reads.
    pub(super) headers: Arc<[HeaderName]>,
    /// The names of the cookies that it reads.
    pub(super) cookies: Arc<[String]>,
    /// The names of the query fields that it reads.
    pub(super) query_fields: Arc<[String]>,
    /// The groups of policies of which one pays.
    pub(super) groups: Vec<FirstOf>,
    /// The names of the plans, in the order of the file.
    pub(super) plans: Vec<String>,
    /// The limits of the descriptors that Envoy sends.
    pub(super) descriptors: Arc<[DescriptorLimit]>,
    /// What the file reads of the bodies of requests, and the layer that does.
    pub(super) bodies: Bodies,
    pub(super) read_json: ReadJsonLayer,
    /// The path of the file in shadow, as it is written.
    pub(super) shadow: Option<String>,
    resolver: Option<ReadResolver>,
    /// What hashes keys.
    secret: Option<Secret>,
    fixed: [Fixed; FIXED.len()],
    pub(super) secret_files: SecretFiles,
}

/// The tables that cannot change while a layer is in use.
const FIXED: [&str; 4] = [STATES, HASHING, "adapt", "concurrency"];

/// Those of which a file may say the same although what a variable or another file has for it is different.
const FROM_ELSEWHERE: [&str; 2] = [STATES, HASHING];

/// Where the state is.
pub(super) const STATES: &str = "store";

/// The secret that hashes keys.
const HASHING: &str = "secret";

/// The value of a table that cannot change, as a digest, since it may be secret.
#[derive(Clone, Debug)]
struct Fixed {
    /// With what variables and files have.
    value: Option<Sha>,
    /// As it stands in the file.
    written: Option<Sha>,
    span: Option<Range<usize>>,
}

impl Fixed {
    fn of(at: Option<&At<'_>>) -> Self {
        Self {
            value: at.map(|at| digest(&resolved(at))),
            written: at.map(|at| digest(&as_written(at.node))),
            span: at.and_then(|at| at.node.span.clone()),
        }
    }
}

impl Settings {
    /// Takes over the store, the switches and the cache of a resolver from other settings.
    pub(super) fn over(self, other: &Self) -> Self {
        self.resolved_as(other).sharing(other)
    }

    fn resolved_as(mut self, other: &Self) -> Self {
        if let (Some(resolver), Some(known)) = (&self.resolver, &other.resolver)
            && resolver.is_like(known)
        {
            self.layer = self.layer.looking_up_by(known.looks.clone());
            self.resolver = Some(known.clone());
        }
        self
    }

    fn sharing(mut self, other: &Self) -> Self {
        // What is in use is that of the first file, whatever secret is behind its name since.
        for (fixed, used) in self.fixed.iter_mut().zip(&other.fixed) {
            fixed.value = used.value;
        }
        // The same fields, of which each was valid.
        let read_json = self.bodies.layer(&other.modes).unwrap_or_default();
        Self {
            read_json,
            layer: self.layer.modes(&other.modes),
            limiter: self.limiter.modes(&other.modes),
            modes: other.modes.clone(),
            store: other.store.clone(),
            adapt: other.adapt.clone(),
            concurrency: other.concurrency.clone(),
            ..self
        }
    }

    /// Moves the state into this process, if the file names a store elsewhere.
    pub(super) fn in_this_process(self) -> Self {
        let store = match self.store {
            ReadStore::Memory(store) => ReadStore::Memory(store),
            ReadStore::Own(_) | ReadStore::Redis(_) => ReadStore::default(),
        };
        Self { store, ..self }
    }

    /// Returns the policies of the next settings that count the same state in another unit.
    pub(super) fn recounted<'s>(
        &self,
        next: &'s Self,
    ) -> impl Iterator<Item = (&'s str, &'s Counts)> {
        let mut known = HashMap::new();
        for ((state, algorithm), counts) in self.states.iter().zip(&self.counts) {
            known.insert((state.clone(), algorithm.frame()), counts.unit);
        }
        let states = next.states.iter().zip(&next.counts).zip(&next.policies);
        states.filter_map(move |(((state, algorithm), counts), (name, _))| {
            let before = known.get(&(state.clone(), algorithm.frame()))?;
            (*before != counts.unit).then_some((name.as_str(), counts))
        })
    }

    /// Returns the levels of the next settings that are below other levels than before, and so have other keys.
    pub(super) fn moved<'s>(&self, next: &'s Self) -> impl Iterator<Item = &'s str> {
        let above = |settings: &Self, name: &str| settings.above.get(name).cloned();
        let names = self.states.iter().zip(&self.policies);
        let names = names.map(|((state, algorithm), (name, _))| {
            ((state.clone(), algorithm.frame()), above(self, name))
        });
        let known: HashMap<_, _> = names.collect();
        let states = next.states.iter().zip(&next.policies);
        states.filter_map(move |((state, algorithm), (name, _))| {
            let before = known.get(&(state.clone(), algorithm.frame()))?;
            (*before != above(next, name)).then_some(name.as_str())
        })
    }

    /// Returns the tables of the next settings that differ and must not.
    pub(super) fn differences<'s>(
        &self,
        next: &'s Self,
    ) -> impl Iterator<Item = (&'static str, Option<&'s Range<usize>>)> {
        self.other_values(next, false)
    }

    /// Returns the tables that the next settings write as these do, and of which variables and files have something else, with their
    /// places there.
    pub(super) fn rotated<'s>(
        &self,
        next: &'s Self,
    ) -> impl Iterator<Item = (&'static str, Option<&'s Range<usize>>)> {
        self.other_values(next, true)
    }

    fn other_values<'s>(
        &self,
        next: &'s Self,
        elsewhere: bool,
    ) -> impl Iterator<Item = (&'static str, Option<&'s Range<usize>>)> {
        let pairs = FIXED.into_iter().zip(self.fixed.clone()).zip(&next.fixed);
        let differing = pairs.filter(move |((name, now), next)| {
            let is_elsewhere = FROM_ELSEWHERE.contains(name) && now.written == next.written;
            now.value != next.value && is_elsewhere == elsewhere
        });
        differing.map(|((name, _), next)| (name, next.span.as_ref()))
    }

    /// Logs in to the store as newer settings do. Returns whether the store is the same but for that.
    pub(super) fn renew_login(&mut self, newer: &Self) -> bool {
        if !self.store.renew_login(&newer.store) {
            return false;
        }
        let mut fixed = FIXED.iter().zip(self.fixed.iter_mut().zip(&newer.fixed));
        if let Some((_, (used, newer))) = fixed.find(|(name, _)| **name == STATES) {
            used.value = newer.value;
        }
        true
    }

    /// Returns what hashes keys, with its table as it is written.
    pub(super) fn secret_in_use(&self) -> Option<(Sha, Secret)> {
        let mut fixed = FIXED.iter().zip(&self.fixed);
        let (_, its) = fixed.find(|(name, _)| **name == HASHING)?;
        Some((its.written?, self.secret.clone()?))
    }
}

/// Reads the root. Returns settings if there is no mistake.
pub(super) fn settings(at: &At<'_>) -> Option<Settings> {
    let root = at.table(&ROOT)?;
    let store = match root.get("store") {
        Some(at) => Some(store(at)),
        None => own_store(at).map(Some),
    };
    let read_store = store.as_ref().and_then(Option::as_ref);
    let proxies = root.get("proxies").and_then(proxies);
    let (proxies, client_header) = proxies
        .map(|(proxies, forwarding, header)| ((proxies, forwarding), header))
        .unzip();
    let secret = root.get(HASHING).and_then(hashing_secret);
    let (adapt, factor) = followed(&root, read_store);
    at.walk.share(Common {
        factor,
        proxies,
        secret,
        prices: root.get("prices").map(prices_or_none),
    });
    let concurrency = root.get("concurrency").and_then(load::concurrency);
    let policies = declared_policies(&root);
    let modes = Modes::new();
    let mut builders = Builders::of(at, &modes, read_store);
    ROOT.apply(&root, &mut builders);
    let Builders {
        mut layer,
        mut limiter,
        shadow,
        ..
    } = builders;
    let resolver = root.get("resolver").and_then(resolver);
    let policies = policies?;
    let read = plans(&root, &policies);
    // What is no part of a policy is read before.
    let bodies = Bodies::read(&root).and_then(|bodies| {
        let layer = root.at.made(bodies.layer(&modes))?;
        Some((bodies, layer))
    });
    let descriptors = descriptors(&root, &policies);
    let groups = first_of::groups(&root, &policies);
    let (tables, policies): (Vec<_>, Vec<_>) = policies
        .into_iter()
        .map(|declared| ((declared.name, declared.table), declared.policy))
        .unzip();
    let policies: Vec<ReadPolicy> = policies.into_iter().collect::<Option<_>>()?;
    let mut plans = Vec::new();
    if let Some(read) = read {
        layer = with_plans(layer, &read);
        limiter = limiter.plans(read.plans, |_| None::<String>);
        plans = read.names;
    }
    if let Some(resolver) = &resolver {
        layer = layer.looking_up_by(resolver.looks.clone());
    }
    let mut layer = layer.policies(policies.iter().map(|policy| policy.keyed.clone()));
    (layer, limiter) = passing_without(&policies, layer, limiter);
    let (layer, limiter, groups) =
        first_of::declare(groups?, (layer, limiter), &tables, read_store)?;
    warn_of_pointless(&root, &tables, &layer, &groups);
    check_parts(&tables, (&limiter, &policies), read_store)?;
    warn_of_needless_prices(&root, &policies);
    let limits = policies.iter().map(|policy| &policy.unkeyed);
    let (bodies, read_json) = bodies?;
    Some(Settings {
        bodies,
        read_json,
        counts: policies
            .iter()
            .map(|policy| policy.counts.clone())
            .collect(),
        above: above(&policies),
        guarantees: guarantees(&policies),
        divided: fair::divided_of(&tables),
        states: limits.clone().map(state).collect(),
        policies: limits
            .map(|policy| (policy.name().to_owned(), *policy.algorithm()))
            .collect(),
        layer,
        limiter: limiter.policies(policies.into_iter().map(|policy| policy.unkeyed)),
        store: store.unwrap_or_default().unwrap_or_default(),
        modes,
        places: at.walk.take_limits(),
        proxies: at.common().proxies.clone().map(|(proxies, _)| proxies),
        client_header,
        followed: adapt
            .as_ref()
            .and(root.get("adapt"))
            .and_then(load::followed),
        adapt,
        concurrency,
        headers: at.walk.take_headers().into(),
        cookies: at.walk.take_cookies().into(),
        query_fields: at.walk.take_query_fields().into(),
        groups,
        plans,
        descriptors: descriptors?,
        shadow,
        resolver,
        secret: at.common().secret.clone(),
        fixed: FIXED.map(|field| Fixed::of(root.get(field))),
        secret_files: at.walk.secret_files(),
    })
}

/// Returns the name under which a policy has its states, and its algorithm.
fn state(policy: &Policy) -> (String, Algorithm) {
    (
        policy.as_ref().original_name().to_owned(),
        *policy.algorithm(),
    )
}

/// Reads the policies, which a file for Envoy alone may do without.
fn declared_policies<'a>(root: &TableAt<'a>) -> Option<Vec<Declared<'a>>> {
    if root.lacks("policies") && root.get("envoy").is_some() {
        return Some(Vec::new());
    }
    let remedy = "a file without policies limits nothing; add one, such as [policies.minute]";
    policies(root.need("policies", remedy)?)
}

/// Rejects limits that are divided, or guaranteed in part, where the policies together or the store do not go with that.
fn check_parts(
    tables: &[(String, TableAt<'_>)],
    (limiter, policies): (&LimiterBuilder, &[ReadPolicy]),
    store: Option<&ReadStore>,
) -> Option<()> {
    fair::check(tables, (limiter, unkeyed_of(policies)), store)?;
    levels::check_guarantees(tables, (limiter, unkeyed_of(policies)), store)
}

/// Returns the states of the levels above each policy that is below a root, the root first. A level follows the one above it.
fn above(policies: &[ReadPolicy]) -> HashMap<String, Vec<String>> {
    let mut all: HashMap<String, Vec<String>> = HashMap::new();
    let rules = policies.iter().map(|policy| policy.keyed.as_ref());
    for (rule, next) in rules.clone().zip(rules.skip(1)) {
        if next.above() == Some(rule.name()) {
            let mut above = all.get(rule.name()).cloned().unwrap_or_default();
            above.push(rule.original_name().to_owned());
            all.insert(next.name().to_owned(), above);
        }
    }
    all
}

/// Returns what the keys of each level are guaranteed.
fn guarantees(policies: &[ReadPolicy]) -> HashMap<String, Quota> {
    let each = policies.iter().map(|policy| policy.keyed.as_ref());
    let guaranteed = each.filter_map(|rule| Some((rule.name().to_owned(), rule.guarantee()?)));
    guaranteed.collect()
}

/// Lets requests other than those of Envoy pass without a limit, if there are no policies.
fn passing_without(
    policies: &[ReadPolicy],
    layer: RateLimitLayerBuilder,
    limiter: LimiterBuilder,
) -> (RateLimitLayerBuilder, LimiterBuilder) {
    if !policies.is_empty() {
        return (layer, limiter);
    }
    let none = Policy::new("none", Algorithm::Unlimited);
    let limiter = limiter.policy(none.clone());
    (layer.policy(none.key(key::global())), limiter)
}

fn warn_of_needless_prices(root: &TableAt<'_>, policies: &[ReadPolicy]) {
    let are_needless = policies.iter().all(|policy| policy.counts.unit.is_none());
    if let Some(at) = root.get("prices").filter(|_| are_needless) {
        at.warn("no policy counts money; leave it out, or give a policy a `budget`");
    }
}

/// Warns of each policy that can never bind because of another, with the places of both.
fn warn_of_pointless(
    root: &TableAt<'_>,
    policies: &[(String, TableAt<'_>)],
    layer: &RateLimitLayerBuilder,
    groups: &[FirstOf],
) {
    // Of policies of which one pays, the laxest may be the last resort.
    if !groups.is_empty() {
        return;
    }
    let all = layer.pointless();
    if all.is_empty() {
        return;
    }
    let limits = policies.iter();
    let limits = limits.filter_map(|(name, table)| Some((name.as_str(), limit_of(table)?)));
    let limits: HashMap<&str, &At<'_>> = limits.collect();
    let plans = root.get("plans").into_iter().flat_map(At::fields);
    let plans = plans.map(|(name, at)| (name, at.fields().into_iter().collect()));
    let plans: HashMap<&str, HashMap<&str, At<'_>>> = plans.collect();
    for pointless in all {
        warn_of_one(&pointless, |name| match pointless.plan() {
            None => limits.get(name).copied(),
            Some(plan) => plans.get(plan)?.get(name),
        });
    }
}

fn warn_of_one<'t, 'w: 't>(pointless: &Pointless, limit: impl Fn(&str) -> Option<&'t At<'w>>) {
    if let (Some(at), Some(other)) = (limit(pointless.policy()), limit(pointless.beside())) {
        let (other, place) = (quoted(pointless.beside()), other.place());
        at.warn(format!(
            "it can never deny anything, since policy {other} ({place}) counts the same clients and is at least as \
             strict; leave one out, or correct the one that has a digit too few or too many"
        ));
    }
}

/// The builders of a file, which the settings for all policies change.
#[derive(Clone)]
pub(super) struct Builders {
    layer: RateLimitLayerBuilder,
    limiter: LimiterBuilder,
    /// The path of the file in shadow.
    shadow: Option<String>,
    /// Whether nodes share the store of the file.
    is_shared: bool,
}

impl Builders {
    fn of(at: &At<'_>, modes: &Modes, store: Option<&ReadStore>) -> Self {
        let mut layer = RateLimitLayer::builder().modes(modes);
        if let Some(hook) = at.walk.functions().on_decision.clone() {
            layer = layer.on_decision(move |head, key, decision| hook(head, key, decision));
        }
        Self {
            layer,
            limiter: Limiter::builder().modes(modes),
            shadow: None,
            is_shared: store.is_some_and(ReadStore::is_shared),
        }
    }

    fn with_table(mut self, of: &Vocabulary<RateLimitLayerBuilder>, at: &At<'_>) -> Option<Self> {
        let table = at.table(of)?;
        of.apply(&table, &mut self.layer)?;
        Some(self)
    }

    /// Reads the number of nodes of a service, which cannot be combined with a store that they share.
    fn nodes(self, at: &At<'_>) -> Option<Self> {
        let nodes = nodes(at)?;
        if self.is_shared {
            return at.refuse("nodes that share a store share each limit already; leave it out");
        }
        Some(Self {
            layer: self.layer.nodes(nodes),
            limiter: self.limiter.nodes(nodes),
            ..self
        })
    }
}

fn own_store(at: &At<'_>) -> Option<ReadStore> {
    at.walk.functions().store.clone().map(ReadStore::Own)
}

fn hashing_secret(at: &At<'_>) -> Option<Secret> {
    let text = secret(at)?;
    if at.is_text() {
        at.warn("the secret stands in the file, for all its readers to see; name an environment variable, { env = \"NAME\" }, or a file, { file = \"/run/secrets/NAME\" }");
    }
    let read = at.made(Secret::new(text))?;
    let in_use = at.walk.functions().secret.as_ref();
    Some(match in_use {
        // Keys count on as they were hashed, whatever is behind the name since.
        Some((written, used)) if *written == digest(&as_written(at.node)) => used.clone(),
        _ => read,
    })
}

fn with_plans(layer: RateLimitLayerBuilder, read: &ReadPlans) -> RateLimitLayerBuilder {
    let plans = read.plans.clone();
    match &read.plan_of {
        Some(plan_of) => {
            let plan_of = Arc::clone(plan_of);
            let plan_of = move |head: &Head<'_>| plan_of(head);
            if read.are_verified {
                layer.verified_plans(plans, plan_of)
            } else {
                layer.plans(plans, plan_of)
            }
        }
        None => layer.plans(plans, |_: &Head<'_>| None::<String>),
    }
}

/// Reads what limits follow, and the factor of the policies that follow it.
fn followed(root: &TableAt<'_>, store: Option<&ReadStore>) -> (Option<Adapt>, Option<FactorCell>) {
    let functions = root.at.walk.functions();
    let (table, own) = (root.get("adapt"), &functions.own_adapt);
    let adapt = match (table, own) {
        (Some(at), Some(_)) => {
            at.refuse("code has registered what limits follow; leave the table out")
        }
        (Some(at), None) => {
            let read = load::adapt(at, store);
            read.map(|read| functions.running.clone().unwrap_or(read))
        }
        (None, own) => own.clone(),
    };
    // A table with a mistake still counts as a table, so a policy that follows it is valid.
    let factor = adapt.as_ref().map(|adapt| adapt.factor().clone());
    (
        adapt,
        factor.or_else(|| table.map(|_| FactorCell::default())),
    )
}

fn path(at: &At<'_>) -> Option<String> {
    match at.text()? {
        "" => at.refuse("it names no file; write its path, from the directory of this file"),
        path => Some(path.to_owned()),
    }
}

fn proxies(at: &At<'_>) -> Option<(Proxies, Forwarding, HeaderName)> {
    let table = at.table(&PROXIES)?;
    table.either("networks", "hops");
    let header = table.need(
        "header",
        "name the header that the proxies write, such as \"x-forwarded-for\"",
    );
    let forwarding = header.and_then(|at| {
        at.reads_header(at.text()?);
        let Ok(name) = at.text()?.parse::<HeaderName>() else {
            return at.expected("the name of a header; write one such as \"x-forwarded-for\"");
        };
        let forwarding = match name.as_str() {
            "x-forwarded-for" => Forwarding::XForwardedFor,
            "forwarded" => Forwarding::Forwarded,
            other => at.made(Forwarding::try_single(other))?,
        };
        Some((forwarding, name))
    });
    let is_socket = table.get("unix_socket").and_then(At::flag) == Some(true);
    let proxies = match (table.get("networks"), table.get("hops")) {
        (Some(at), _) => {
            networks(at).and_then(|networks| at.made(Proxies::try_in_networks(networks)))
        }
        (None, Some(at)) => at.made(Proxies::try_hops(at.integer()?)),
        (None, None) if is_socket => Some(Proxies::unix_socket()),
        (None, None) if table.has_unknown() => None,
        (None, None) => at.refuse("no proxy is named; give `networks`, `hops` or `unix_socket`"),
    };
    let proxies = proxies?;
    let proxies = if is_socket {
        proxies.and_unix_socket()
    } else {
        proxies
    };
    let (forwarding, header) = forwarding?;
    Some((proxies, forwarding, header))
}

fn exempt_paths(layer: RateLimitLayerBuilder, at: &At<'_>) -> Option<RateLimitLayerBuilder> {
    let paths: Vec<_> = at.list()?.iter().map(exempt_path).collect();
    let paths: Vec<&str> = paths.into_iter().collect::<Option<_>>()?;
    for path in &paths {
        let path = (*path).to_owned();
        at.walk
            .lists(Arc::new(move |head: &Head<'_>| head.path() == path));
    }
    Some(layer.exempt_paths(paths))
}

fn exempt_path<'w>(at: &At<'w>) -> Option<&'w str> {
    match at.text()? {
        path if path.starts_with('/') && !path.contains(['?', '#', '*', '{']) => Some(path),
        path => at.refuse(format!(
            "{path:?} is not a whole path; write it as it is sent, such as \"/health\", or use `allow`"
        )),
    }
}

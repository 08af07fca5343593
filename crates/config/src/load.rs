//! Reads the tables `adapt` and `concurrency`: limits that follow the load, and how many requests are in
//! flight.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::adapt::{ADAPT, CONCURRENCY, PARTITION, STEP};
use super::conditions;
use super::functions::{Condition, ReadSignal};
use super::names::unknown;
use super::store::ReadStore;
use super::walk::{At, TableAt};
use tower_ratelimit::factor::Factor;
use tower_ratelimit::key::Head;
use tower_ratelimit_adapt::middleware::AdaptiveConcurrencyLayer;
use tower_ratelimit_adapt::{
    Adapt, AdaptBuilder, AdaptiveConcurrency, Aimd, Controller, Gradient, Kernel, Load, Resource,
    Signal, Steps, Traffic, Worst, from_fn,
};

/// The loads that limits follow, for [`Config::understood`](super::Config::understood).
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) says: String,
    pub(super) place: String,
}

/// Describes what limits follow, for a table without mistakes.
pub(super) fn followed(at: &At<'_>) -> Option<Followed> {
    let table = at.table(&ADAPT)?;
    let names = names(&table)?.join(", ");
    let share = |field: &str, unless: u32| table.get(field).map_or(Some(unless), At::integer);
    let (least, most) = (share("least", 10)?, share("most", 100)?);
    Some(Followed {
        says: format!("{least} % to {most} % of limits with `adapt`, by {names}"),
        place: at.place(),
    })
}

/// Reads what limits follow.
pub(super) fn adapt(at: &At<'_>, store: Option<&ReadStore>) -> Option<Adapt> {
    let table = at.table(&ADAPT)?;
    let names = names(&table)?;
    let share = |field: &str, unless: u32, from: u32, to: u32| match table.get(field) {
        Some(at) => percent(at, from, to),
        None => Some(unless),
    };
    let least = share("least", 10, 1, 100);
    let most = share("most", 100, 100, 100_000);
    let by = share("grow_by", 5, 1, 100_000);
    let bounds = Bounds {
        least: factor(least?),
        most: factor(most?),
        by: factor(by?),
    };
    let signals = signals(&table, store)?;
    let builder = Adapt::builder(controller(&table, &names, bounds)?).floor(bounds.least);
    let builder = signals.into_iter().fold(builder, AdaptBuilder::signal);
    at.made(builder.build())
}

#[derive(Clone, Copy)]
struct Bounds {
    least: Factor,
    most: Factor,
    by: Factor,
}

fn factor(percent: u32) -> Factor {
    Factor::thousandths(percent.saturating_mul(10))
}

fn percent(at: &At<'_>, from: u32, to: u32) -> Option<u32> {
    let percent: u32 = at.integer()?;
    if (from..=to).contains(&percent) {
        return Some(percent);
    }
    at.refuse(format!(
        "{percent} % cannot be; give a whole number of percent from {from} to {to}"
    ))
}

/// The fields of signals with a target, and their names.
const WITH_TARGET: [(&str, &str); 3] = [
    ("latency", "latency"),
    ("in_flight", "in flight"),
    ("answer_time", "store"),
];

/// Returns the names of all signals.
fn names<'w>(table: &TableAt<'w>) -> Option<Vec<&'w str>> {
    let mut names = match table.get("signals") {
        Some(at) => at.texts()?,
        None => Vec::new(),
    };
    let with_target = WITH_TARGET.iter();
    let with_target = with_target.filter(|(field, _)| table.get(field).is_some());
    names.extend(with_target.map(|(_, name)| *name));
    if names.is_empty() && table.has_unknown() {
        return None;
    }
    if names.is_empty() {
        return table
            .at
            .refuse("no signal is named; add one, such as signals = [\"cpu\", \"memory\"]");
    }
    Some(names)
}

/// Reads the name of a signal that the file has declared.
fn declared<'w>(at: &At<'_>, name: &'w str, names: &[&str]) -> Option<&'w str> {
    if names.contains(&name) {
        return Some(name);
    }
    at.unknown("signal", name, names)
}

fn controller(table: &TableAt<'_>, names: &[&str], bounds: Bounds) -> Option<Box<dyn Controller>> {
    let mut all: Vec<Box<dyn Controller>> = Vec::new();
    if let Some(at) = table.get("targets") {
        for (name, at) in at.entries()? {
            let target = percent(&at, 1, 100_000)?;
            let signal = declared(&at, name.text, names)?.to_owned();
            let aimd = Aimd::on(signal, Load::percent(target));
            all.push(Box::new(aimd.floor(bounds.least).grow(bounds.most)));
        }
    }
    if let Some(at) = table.get("gradients") {
        for at in at.one_or_list() {
            let signal = declared(&at, at.text()?, names)?.to_owned();
            let gradient = Gradient::on(signal).floor(bounds.least).grow(bounds.most);
            all.push(Box::new(gradient));
        }
    }
    let steps = match table.get("steps") {
        Some(at) => Some(own_steps(at, names)?),
        None if !all.is_empty() => None,
        None if names.contains(&"cpu") || names.contains(&"memory") => Some(Steps::standard()),
        None => {
            return table.at.refuse(
                "the standard steps are about `cpu` and `memory`, and neither is a signal here; give `steps`, `targets` or `gradients`",
            );
        }
    };
    if let Some(steps) = steps {
        all.insert(0, Box::new(with_options(table, steps, bounds)?));
    }
    let mut all = all.into_iter();
    let Some(first) = all.next() else {
        return table
            .at
            .refuse("no signal has a target; name one in `targets`");
    };
    match all.next() {
        None => Some(first),
        Some(second) => {
            let worst = Worst::of(first).and(second);
            Some(Box::new(all.fold(worst, Worst::and)))
        }
    }
}

fn own_steps(at: &At<'_>, names: &[&str]) -> Option<Steps> {
    let mut steps = Steps::new();
    for at in at.list()? {
        let table = at.table(&STEP)?;
        let signals = table.need("signals", "say which, such as signals = \"cpu\"")?;
        let mut of = Vec::new();
        for at in signals.one_or_list() {
            of.push(declared(&at, at.text()?, names)?.to_owned());
        }
        let above = table.need("above", "say above how many percent, such as above = 90")?;
        let above = Load::percent(percent(above, 0, 100_000)?);
        let share = table.need("limit", "say which part of the limits, such as limit = 50")?;
        steps = steps.above(of, above, factor(percent(share, 1, 100)?));
    }
    Some(steps)
}

fn with_options(table: &TableAt<'_>, mut steps: Steps, bounds: Bounds) -> Option<Steps> {
    if let Some(at) = table.get("hold") {
        steps = steps.hold(at.duration()?);
    }
    if bounds.most > Factor::ONE {
        steps = steps.grow(bounds.by, bounds.most);
    }
    if table.get("immediate").and_then(At::flag) == Some(true) {
        table.either("immediate", "hold");
        table.either("immediate", "most");
        steps = steps.immediate();
    }
    Some(steps)
}

/// Returns the traffic that code has registered.
fn traffic<'w>(at: &At<'w>) -> Option<&'w Traffic> {
    let traffic = at.walk.functions().traffic.as_ref();
    traffic.or_else(|| {
        at.refuse(
            "code has registered no traffic to look at; register it with `.traffic(&traffic)`",
        )
    })
}

/// Returns the signal that code has registered under this name. The message for an unknown name lists the signals of the file.
fn own_signal(at: &At<'_>) -> Option<impl Signal + use<>> {
    let (name, functions) = (at.text()?, at.walk.functions());
    let all = || functions.all::<Arc<ReadSignal>>();
    if let Some((name, read)) = all().find(|(known, _)| *known == name) {
        let read = Arc::clone(read);
        return Some(from_fn(name.to_owned(), move || read()));
    }
    let known = OF_KERNEL.into_iter().chain(["failures"]);
    let known: Vec<&str> = known.chain(all().map(|(name, _)| name)).collect();
    at.refuse(unknown("signal", name, &known))
}

const OF_KERNEL: [&str; 5] = [
    "cpu",
    "memory",
    "cpu pressure",
    "memory pressure",
    "io pressure",
];

fn signals(table: &TableAt<'_>, store: Option<&ReadStore>) -> Option<Vec<Box<dyn Signal>>> {
    let kernel = Kernel::new();
    let mut signals: Vec<Box<dyn Signal>> = Vec::new();
    if let Some(at) = table.get("signals") {
        for at in at.one_or_list() {
            signals.push(match at.text()? {
                "cpu" => Box::new(kernel.cpu()),
                "memory" => Box::new(kernel.memory()),
                "cpu pressure" => Box::new(kernel.pressure(Resource::Cpu)),
                "memory pressure" => Box::new(kernel.pressure(Resource::Memory)),
                "io pressure" => Box::new(kernel.pressure(Resource::Io)),
                "failures" => Box::new(traffic(&at)?.failures()),
                _ => Box::new(own_signal(&at)?),
            });
        }
    }
    if let Some(at) = table.get("latency") {
        signals.push(Box::new(traffic(at)?.latency(at.duration()?)));
    }
    if let Some(at) = table.get("in_flight") {
        let Some(most) = NonZeroU32::new(at.integer()?) else {
            return at.refuse("0 requests cannot be in flight; give 1 or more");
        };
        signals.push(Box::new(traffic(at)?.in_flight(most)));
    }
    if let Some(at) = table.get("answer_time") {
        signals.push(answer_time(at, store)?);
    }
    Some(signals)
}

fn answer_time(at: &At<'_>, store: Option<&ReadStore>) -> Option<Box<dyn Signal>> {
    let target = at.duration()?;
    match store {
        Some(ReadStore::Redis(store)) => Some(store.answer_time(target)),
        _ => at.refuse("the file has no store in Redis, whose answers take time; leave it out"),
    }
}

/// Reads the adaptive concurrency of all requests.
pub(super) fn concurrency(at: &At<'_>) -> Option<AdaptiveConcurrencyLayer> {
    let mut builder = AdaptiveConcurrency::builder();
    if let Some(factor) = &at.common().factor {
        builder = builder.frozen_below_one(factor);
    }
    if at.is_text() {
        at.one_of(&[("adaptive", ())])?;
        return Some(AdaptiveConcurrencyLayer::new(&at.made(builder.build())?));
    }
    let table = at.table(&CONCURRENCY)?;
    if let Some(at) = table.get("start") {
        builder = builder.start(at.integer()?);
    }
    if let Some(at) = table.get("least") {
        builder = builder.least(at.integer()?);
    }
    if let Some(at) = table.get("most") {
        builder = builder.most(at.integer()?);
    }
    if let Some(at) = table.get("healthy") {
        builder = builder.healthy(at.duration()?);
    }
    let mut partitions: Vec<(String, Arc<Condition>)> = Vec::new();
    if let Some(at) = table.get("partitions") {
        for (name, at) in at.entries()? {
            let table = at.table(&PARTITION)?;
            let share = table.need("share", "say how many percent, such as share = 40")?;
            builder = builder.partition(name.text, percent(share, 1, 100)?);
            let when = table.need(
                "when",
                "say which requests, such as when = { path = \"/checkout/*\" }",
            )?;
            partitions.push((name.text.to_owned(), conditions::any(when)?));
        }
    }
    let mut layer = AdaptiveConcurrencyLayer::new(&at.made(builder.build())?);
    if !partitions.is_empty() {
        layer = layer.partition_of(move |head: &Head<'_>| {
            let mut partitions = partitions.iter();
            let found = partitions.find(|(_, holds)| holds(head));
            found.map(|(name, _)| name.clone())
        });
    }
    if let Some(at) = table.get("except") {
        let except = conditions::exemption(at)?;
        layer = layer.except(move |head: &Head<'_>| except(head));
    }
    if let Some(at) = table.get("refusal_status") {
        layer = match at.integer::<u16>()? {
            429 => layer.too_many_requests(),
            503 => layer,
            other => return at.refuse(format!("{other} is no status for it; give 503 or 429")),
        };
    }
    Some(layer)
}

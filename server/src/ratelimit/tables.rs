//! The tables `envoy` of the file of limits, as limits of domains.

use std::sync::Arc;

use tower_ratelimit::policy::Mode;
use tower_ratelimit_config::DescriptorLimit;

use super::file::{Domain, unit_of};
use super::rules::{Level, OfEntry, Rule, path};
use super::statistics::Statistics;

/// What stands for the name of the file.
const FILE: &str = "the file of limits";

/// Returns the domains of these tables, in the order of the file.
pub(super) fn domains(tables: &[DescriptorLimit], statistics: &Statistics) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for table in tables {
        let known = domains.iter_mut().position(|it| it.name == table.domain());
        let place = known.unwrap_or_else(|| {
            domains.push(Domain {
                file: FILE.to_owned(),
                name: table.domain().to_owned(),
                span: 0..1,
                top: Level::default(),
            });
            domains.len() - 1
        });
        add(&mut domains[place].top, table, statistics);
    }
    domains
}

fn add(top: &mut Level, table: &DescriptorLimit, statistics: &Statistics) {
    let mut entries = table.entries();
    let Some((key, value)) = entries.next() else {
        return;
    };
    let first = top.at(key, value);
    let descriptor = entries.fold(first, |descriptor, (key, value)| {
        descriptor.below.at(key, value)
    });
    if table.mode() == Mode::Off {
        return;
    }
    let path = path(table.entries());
    let policy = table.policy().clone();
    let (_, period, _) = policy.algorithm().frame();
    descriptor.rule = Some(Arc::new(Rule {
        unit: unit_of(period.unwrap_or_default()),
        multiplier: None,
        policy,
        name: table.name().map(str::to_owned),
        replaces: table.replaces().map(str::to_owned).collect(),
        is_shadow: table.mode() == Mode::Shadow,
        is_quota: table.is_alternative(),
        settles: table.is_charged_after(),
        entries: table
            .together()
            .zip(table.in_metrics())
            .map(|(is_together, is_shown)| OfEntry {
                is_together,
                is_shown,
            })
            .collect(),
        metadata: None,
        line: table.line(),
        counts: statistics.of(table.domain(), &path),
        path,
    }));
}

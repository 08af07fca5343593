//! Conditions on requests, for policies, costs and lists.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};

use super::fields::CONDITION;
use super::functions::Condition;
use super::keys::{Common, networks};
use super::tree::Value;
use super::walk::{At, Table};
use crate::key::{Head, normal_path};

/// How a condition treats a path that has several readings: servers differ in whether `/health/..%2fadmin`
/// is `/admin`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spelling {
    /// The condition holds if any reading of the path matches, so that no spelling escapes a limit.
    Any,
    /// The condition holds if the path matches and has one reading, so that no spelling gains an exemption.
    Plain,
}

impl Spelling {
    fn of_the_contrary(self) -> Self {
        match self {
            Self::Any => Self::Plain,
            Self::Plain => Self::Any,
        }
    }
}

/// Reads a condition, or a list of conditions, one of which has to hold.
pub(super) fn any(common: &Common, at: &At<'_>) -> Option<Arc<Condition>> {
    any_spelt(common, at, Spelling::Any)
}

/// Reads a condition that exempts requests from a limit, or a list of conditions, one of which has to hold.
pub(super) fn exemption(common: &Common, at: &At<'_>) -> Option<Arc<Condition>> {
    any_spelt(common, at, Spelling::Plain)
}

fn any_spelt(common: &Common, at: &At<'_>, spelling: Spelling) -> Option<Arc<Condition>> {
    let list = at.one_or_list();
    let list: Vec<_> = list.iter().map(|at| all(common, at, spelling)).collect();
    let list: Vec<Arc<Condition>> = list.into_iter().collect::<Option<_>>()?;
    match <[_; 1]>::try_from(list) {
        Ok([only]) => Some(only),
        Err(list) if list.is_empty() => at.refuse("an empty list never holds; leave it out"),
        Err(list) => Some(Arc::new(move |head: &Head<'_>| {
            list.iter().any(|holds| holds(head))
        })),
    }
}

/// Reads a table, each field of which has to hold.
fn all(common: &Common, at: &At<'_>, spelling: Spelling) -> Option<Arc<Condition>> {
    let table = at.table(&CONDITION)?;
    if table.is_empty() {
        return at.refuse("an empty condition always holds; leave it out");
    }
    let mut parts: Vec<Option<Arc<Condition>>> = vec![method_and_path(&table, spelling)];
    if let Some(at) = table.get("header") {
        parts.push(headers(at));
    }
    if let Some(at) = table.get("address") {
        let networks = networks(at).and_then(|texts| at.made(common.client_ip().try_within(texts)));
        parts.push(networks.map(|within| Arc::new(within) as Arc<Condition>));
    }
    if let Some(at) = table.get("function") {
        parts.push(at.registered());
    }
    if let Some(at) = table.get("not") {
        let inner = any_spelt(common, at, spelling.of_the_contrary());
        parts.push(
            inner.map(|holds| Arc::new(move |head: &Head<'_>| !holds(head)) as Arc<Condition>),
        );
    }
    let parts: Vec<Arc<Condition>> = parts.into_iter().collect::<Option<_>>()?;
    Some(Arc::new(move |head: &Head<'_>| {
        parts.iter().all(|holds| holds(head))
    }))
}

/// Reads `method` and `path` of a table. Without both it always holds.
pub(super) fn method_and_path(table: &Table<'_>, spelling: Spelling) -> Option<Arc<Condition>> {
    let methods = table.get("method").map(methods);
    let paths = table.get("path").map(paths);
    if matches!(methods, Some(None)) || matches!(paths, Some(None)) {
        return None;
    }
    let (methods, paths) = (methods.flatten(), paths.flatten());
    Some(Arc::new(move |head: &Head<'_>| {
        methods
            .as_ref()
            .is_none_or(|methods| methods.contains(head.method()))
            && paths
                .as_ref()
                .is_none_or(|paths| matches(paths, head, spelling))
    }))
}

fn methods(at: &At<'_>) -> Option<Vec<Method>> {
    let list = at.one_or_list();
    let methods: Vec<Option<Method>> = list
        .iter()
        .map(|at| {
            let text = at.text()?;
            let is_upper = !text.bytes().any(|byte| byte.is_ascii_lowercase());
            match text.parse() {
                Ok(method) if is_upper => Some(method),
                _ => at.refuse(format!(
                    "{text:?} is not a method; write it as in a request: GET, POST"
                )),
            }
        })
        .collect();
    methods.into_iter().collect()
}

#[derive(Debug)]
enum Path {
    Whole(String),
    /// This path and all paths below it.
    Below(String),
}

/// Returns whether a request is to one of these paths.
fn matches(paths: &[Path], head: &Head<'_>, spelling: Spelling) -> bool {
    let is_one = |path: &str| paths.iter().any(|wanted| wanted.matches(path));
    match spelling {
        Spelling::Any => head.any_reading(is_one),
        Spelling::Plain => head.plain_path().is_some_and(is_one),
    }
}

impl Path {
    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Whole(whole) => path == whole,
            Self::Below(above) => path
                .strip_prefix(above.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

fn paths(at: &At<'_>) -> Option<Vec<Path>> {
    let list = at.one_or_list();
    let paths: Vec<Option<Path>> = list
        .iter()
        .map(|at| {
            let text = at.text()?;
            let (above, is_below) = match text.strip_suffix("/*") {
                Some(above) => (above, true),
                None => (text, false),
            };
            is_in_normal_form(at, above)?;
            let is_path = text.starts_with('/') && !above.contains(['?', '#', '*', '{']);
            match (is_path, is_below) {
                (false, _) => at.refuse(format!(
                    "{text:?} is not a path; write it as it is sent, such as \"/bulk\", or \"/bulk/*\" for all below it"
                )),
                (true, true) => Some(Path::Below(above.to_owned())),
                (true, false) => Some(Path::Whole(text.to_owned())),
            }
        })
        .collect();
    paths.into_iter().collect()
}

/// Rejects a path that no request has in its normal form.
pub(super) fn is_in_normal_form(at: &At<'_>, path: &str) -> Option<()> {
    let normal = normal_path(path);
    if normal == path {
        return Some(());
    }
    at.refuse(format!(
        "{path:?} has another normal form; write {normal:?}, which stands for all spellings of it"
    ))
}

/// The condition on a header.
#[derive(Debug)]
enum Wanted {
    Present(bool),
    OneOf(Vec<HeaderValue>),
}

fn headers(at: &At<'_>) -> Option<Arc<Condition>> {
    let mut wanted = Vec::new();
    let mut is_good = true;
    for (name, at) in at.entries()? {
        let Ok(header) = name.text.parse::<HeaderName>() else {
            let message = format!(
                "{} is not the name of a header; write a name such as x-tier",
                name.shown()
            );
            at.refuse_name::<()>(name, message);
            is_good = false;
            continue;
        };
        at.reads_header(name.text);
        let value = match at.node.value {
            Value::Flag(is_present) => Some(Wanted::Present(is_present)),
            _ => values(&at).map(Wanted::OneOf),
        };
        match value {
            Some(value) => wanted.push((header, value)),
            None => is_good = false,
        }
    }
    if !is_good {
        return None;
    }
    Some(Arc::new(move |head: &Head<'_>| {
        wanted.iter().all(|(name, wanted)| match wanted {
            Wanted::Present(is_present) => head.headers().contains_key(name) == *is_present,
            Wanted::OneOf(values) => head
                .headers()
                .get(name)
                .is_some_and(|value| values.contains(value)),
        })
    }))
}

fn values(at: &At<'_>) -> Option<Vec<HeaderValue>> {
    let values: Vec<Option<HeaderValue>> = at
        .one_or_list()
        .iter()
        .map(|at| {
            let text = at.text()?;
            let value = HeaderValue::from_str(text).ok();
            value.or_else(|| at.expected("the value of a header"))
        })
        .collect();
    values.into_iter().collect()
}

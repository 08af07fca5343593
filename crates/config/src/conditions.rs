//! Conditions on requests, for policies, costs and lists.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};

use super::functions::Condition;
use super::keys::networks;
use super::shape::{CONDITIONS, Shape, TEXTS};
use super::tree::Value;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::__internal::normal_path;
use tower_ratelimit::key::Head;

pub(super) static CONDITION: Vocabulary<Parts> = Vocabulary(&[
    setting("method")
        .says("The method is one of these.")
        .of(TEXTS, Parts::method),
    setting("path")
        .says("The path is one of these; `/api/*` is `/api` and all below it.")
        .of(TEXTS, Parts::path),
    setting("header")
        .says("The request has these headers, with one of these values, or with any if it is true.")
        .of(
            Shape::Secret(&Shape::Map(&Shape::Any(&[Shape::Flag, TEXTS]))),
            Parts::header,
        ),
    setting("address")
        .says("The address of the client is in one of these networks.")
        .of(TEXTS, Parts::address),
    setting("function")
        .says("A condition that code has registered holds.")
        .of(Shape::Text, Parts::function),
    setting("not")
        .says("This does not hold. Of a list, none holds.")
        .of(CONDITIONS, Parts::not),
]);

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
pub(super) fn any(at: &At<'_>) -> Option<Arc<Condition>> {
    any_spelt(at, Spelling::Any)
}

/// Reads a condition that exempts requests from a limit, or a list of conditions, one of which has to hold.
pub(super) fn exemption(at: &At<'_>) -> Option<Arc<Condition>> {
    any_spelt(at, Spelling::Plain)
}

fn any_spelt(at: &At<'_>, spelling: Spelling) -> Option<Arc<Condition>> {
    let list = at.each(|at| all(at, spelling))?;
    match <[_; 1]>::try_from(list) {
        Ok([only]) => Some(only),
        Err(list) if list.is_empty() => at.refuse("an empty list never holds; leave it out"),
        Err(list) => Some(Arc::new(move |head: &Head<'_>| {
            list.iter().any(|holds| holds(head))
        })),
    }
}

/// Reads a table, each field of which has to hold.
fn all(at: &At<'_>, spelling: Spelling) -> Option<Arc<Condition>> {
    let table = at.table(&CONDITION)?;
    if table.is_empty() {
        return at.refuse("an empty condition always holds; leave it out");
    }
    let mut parts = Parts::of(spelling);
    CONDITION.apply(&table, &mut parts)?;
    Some(parts.all())
}

/// The fields of a condition, each of which has to hold.
#[derive(Clone)]
pub(super) struct Parts {
    spelling: Spelling,
    conditions: Vec<Arc<Condition>>,
}

impl Parts {
    pub(super) fn of(spelling: Spelling) -> Self {
        Self {
            spelling,
            conditions: Vec::new(),
        }
    }

    fn with(mut self, condition: Arc<Condition>) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Reads `method`.
    pub(super) fn method(self, at: &At<'_>) -> Option<Self> {
        let methods = methods(at)?;
        Some(self.with(Arc::new(move |head: &Head<'_>| {
            methods.contains(head.method())
        })))
    }

    /// Reads `path`.
    pub(super) fn path(self, at: &At<'_>) -> Option<Self> {
        let (paths, spelling) = (paths(at)?, self.spelling);
        Some(self.with(Arc::new(move |head: &Head<'_>| {
            matches(&paths, head, spelling)
        })))
    }

    fn header(self, at: &At<'_>) -> Option<Self> {
        Some(self.with(headers(at)?))
    }

    fn address(self, at: &At<'_>) -> Option<Self> {
        let within = at.made(at.common().client_ip().try_within(networks(at)?))?;
        Some(self.with(Arc::new(within)))
    }

    fn function(self, at: &At<'_>) -> Option<Self> {
        Some(self.with(at.registered()?))
    }

    fn not(self, at: &At<'_>) -> Option<Self> {
        let holds = any_spelt(at, self.spelling.of_the_contrary())?;
        Some(self.with(Arc::new(move |head: &Head<'_>| !holds(head))))
    }

    pub(super) fn all(self) -> Arc<Condition> {
        match <[_; 1]>::try_from(self.conditions) {
            Ok([only]) => only,
            Err(all) => Arc::new(move |head: &Head<'_>| all.iter().all(|holds| holds(head))),
        }
    }
}

fn methods(at: &At<'_>) -> Option<Vec<Method>> {
    at.each(|at| {
        let text = at.text()?;
        let is_upper = !text.bytes().any(|byte| byte.is_ascii_lowercase());
        match text.parse() {
            Ok(method) if is_upper => Some(method),
            _ => at.refuse(format!(
                "{text:?} is not a method; write it as in a request: GET, POST"
            )),
        }
    })
}

#[derive(Debug)]
enum Path {
    Exact(String),
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
            Self::Exact(exact) => path == exact,
            Self::Below(above) => path
                .strip_prefix(above.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

fn paths(at: &At<'_>) -> Option<Vec<Path>> {
    at.each(|at| {
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
                (true, false) => Some(Path::Exact(text.to_owned())),
            }
        })
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
    at.each(|at| {
        let value = HeaderValue::from_str(at.text()?).ok();
        value.or_else(|| at.expected("the value of a header"))
    })
}

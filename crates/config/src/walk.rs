//! The walk through a tree, which collects mistakes.
//!
//! A step that finds a mistake notes it and returns `None`, and the walk continues with the next setting: a
//! user sees all mistakes of a file at once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::body_fields::{Field, OfPolicy};
use super::common::Common;
use super::functions::{Condition, Functions, Kind};
use super::integer::{Bounded, is_whole, number_meant};
use super::mistake::{Notes, SourceText};
use super::names::{briefly_unknown, nearest, unknown_beside};
use super::secret_files::{Contents, SecretFiles};
use super::shape::Fields;
use super::tree::{Entry, Node, Value, quoted};
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::quota::Quota;

/// The state that all steps of a walk share.
#[derive(Debug)]
pub(super) struct Walk<'w> {
    source: &'w SourceText,
    functions: &'w Functions,
    common: OnceCell<Common>,
    mistakes: RefCell<Notes>,
    /// With how many names those that are unknown may still be compared.
    comparisons: Cell<usize>,
    warnings: RefCell<Notes>,
    limits: RefCell<Places>,
    headers: RefCell<HashSet<HeaderName>>,
    cookies: RefCell<Vec<String>>,
    query_fields: RefCell<Vec<String>>,
    read: RefCell<ReadOfBodies>,
    contents: RefCell<Contents>,
}

/// What the file reads of bodies.
#[derive(Default)]
struct ReadOfBodies {
    /// The fields of what is being read: a policy, or what stands outside of all.
    fields: Vec<Field>,
    policies: Vec<OfPolicy>,
    /// The conditions of the lists.
    listed: Vec<Arc<Condition>>,
}

impl fmt::Debug for ReadOfBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOfBodies").finish_non_exhaustive()
    }
}

/// The pairs of names that are compared for one file. The first mistakes have a hint, however many names there are.
const MOST_COMPARED: usize = 200_000;

/// Where the limit of each policy is that a rule sets.
pub(super) type Places = HashMap<(String, LimitRule), String>;

impl<'w> Walk<'w> {
    pub(super) fn new(source: &'w SourceText, functions: &'w Functions) -> Self {
        Self {
            source,
            functions,
            common: OnceCell::new(),
            mistakes: RefCell::default(),
            comparisons: Cell::new(MOST_COMPARED),
            warnings: RefCell::default(),
            limits: RefCell::default(),
            headers: RefCell::default(),
            cookies: RefCell::default(),
            query_fields: RefCell::default(),
            read: RefCell::default(),
            contents: RefCell::default(),
        }
    }

    pub(super) fn functions(&self) -> &'w Functions {
        self.functions
    }

    /// Sets what the keys and the policies share, once it is read.
    pub(super) fn share(&self, common: Common) {
        // Nothing sets it twice.
        let _ = self.common.set(common);
    }

    /// Notes a mistake at this place.
    pub(super) fn note(&self, span: Option<&Range<usize>>, path: &str, message: String) {
        self.mistakes.borrow_mut().add(span, path, message);
    }

    /// Notes that a name in these bytes is not among those that are known. Returns the one that was probably meant.
    fn note_unknown<'k>(
        &self,
        span: Option<&Range<usize>>,
        path: &str,
        what: &str,
        name: &str,
        is_hidden: bool,
        known: &[&'k str],
    ) -> Option<&'k str> {
        let shown = (!is_hidden).then_some(name);
        // Few of many are reported, and the search for the nearest name takes long.
        if self.mistakes.borrow().are_many() {
            self.note(span, path, briefly_unknown(what, shown));
            return None;
        }
        let left = self.comparisons.get().checked_sub(known.len());
        let nearest = left.and_then(|left| {
            self.comparisons.set(left);
            nearest(name, known)
        });
        self.note(span, path, unknown_beside(nearest, what, shown, known));
        nearest
    }

    /// Returns what this file has, or why it cannot be read.
    pub(super) fn content(&self, path: PathBuf) -> Result<String, String> {
        self.contents.borrow_mut().of(path)
    }

    /// Returns the files that were read for values.
    pub(super) fn secret_files(&self) -> SecretFiles {
        self.contents.borrow().files()
    }

    /// Takes where the limits of the policies are.
    pub(super) fn take_limits(&self) -> Places {
        self.limits.take()
    }

    /// Takes the headers that the file reads, in alphabetical order.
    pub(super) fn take_headers(&self) -> Vec<HeaderName> {
        let mut headers: Vec<_> = self.headers.take().into_iter().collect();
        headers.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        headers
    }

    /// Takes the names of the cookies that the file reads.
    pub(super) fn take_cookies(&self) -> Vec<String> {
        self.cookies.take()
    }

    /// Takes the names of the query fields that the file reads.
    pub(super) fn take_query_fields(&self) -> Vec<String> {
        self.query_fields.take()
    }

    /// Notes that the file reads this field of bodies.
    pub(super) fn reads_field(&self, field: Field) {
        self.read.borrow_mut().fields.push(field);
    }

    /// Takes the fields that were noted since the last call.
    pub(super) fn take_fields(&self) -> Vec<Field> {
        std::mem::take(&mut self.read.borrow_mut().fields)
    }

    /// Notes what a policy reads of bodies.
    pub(super) fn reads_bodies(&self, of: OfPolicy) {
        self.read.borrow_mut().policies.push(of);
    }

    /// Takes what the policies read of bodies.
    pub(super) fn take_bodies(&self) -> Vec<OfPolicy> {
        std::mem::take(&mut self.read.borrow_mut().policies)
    }

    /// Notes a condition of requests that no policy decides.
    pub(super) fn lists(&self, condition: Arc<Condition>) {
        self.read.borrow_mut().listed.push(condition);
    }

    /// Takes the conditions of requests that no policy decides.
    pub(super) fn take_listed(&self) -> Vec<Arc<Condition>> {
        std::mem::take(&mut self.read.borrow_mut().listed)
    }

    /// Returns whether a mistake was noted.
    pub(super) fn is_wrong(&self) -> bool {
        !self.mistakes.borrow().is_empty()
    }

    /// Returns the mistakes, and the warnings.
    pub(super) fn end(self) -> (Notes, Notes) {
        (self.mistakes.into_inner(), self.warnings.into_inner())
    }
}

/// A value of the file, with its path.
#[derive(Clone, Debug)]
pub(super) struct At<'w> {
    pub(super) walk: &'w Walk<'w>,
    pub(super) node: &'w Node,
    path: String,
}

impl<'w> At<'w> {
    pub(super) fn root(walk: &'w Walk<'w>, node: &'w Node) -> Self {
        Self {
            walk,
            node,
            path: String::new(),
        }
    }

    /// Returns what the keys and the policies share.
    pub(super) fn common(&self) -> &'w Common {
        self.walk.common.get_or_init(Common::default)
    }

    /// Notes that this value is wrong.
    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Option<T> {
        self.walk
            .note(self.node.span.as_ref(), &self.path, message.into());
        None
    }

    /// Notes that this value has the wrong kind.
    pub(super) fn expected<T>(&self, what: &str) -> Option<T> {
        self.refuse(format!("{} is not {what}", self.shown()))
    }

    /// Returns the value as a message shows it.
    pub(super) fn shown(&self) -> String {
        self.node.shown()
    }

    pub(super) fn warn(&self, message: impl Into<String>) {
        let span = self.node.span.as_ref();
        let mut warnings = self.walk.warnings.borrow_mut();
        warnings.add(span, &self.path, message.into());
    }

    /// Returns what a constructor has made of this value, or notes its error.
    pub(super) fn made<T>(&self, made: Result<T, ConfigError>) -> Option<T> {
        match made {
            Ok(made) => Some(made),
            Err(error) if self.node.is_secret => {
                let (field, remedy) = (error.field(), error.remedy());
                self.refuse(format!(
                    "`{field}` cannot be this value, which is not shown: {remedy}"
                ))
            }
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// Notes that a rule sets the limit of a policy here.
    pub(super) fn gives(&self, policy: &str, rule: LimitRule) {
        let mut limits = self.walk.limits.borrow_mut();
        limits.insert((policy.to_owned(), rule), self.place());
    }

    /// Notes that the file reads this header, if it is one.
    pub(super) fn reads_header(&self, name: &str) {
        if let Ok(name) = name.parse() {
            self.walk.headers.borrow_mut().insert(name);
        }
    }

    /// Notes that the file reads this cookie.
    pub(super) fn reads_cookie(&self, name: &str) {
        self.reads_header("cookie");
        self.walk.cookies.borrow_mut().push(name.to_owned());
    }

    /// Notes that the file reads this field of the query.
    pub(super) fn reads_query_field(&self, name: &str) {
        self.walk.query_fields.borrow_mut().push(name.to_owned());
    }

    /// Returns where the value is, for the message about another value.
    pub(super) fn place(&self) -> String {
        match &self.node.span {
            Some(span) => format!("line {}", self.walk.source.line(span)),
            None => self.path.clone(),
        }
    }

    /// Returns the line of the value.
    pub(super) fn line(&self) -> Option<usize> {
        let span = self.node.span.as_ref();
        span.map(|span| self.walk.source.line(span))
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.node.value, Value::Table(_))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.node.value, Value::Text(_))
    }

    pub(super) fn text(&self) -> Option<&'w str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => self.expected("text; write it in quotes"),
        }
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match self.node.value {
            Value::Flag(flag) => Some(flag),
            _ => self.expected("true or false"),
        }
    }

    /// Reads a whole number that fits the type.
    pub(super) fn integer<T: TryFrom<i64> + Bounded>(&self) -> Option<T> {
        let number = match &self.node.value {
            Value::Integer(number) => *number,
            Value::Text(text) => {
                match number_meant(text, if self.node.span.is_some() { "_" } else { "" }) {
                    Some(meant) if !self.node.is_secret => {
                        let text = quoted(text);
                        return self.refuse(format!("{text} is not a whole number; write {meant}"));
                    }
                    _ => return self.expected("a whole number; write digits without quotes"),
                }
            }
            Value::Other(shown) if is_whole(shown) => {
                let most = T::MOST;
                return self.refuse(format!(
                    "{} is out of range; give a whole number from 0 to {most}",
                    self.shown()
                ));
            }
            _ => return self.expected("a whole number"),
        };
        T::try_from(number).ok().or_else(|| {
            let most = T::MOST;
            self.refuse(format!(
                "{} is out of range; give a whole number from 0 to {most}",
                self.shown()
            ))
        })
    }

    /// Reads a length of time, such as `"250ms"` or `"2s"`.
    pub(super) fn duration(&self) -> Option<Duration> {
        const REMEDY: &str = "write a length of time such as \"250ms\", \"2s\" or \"1min\"";
        let Value::Text(text) = &self.node.value else {
            return self.refuse(format!(
                "{} is not a length of time; {REMEDY}",
                self.shown()
            ));
        };
        if matches!(text.trim(), "0" | "0s" | "0ms") {
            return Some(Duration::ZERO);
        }
        // A period has the same spellings and bounds.
        match format!("1/{text}").parse::<Quota>() {
            Ok(quota) => Some(quota.period()),
            Err(_) => self.refuse(format!(
                "{} is not a length of time; {REMEDY}",
                self.shown()
            )),
        }
    }

    /// Returns a function that code has registered under this name.
    pub(super) fn registered<K: Kind>(&self) -> Option<K> {
        match self.walk.functions.find(self.text()?) {
            Ok(function) => Some(function),
            Err(message) => self.refuse(message),
        }
    }

    /// Reads one of these words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.unknown("", text, &words)
    }

    /// Notes an unknown name.
    pub(super) fn unknown<T>(&self, what: &str, name: &str, known: &[&str]) -> Option<T> {
        let node = self.node;
        let (span, is_secret) = (node.span.as_ref(), node.is_secret);
        self.walk
            .note_unknown(span, &self.path, what, name, is_secret, known);
        None
    }

    /// Notes that the name of this value is not among those that are known. Returns the one that was probably meant.
    pub(super) fn unknown_name<'k>(
        &self,
        what: &str,
        name: Name<'_>,
        known: &[&'k str],
    ) -> Option<&'k str> {
        let span = name.span.or(self.node.span.as_ref());
        self.walk
            .note_unknown(span, &self.path, what, name.text, name.is_hidden, known)
    }

    pub(super) fn list(&self) -> Option<Vec<At<'w>>> {
        let Value::List(list) = &self.node.value else {
            return self.expected("a list; write it in brackets, [ ]");
        };
        let at = list.iter().enumerate().map(|(index, node)| At {
            walk: self.walk,
            node,
            path: format!("{}[{index}]", self.path),
        });
        Some(at.collect())
    }

    /// Returns the values of a list, or this value alone.
    pub(super) fn one_or_list(&self) -> Vec<At<'w>> {
        match &self.node.value {
            Value::List(_) => self.list().unwrap_or_default(),
            _ => vec![self.clone()],
        }
    }

    /// Returns the texts of a list, or this text alone.
    pub(super) fn texts(&self) -> Option<Vec<&'w str>> {
        self.each(At::text)
    }

    /// Reads each value of a list, or this value alone. All of them are read even if one is wrong.
    pub(super) fn each<T>(&self, read: impl FnMut(&Self) -> Option<T>) -> Option<Vec<T>> {
        let each: Vec<_> = self.one_or_list().iter().map(read).collect();
        each.into_iter().collect()
    }

    /// Returns the names of a table with free names, with their values. A name that appears twice is a
    /// mistake.
    pub(super) fn entries(&self) -> Option<Vec<(Name<'w>, At<'w>)>> {
        let Value::Table(entries) = &self.node.value else {
            return self.expected("a table; write its fields in braces, { }");
        };
        let mut seen: HashSet<&str> = HashSet::new();
        let mut found = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let at = self.below(index, entry);
            let name = Name {
                text: &entry.name,
                span: entry.name_span.as_ref(),
                is_hidden: entry.hides_name,
            };
            if seen.insert(name.text) {
                found.push((name, at));
            } else {
                at.refuse_name::<()>(name, format!("{} is there twice; leave one", name.shown()));
            }
        }
        Some(found)
    }

    /// Notes that a name is wrong, at the name.
    pub(super) fn refuse_name<T>(&self, name: Name<'_>, message: impl Into<String>) -> Option<T> {
        self.walk.note(
            name.span.or(self.node.span.as_ref()),
            &self.path,
            message.into(),
        );
        None
    }

    /// Returns the fields of a table that is read elsewhere.
    pub(super) fn fields(&self) -> Vec<(&'w str, At<'w>)> {
        let Value::Table(entries) = &self.node.value else {
            return Vec::new();
        };
        let fields = entries.iter().enumerate();
        fields
            .map(|(index, entry)| (entry.name.as_str(), self.below(index, entry)))
            .collect()
    }

    /// Returns a field of a table that is read elsewhere. It looks through the table.
    pub(super) fn field(&self, field: &str) -> Option<At<'w>> {
        let Value::Table(entries) = &self.node.value else {
            return None;
        };
        let mut entries = entries.iter().enumerate();
        let (index, entry) = entries.find(|(_, entry)| entry.name == field)?;
        Some(self.below(index, entry))
    }

    /// Returns those of these fields that a table has, which is read elsewhere.
    pub(super) fn some_of(&self, fields: &[&str]) -> TableAt<'w> {
        let found = self.fields().into_iter();
        TableAt {
            at: self.clone(),
            found: found.filter(|(name, _)| fields.contains(name)).collect(),
            meant: Vec::new(),
            has_unknown: false,
        }
    }

    /// Returns a value of this table. A name that may be secret is a number in its path.
    fn below(&self, index: usize, entry: &'w Entry) -> At<'w> {
        let path = if entry.hides_name {
            format!("{}[{index}]", self.path)
        } else {
            join(&self.path, &entry.name)
        };
        At {
            walk: self.walk,
            node: &entry.node,
            path,
        }
    }

    /// Returns a table with these fields. Any other field is a mistake.
    pub(super) fn table(&self, of: &dyn Fields) -> Option<TableAt<'w>> {
        let mut table = TableAt {
            at: self.clone(),
            found: Vec::new(),
            meant: Vec::new(),
            has_unknown: false,
        };
        let entries = self.entries()?;
        let known: Vec<&str> = of.fields().iter().map(|field| field.name).collect();
        for (name, at) in entries {
            if known.contains(&name.text) {
                table.found.push((name.text, at));
            } else {
                table.meant.extend(at.unknown_name("field", name, &known));
                table.has_unknown = true;
            }
        }
        Some(table)
    }
}

/// A name in a table, with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'w> {
    pub(super) text: &'w str,
    span: Option<&'w Range<usize>>,
    is_hidden: bool,
}

impl Name<'_> {
    /// Returns the name of a policy that this place of the file declares.
    pub(super) fn called<'n>(&'n self, text: &'n str) -> Name<'n> {
        Name { text, ..*self }
    }

    /// Returns the name as a message shows it.
    pub(super) fn shown(&self) -> String {
        if self.is_hidden {
            "the name".to_owned()
        } else {
            quoted(self.text)
        }
    }
}

/// A table with known fields.
#[derive(Debug)]
pub(super) struct TableAt<'w> {
    pub(super) at: At<'w>,
    found: Vec<(&'w str, At<'w>)>,
    /// The fields that unknown ones were probably to be.
    meant: Vec<&'static str>,
    has_unknown: bool,
}

impl<'w> TableAt<'w> {
    /// Adds the fields of another table that this one does not have.
    pub(super) fn or_of(mut self, other: &Self) -> Self {
        let lacks = |name: &str| self.found.iter().all(|(own, _)| *own != name);
        let more = other.found.iter().filter(|(name, _)| lacks(name));
        let more: Vec<_> = more.cloned().collect();
        self.found.extend(more);
        self.meant.extend(&other.meant);
        self.has_unknown |= other.has_unknown;
        self
    }

    /// Leaves these fields out.
    pub(super) fn without(&self, fields: &[&str]) -> Self {
        let stays = |(name, _): &&(&str, At<'w>)| !fields.contains(name);
        Self {
            at: self.at.clone(),
            found: self.found.iter().filter(stays).cloned().collect(),
            meant: self.meant.clone(),
            has_unknown: self.has_unknown,
        }
    }

    pub(super) fn get(&self, field: &str) -> Option<&At<'w>> {
        let mut found = self.found.iter();
        found.find(|(name, _)| *name == field).map(|(_, at)| at)
    }

    /// Returns a required field.
    pub(super) fn need(&self, field: &str, remedy: impl Display) -> Option<&At<'w>> {
        if self.lacks(field) {
            return self.at.refuse(format!("`{field}` is missing; {remedy}"));
        }
        self.get(field)
    }

    /// Returns whether a field is not there, and not under a wrong name either, of which the walk has told.
    pub(super) fn lacks(&self, field: &str) -> bool {
        self.get(field).is_none() && !self.meant.contains(&field)
    }

    /// Returns whether the walk has told of a field with a wrong name.
    pub(super) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Returns whether the table has one known field.
    pub(super) fn has_one(&self) -> bool {
        self.found.len() == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty() && !self.has_unknown
    }

    /// Returns whether a field is `true`.
    pub(super) fn is_on(&self, field: &str) -> bool {
        matches!(self.get(field), Some(at) if matches!(at.node.value, Value::Flag(true)))
    }

    /// Notes a field that means nothing without another one, which is missing.
    pub(super) fn needs(&self, field: &str, other: &str, remedy: &str) {
        if let Some(at) = self.get(field).filter(|_| self.lacks(other)) {
            at.refuse::<()>(format!("`{other}` is missing; {remedy}"));
        }
    }

    /// Notes fields that contradict each other, with the places of both.
    pub(super) fn either(&self, one: &str, other: &str) {
        if let (Some(one_at), Some(other_at)) = (self.get(one), self.get(other)) {
            let place = one_at.place();
            other_at.refuse::<()>(format!(
                "`{other}` contradicts `{one}` ({place}); leave one of them"
            ));
        }
    }
}

/// Returns the path of a setting in a table.
fn join(path: &str, name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
    let is_short = (1..=64).contains(&name.len());
    let name = if is_short && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        quoted(name)
    };
    match path {
        "" => name,
        path => format!("{path}.{name}"),
    }
}

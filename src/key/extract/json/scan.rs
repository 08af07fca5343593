//! Reads a whole JSON document for the values at some paths.
//!
//! The limits have to see what the service sees, whatever the client has written. So names are compared without their escapes, a
//! document that a parser might refuse is refused, and a field that parsers might read differently is unclear: one that
//! stands twice, or under a name of another case, which Go's parser takes for the same.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::path::JsonPath;

/// The longest text that is kept.
const LONGEST_TEXT: usize = 256;

/// What stands at a path.
#[derive(Clone, Default)]
pub(super) struct Found {
    text: Option<Box<str>>,
    /// The largest, if there are several.
    number: Option<u64>,
    is_unclear: bool,
}

impl Found {
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| !self.is_unclear)
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    pub(super) fn is_unclear(&self) -> bool {
        self.is_unclear
    }

    fn add(&mut self, value: &str) {
        let text: Cow<'_, str> = match value.as_bytes().first() {
            // Each character is an escape of six bytes at most.
            Some(b'"') if value.len() > 6 * LONGEST_TEXT + 2 => {
                self.is_unclear = true;
                return;
            }
            Some(b'"') => match serde_json::from_str::<String>(value) {
                Ok(text) => text.into(),
                Err(_) => return,
            },
            // No text, and none that some service would take for one.
            Some(b'{' | b'[' | b'n') | None => return,
            Some(_) => value.into(),
        };
        if text.len() > LONGEST_TEXT {
            self.is_unclear = true;
            return;
        }
        // Some services take "12" for 12.
        self.number = self.number.max(count(&text));
        self.text = Some(text.into());
    }
}

/// Returns the number that some service takes a value for, rounded up. `None` for a negative one, and for another text.
fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit());
    is_number.then(|| whole_number(digits))?
}

/// Returns a number, rounded up. `None` for a negative one.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let number: f64 = text.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number that is too large becomes the largest, and none is negative"
    )]
    (number >= 0.0).then(|| number.ceil() as u64)
}

/// Returns what stands at each path, and the bytes of all texts. `None` if this is no JSON object.
pub(super) fn scan(body: &[u8], paths: &[&JsonPath]) -> Option<(Vec<Found>, u64)> {
    let mut scan = Scan {
        paths,
        found: vec![Found::default(); paths.len()],
        texts: 0,
    };
    let text = str::from_utf8(body).ok()?;
    let all = 1_u64
        .checked_shl(u32::try_from(paths.len()).ok()?)
        .map_or(u64::MAX, |bit| bit - 1);
    scan.object(text, 0, all)?;
    Some((scan.found, scan.texts))
}

struct Scan<'s> {
    paths: &'s [&'s JsonPath],
    found: Vec<Found>,
    texts: u64,
}

impl Scan<'_> {
    /// Reads an object, through which these paths lead. A path has eight names at most, so it does not recur deeper.
    fn object(&mut self, text: &str, level: usize, leading: u64) -> Option<()> {
        let mut document = serde_json::Deserializer::from_str(text);
        let members = Members {
            scan: self,
            level,
            leading,
        };
        document.deserialize_map(members).ok()?;
        document.end().ok()
    }

    /// Takes the value of a member with this name.
    fn value(&mut self, value: &str, level: usize, named: Named) -> Option<()> {
        let places = (0..self.paths.len()).filter(|place| named.paths >> place & 1 == 1);
        let mut leading = 0;
        for place in places {
            let is_end = self.paths.get(place)?.len() == level + 1;
            let found = self.found.get_mut(place)?;
            found.is_unclear |= named.unclear >> place & 1 == 1;
            if is_end {
                found.add(value);
            } else {
                leading |= 1 << place;
            }
        }
        if leading != 0 && value.starts_with('{') {
            return self.object(value, level + 1, leading);
        }
        let mut document = serde_json::Deserializer::from_str(value);
        Texts(&mut self.texts).deserialize(&mut document).ok()
    }
}

/// The paths on which a name stands, and those of them to which it is not clear.
#[derive(Clone, Copy)]
struct Named {
    paths: u64,
    unclear: u64,
}

struct Members<'m, 's> {
    scan: &'m mut Scan<'s>,
    level: usize,
    leading: u64,
}

impl<'de> Visitor<'de> for Members<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self {
            scan,
            level,
            leading,
        } = self;
        let mut seen = 0;
        loop {
            let name = Name {
                paths: scan.paths,
                level,
                leading,
            };
            let Some(mut named) = members.next_key_seed(name)? else {
                return Ok(());
            };
            if named.paths == 0 {
                members.next_value_seed(Texts(&mut scan.texts))?;
                continue;
            }
            named.unclear |= named.paths & seen;
            seen |= named.paths;
            let value: &RawValue = members.next_value()?;
            if scan.value(value.get(), level, named).is_none() {
                return Err(de::Error::custom("a value"));
            }
        }
    }
}

/// Finds the paths on which a name stands.
struct Name<'n> {
    paths: &'n [&'n JsonPath],
    level: usize,
    leading: u64,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Named;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Named, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Named, E> {
        let mut named = Named {
            paths: 0,
            unclear: 0,
        };
        for (place, path) in self.paths.iter().enumerate() {
            let Some(wanted) = path.name(self.level) else {
                continue;
            };
            if self.leading >> place & 1 == 1 && are_alike(name, wanted) {
                named.paths |= 1 << place;
                named.unclear |= u64::from(name != wanted) << place;
            }
        }
        Ok(named)
    }
}

/// Returns whether a parser that ignores case may take one name for the other. Go's folds two letters to those of ASCII, too.
fn are_alike(name: &str, other: &str) -> bool {
    name == other || folded(name).eq(folded(other))
}

fn folded(name: &str) -> impl Iterator<Item = char> {
    let letters = name.chars().flat_map(char::to_lowercase);
    letters.map(|letter| if letter == 'ſ' { 's' } else { letter })
}

/// Passes over a value, and counts the bytes of its texts.
struct Texts<'t>(&'t mut u64);

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        *self.0 += text.len() as u64;
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Texts(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<IgnoredAny>()?.is_some() {
            members.next_value_seed(Texts(self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scanned(body: &str, paths: &[&str]) -> Option<(Vec<Found>, u64)> {
        let paths: Vec<JsonPath> = paths.iter().map(|path| JsonPath::known(path)).collect();
        scan(body.as_bytes(), &paths.iter().collect::<Vec<_>>())
    }

    fn text(body: &str, path: &str) -> Option<String> {
        let (found, _) = scanned(body, &[path]).unwrap();
        assert_eq!(found.len(), 1);
        found[0].text().map(str::to_owned)
    }

    #[test]
    fn a_text_is_what_the_body_has_at_the_path() {
        for (body, path, expected) in [
            (r#"{"model":"small"}"#, "model", Some("small")),
            (r#" { "a" : { "b" : "x" } } "#, "a.b", Some("x")),
            (r#"{"m\u006fdel":"sm\u0061ll"}"#, "model", Some("small")),
            (r#"{"model":7,"n":8}"#, "model", Some("7")),
            (r#"{"model":true}"#, "model", Some("true")),
            (r#"{"model":null}"#, "model", None),
            (r#"{"model":{"a":1}}"#, "model", None),
            (r#"{"model":["a"]}"#, "model", None),
            (r#"{"a":{"model":"x"},"b":[{"model":"y"}]}"#, "model", None),
            (r#"{"a":[{"b":"x"}]}"#, "a.b", None),
            (r#"{"text":"\"model\":\"x\""}"#, "model", None),
            (r#"{"model":""}"#, "model", Some("")),
            ("{}", "model", None),
        ] {
            assert_eq!(text(body, path).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn a_field_that_a_service_may_read_otherwise_is_unclear() {
        for (body, path) in [
            (r#"{"model":"a","model":"a"}"#, "model"),
            (r#"{"model":"a","model":null}"#, "model"),
            (r#"{"model":"a","m\u006fdel":"b"}"#, "model"),
            (r#"{"model":"a","Model":"b"}"#, "model"),
            (r#"{"MODEL":"b"}"#, "model"),
            (r#"{"ta\u017fk":"b"}"#, "task"),
            (r#"{"to\u212aen":"b"}"#, "token"),
            (r#"{"a":{"b":"x"},"a":{}}"#, "a.b"),
            (r#"{"a":{"b":"x"},"a":1}"#, "a.b"),
            (r#"{"a":{"b":"x"},"A":{"b":"x"}}"#, "a.b"),
        ] {
            let (found, _) = scanned(body, &[path]).unwrap();
            assert!(found[0].is_unclear(), "{body}");
            assert_eq!(found[0].text(), None, "{body}");
        }
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(LONGEST_TEXT + 1));
        assert!(scanned(&long, &["model"]).unwrap().0[0].is_unclear());
        let long = format!(r#"{{"model":"{}"}}"#, "\\u0061".repeat(LONGEST_TEXT));
        assert_eq!(text(&long, "model").unwrap().len(), LONGEST_TEXT);
    }

    #[test]
    fn a_number_is_the_largest_that_a_service_may_read() {
        for (body, expected) in [
            (r#"{"n":12}"#, Some(12)),
            (r#"{"n":12.2}"#, Some(13)),
            (r#"{"n":"12"}"#, Some(12)),
            (r#"{"n":1e3}"#, Some(1_000)),
            (r#"{"n":1,"n":500,"N":7}"#, Some(500)),
            (r#"{"n":1,"N":700}"#, Some(700)),
            (r#"{"n":-5}"#, None),
            (r#"{"n":"many"}"#, None),
            (r#"{"n":null}"#, None),
            (r#"{"n":18446744073709551615}"#, Some(u64::MAX)),
            (r#"{"n":1e300}"#, Some(u64::MAX)),
        ] {
            let (found, _) = scanned(body, &["n"]).unwrap();
            assert_eq!(found[0].number(), expected, "{body}");
        }
    }

    #[test]
    fn what_is_not_one_json_object_is_not_read() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        for body in [
            "",
            "[]",
            "7",
            "{",
            r#"{"a":1"#,
            r#"{"a":1}{"a":2}"#,
            r#"{"a":1}x"#,
            r#"{"a":1,}"#,
            r#"{"a":NaN}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"b":"\ud800"}"#,
            "{\"b\":\"\n\"}",
            "\u{feff}{}",
            "{'a':1}",
            &deep,
        ] {
            assert!(scanned(body, &["a"]).is_none(), "{body}");
        }
        let wide = "{\"a\":\"x\"}".encode_utf16().flat_map(u16::to_le_bytes);
        assert!(scan(&wide.collect::<Vec<_>>(), &[]).is_none());
    }

    #[test]
    fn the_texts_are_counted_without_their_escapes_and_without_names() {
        let body =
            r#"{"model":"ab","messages":[{"role":"cd","n":12},{"t":"\u00e9\n"}],"a":{"b":"x"}}"#;
        assert_eq!(scanned(body, &["model", "a.b"]).unwrap().1, 8);
        assert_eq!(scanned(body, &[]).unwrap().1, 8);
    }

    /// A document, in which a name may stand twice.
    #[derive(Clone, Debug)]
    enum Tree {
        Leaf(String),
        List(Vec<Tree>),
        Object(Vec<(String, Tree)>),
    }

    impl Tree {
        fn any() -> impl Strategy<Value = Self> {
            let leaf = prop_oneof![
                (0_u32..2_000).prop_map(|number| number.to_string()),
                "[a-c]{0,3}".prop_map(|text| format!("{text:?}")),
            ];
            leaf.prop_map(Self::Leaf).prop_recursive(4, 32, 4, |inner| {
                prop_oneof![
                    prop::collection::vec(inner.clone(), 0..3).prop_map(Self::List),
                    Self::object(inner),
                ]
            })
        }

        fn object(of: impl Strategy<Value = Self>) -> impl Strategy<Value = Self> {
            let name = prop::sample::select(vec!["a", "b", "A", "c"]);
            let member = (name.prop_map(str::to_owned), of);
            prop::collection::vec(member, 0..4).prop_map(Self::Object)
        }

        fn write(&self, escaped: bool) -> String {
            let listed = |items: Vec<String>| items.join(" , ");
            match self {
                Self::Leaf(text) => text.clone(),
                Self::List(items) => {
                    let items = items.iter().map(|item| item.write(escaped));
                    format!("[{}]", listed(items.collect()))
                }
                Self::Object(members) => {
                    let members = members.iter().map(|(name, value)| {
                        let name = if escaped {
                            format!("\\u{:04x}", name.as_bytes()[0])
                        } else {
                            name.clone()
                        };
                        format!("\"{name}\" : {}", value.write(escaped))
                    });
                    format!("{{{}}}", listed(members.collect()))
                }
            }
        }

        /// Collects the leaves at a path, and returns whether it is clear which is meant.
        fn leaves(&self, path: &[&str], leaves: &mut Vec<String>) -> bool {
            let (Self::Object(members), [name, rest @ ..]) = (self, path) else {
                return true;
            };
            let alike = members
                .iter()
                .filter(|(its, _)| its.eq_ignore_ascii_case(name));
            let mut is_clear = alike.clone().count() <= 1;
            for (its, value) in alike {
                is_clear &= its == name;
                match value {
                    Self::Leaf(text) if rest.is_empty() => {
                        leaves.push(text.trim_matches('"').to_owned());
                    }
                    value => is_clear &= value.leaves(rest, leaves),
                }
            }
            is_clear
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_as_a_walk_through_its_tree_does(
            tree in Tree::object(Tree::any()),
            escaped in any::<bool>(),
        ) {
            let paths = ["a", "b", "a.b", "b.a.a"];
            let (found, _) = scanned(&tree.write(escaped), &paths).unwrap();
            for (path, found) in paths.iter().zip(found) {
                let names: Vec<&str> = path.split('.').collect();
                let mut leaves = Vec::new();
                let is_clear = tree.leaves(&names, &mut leaves);
                prop_assert_eq!(found.is_unclear(), !is_clear);
                let text = leaves.last().filter(|_| is_clear);
                prop_assert_eq!(found.text(), text.map(String::as_str));
                let numbers = leaves.iter().filter_map(|leaf| leaf.parse().ok());
                prop_assert_eq!(found.number(), numbers.max());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let path = JsonPath::known("a.b");
            let _ = scan(&bytes, &[&path]);
        }
    }
}

//! Structured fields (RFC 9651), read by a parser that is not ours.

use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parser};

/// A member of a list: a string with integers for parameters.
#[derive(Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    parameters: Vec<(String, u64)>,
}

impl Member {
    pub(crate) fn number(&self, parameter: &str) -> Option<u64> {
        let mut parameters = self.parameters.iter();
        let (_, number) = parameters.find(|(name, _)| name == parameter)?;
        Some(*number)
    }
}

/// Returns the members of a field in the draft's shape, which must be in its canonical form.
#[track_caller]
pub(crate) fn list(field: &str) -> Vec<Member> {
    let list: List = Parser::new(field)
        .parse()
        .unwrap_or_else(|error| panic!("{field}: {error}"));
    assert_eq!(list.serialize().as_deref(), Some(field), "not canonical");
    list.into_iter().map(member).collect()
}

#[track_caller]
fn member(entry: ListEntry) -> Member {
    let ListEntry::Item(item) = entry else {
        panic!("an inner list: {entry:?}");
    };
    let BareItem::String(name) = item.bare_item else {
        panic!("not a string: {:?}", item.bare_item);
    };
    let parameters = item.params.into_iter().map(|(name, value)| {
        let number = value.as_integer().expect("not an integer");
        (name.into(), u64::try_from(i64::from(number)).unwrap())
    });
    Member {
        name: name.into(),
        parameters: parameters.collect(),
    }
}

/// Returns a field that is one integer.
#[track_caller]
pub(crate) fn integer(field: &str) -> u64 {
    let item: Item = Parser::new(field)
        .parse()
        .unwrap_or_else(|error| panic!("{field}: {error}"));
    assert_eq!(item.serialize(), field, "not canonical");
    assert!(item.params.is_empty(), "{field}");
    number(&item.bare_item)
}

/// Quotas with their windows, as in `RateLimit-Policy` of drafts 04 to 07, where no two quotas may
/// be the same.
#[track_caller]
pub(crate) fn quotas(field: &str) -> Vec<(u64, u64)> {
    let list: List = Parser::new(field)
        .parse()
        .unwrap_or_else(|error| panic!("{field}: {error}"));
    assert_eq!(list.serialize().unwrap_or_default(), field, "not canonical");
    let quotas: Vec<_> = list
        .into_iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else {
                panic!("an inner list: {entry:?}");
            };
            let window = item.params.get("w").map(number);
            (number(&item.bare_item), window.expect("no window"))
        })
        .collect();
    for (index, (quota, window)) in quotas.iter().enumerate() {
        assert!(*window > 0, "{field}");
        let twice = quotas
            .iter()
            .skip(index + 1)
            .any(|(other, _)| other == quota);
        assert!(!twice, "{field}");
    }
    quotas
}

/// Integers with their names, as in `RateLimit` of draft 07.
#[track_caller]
pub(crate) fn dictionary(field: &str) -> Vec<(String, u64)> {
    let dictionary: Dictionary = Parser::new(field)
        .parse()
        .unwrap_or_else(|error| panic!("{field}: {error}"));
    assert_eq!(
        dictionary.serialize().as_deref(),
        Some(field),
        "not canonical"
    );
    let members = dictionary.into_iter().map(|(name, entry)| match entry {
        ListEntry::Item(item) => (name.into(), number(&item.bare_item)),
        inner @ ListEntry::InnerList(_) => panic!("an inner list: {inner:?}"),
    });
    members.collect()
}

#[track_caller]
fn number(item: &BareItem) -> u64 {
    let number = item.as_integer().expect("not an integer");
    u64::try_from(i64::from(number)).unwrap()
}

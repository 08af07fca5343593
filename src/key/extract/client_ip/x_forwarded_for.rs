//! `X-Forwarded-For`, which has no standard: addresses separated by commas, each appended by the
//! proxy that it reached.

use http::{HeaderMap, HeaderName};

use super::address::address;
use super::proxies::Element;

pub(super) const NAME: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the elements, the last one first. Several headers are one list.
pub(super) fn elements(headers: &HeaderMap) -> impl Iterator<Item = Element> {
    let lines = headers.get_all(NAME).into_iter().rev();
    let parts = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    parts.map(|part| match part.trim_ascii() {
        [] => Element::Empty,
        text => address(text).map_or(Element::Unnamed, Element::Address),
    })
}

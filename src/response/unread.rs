use bytes::Bytes;
use http::{Extensions, Response};

use super::refusals::Refusals;
use crate::key::Unread;

/// Refuses a request with these extensions, whose body has to be read and cannot be.
pub(crate) fn unread(why: Unread, request: &mut Extensions) -> Response<Bytes> {
    Refusals::unread(why, request)
}

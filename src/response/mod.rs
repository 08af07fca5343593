//! What clients are told.
//!
//! An allowed request goes on, and its response says how much is left. A denied one is answered
//! here, in place of the inner service:
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 1
//! ratelimit-policy: "default";q=10;w=2
//! ratelimit: "default";r=0;t=1
//! cache-control: no-store
//! content-type: application/problem+json
//!
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded", …}
//! ```
//!
//! - `RateLimit` and `RateLimit-Policy` have the syntax of
//!   draft-ietf-httpapi-ratelimit-headers-11. `q` is the limit (of a bucket: its size), `w` the
//!   period (of a bucket: the time in which it fills); `r` is what remains and `t` how long that
//!   has to last: to the window's end, or for a bucket `r` divided by its rate. With nothing left,
//!   `t` is the wait for the next unit; on a refusal, the wait after which the same request passes.
//! - `Retry-After` (RFC 9110) is the longest of these waits. Waits are rounded up to whole
//!   seconds and are at least 1; where no wait can help, none is sent.
//! - The body is a problem of RFC 9457 that names the policies which denied the request.
//! - `Cache-Control: no-store`, because a stored refusal would be replayed to others.
//!
//! `RateLimit-Policy` lists every policy that applied. So does `RateLimit` on success; on a refusal
//! it lists only those that denied. Fields that the inner service has sent stay, and ours stand in
//! a line of their own. A redirect (3xx other than 304) gets no fields, since a client may wait
//! before it follows, and an informational response (1xx) gets none either. When a rate limiting
//! layer inside has denied a request, its fields stand alone.
//!
//! A server that does not provide what a key is made of answers `500`, a store that fails `503`
//! with `Retry-After: 5`; neither says why, and neither is ever a `429`: it is not the client's
//! fault.
//!
//! Each refusal carries its typed reason, a [`Refusal`], in the response's extensions, so that
//! a layer outside can count it.

mod answers;
mod binding;
mod body;
mod dialect;
mod draft11;
mod fields;
mod form;
mod jitter;
mod names;
mod problem;
mod refusal;
mod set;

pub use self::body::{CustomBody, RefusalBody};
pub use self::dialect::{Dialect, Reset};
pub use self::names::EXPOSED_FIELDS;
pub use self::refusal::Refusal;

pub(crate) use self::answers::{AnswerOptions, Answers};
pub(crate) use self::fields::Fields;
pub(crate) use self::refusal::Refusals;

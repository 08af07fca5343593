//! A request as Envoy describes it.

use std::mem;
use std::net::{IpAddr, SocketAddr};

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};

use super::messages::envoy::config::core::v3::{
    Address, HeaderMap, HeaderValue as Field, SocketAddress, address, socket_address,
};
use super::messages::envoy::service::auth::v3::AttributeContext;
use super::messages::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer};
use crate::counted::Counted;
use crate::head::{Refusal, bad};
use crate::question::SentBody;

/// The most bytes of the names and values of a head, as on the listener for clients.
const LONGEST_HEAD: usize = 64 * 1024;

/// The reason why Envoy's request is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The client is to blame, so its request is refused. An error would make Envoy let it pass.
    Client(Refusal),
    /// Envoy's configuration is to blame.
    Envoy(&'static str),
}

impl From<Refusal> for Unusable {
    fn from(refusal: Refusal) -> Self {
        Self::Client(refusal)
    }
}

/// The header that Envoy adds if it sends a body: whether that is cut. It takes those of clients out.
const IS_CUT: &str = "x-envoy-auth-partial-body";

/// Returns the request, with the address of the peer among the extensions.
pub(super) fn original(
    attributes: Option<AttributeContext>,
    counted: &Counted,
) -> Result<Request<SentBody>, Unusable> {
    let attributes = attributes.unwrap_or_default();
    let http = attributes.request.and_then(|request| request.http);
    let mut original = http.ok_or(Unusable::Envoy(
        "attributes.request.http is missing: this limits requests of HTTP, so ask from a filter for HTTP",
    ))?;
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method =
        Method::from_bytes(original.method.as_bytes()).map_err(|_| bad("the method is none"))?;
    parts.uri = target(&original.path)?;
    let (text, bytes) = (
        mem::take(&mut original.body),
        mem::take(&mut original.raw_body),
    );
    fields(&mut parts, original, counted)?;
    let body = sent_body(&mut parts, if text.is_empty() { bytes } else { text });
    if let Some(peer) = attributes.source.and_then(peer) {
        parts.extensions.insert(peer);
    }
    Ok(Request::from_parts(parts, body))
}

fn sent_body(parts: &mut Parts, body: Vec<u8>) -> SentBody {
    let mut says = parts.headers.get_all(IS_CUT).iter();
    let is_cut = says.any(|says| says != "false");
    parts.headers.remove(IS_CUT);
    match body {
        begin if is_cut => SentBody::Beginning(begin),
        // Or Envoy sends none.
        none if none.is_empty() => SentBody::Nothing,
        whole => SentBody::Whole(whole),
    }
}

fn target(path: &str) -> Result<Uri, Refusal> {
    // CONNECT has none.
    let path = if path.is_empty() { "/" } else { path };
    let path = path.parse::<PathAndQuery>();
    path.map(Uri::from)
        .map_err(|_| bad("the target has no path"))
}

fn fields(parts: &mut Parts, original: HttpRequest, counted: &Counted) -> Result<(), Refusal> {
    let fields = if let Some(HeaderMap { headers }) = original.header_map {
        headers
    } else {
        let joined = original.headers.into_iter().map(|(key, value)| Field {
            key,
            value,
            raw_value: Vec::new(),
        });
        let joined: Vec<_> = joined.collect();
        if joined.iter().any(|field| may_be_two(field, counted)) {
            return Err(bad(
                "a header by which requests are counted has a comma, and may be two: set encode_raw_headers in Envoy",
            ));
        }
        joined
    };
    let mut length = 0;
    for Field {
        key,
        value,
        raw_value,
    } in fields
    {
        length += key.len() + value.len() + raw_value.len();
        if length > LONGEST_HEAD {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err((status, "the head is too large"));
        }
        // The method, the path, the scheme and the host.
        if key.starts_with(':') {
            continue;
        }
        let value = if value.is_empty() {
            HeaderValue::from_maybe_shared(raw_value)
        } else {
            HeaderValue::from_maybe_shared(value)
        };
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(key.as_bytes()), value) else {
            return Err(bad("a header field is none"));
        };
        parts.headers.append(name, value);
    }
    if !original.host.is_empty() && !parts.headers.contains_key(HOST) {
        let host = HeaderValue::from_str(&original.host).map_err(|_| bad("Host is no host"))?;
        parts.headers.insert(HOST, host);
    }
    Ok(())
}

/// Returns whether the value may be that of two fields, of which the limits would read both as one, and the upstream one.
fn may_be_two(field: &Field, counted: &Counted) -> bool {
    let name = HeaderName::from_bytes(field.key.as_bytes());
    name.is_ok_and(|name| counted.reads_one(&name)) && field.value.contains(',')
}

fn peer(peer: Peer) -> Option<SocketAddr> {
    let Some(address::Address::SocketAddress(SocketAddress {
        address,
        port_specifier,
    })) = peer.address.and_then(|Address { address }| address)
    else {
        return None;
    };
    // A link-local address may name its link: `fe80::1%eth0`.
    let address: IpAddr = address.split('%').next()?.parse().ok()?;
    let port = match port_specifier {
        Some(socket_address::PortSpecifier::PortValue(port)) => port.try_into().unwrap_or(0),
        None => 0,
    };
    Some(SocketAddr::new(address, port))
}

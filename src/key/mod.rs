//! Keys: which requests are counted together.
//!
//! A [`Key`] is a short value that a key extractor takes from a request. An extractor is one of the
//! functions of this module, or a closure over the [`Head`] of the request. [The
//! guide](crate::guide::keys) has a page on keys.
//!
//! ```
//! use tower_ratelimit::key::{self, Head, IntoKey};
//! use tower_ratelimit::{Policy, TokenBucket};
//!
//! /// The authentication layer, outside this one, puts it into the extensions of the request.
//! #[derive(Clone)]
//! struct User {
//!     id: u64,
//! }
//!
//! let user = key::extension::<User>().map(|user: &User| user.id);
//! let by_address = Policy::new("address", TokenBucket::per_second(20)).key(key::client_ip());
//! let by_user = Policy::new("user", TokenBucket::per_second(5)).key(user.and(key::method()));
//! let by_tenant = Policy::new("tenant", TokenBucket::per_second(50))
//!     .key(|head: &Head<'_>| head.header("x-tenant").map(IntoKey::into_key));
//! ```
//!
//! # The extractors
//!
//! | extractor | reads | the value is chosen by | if it is absent |
//! | --- | --- | --- | --- |
//! | [`client_ip`], [`peer_ip`] | the address | the network | the server's fault |
//! | [`extension`] | what a layer outside has put there | that layer | the server's fault, or the client's choice if it is [`optional`](Extractor::optional) |
//! | [`header`] | a header field | the client | the client's choice |
//! | [`api_key`] | the header `x-api-key` or another, hashed | the client | the client's choice |
//! | [`bearer_token`] | the token of `Authorization`, hashed | the client | the client's choice |
//! | [`cookie`] | a cookie, hashed | the client | the client's choice |
//! | [`query`] | a query parameter | the client | the client's choice |
//! | [`json`](json()) (feature `usage`) | a field of a JSON body, which a layer outside has read | the client | the client's choice, or the server's fault if no layer reads it |
//! | [`mcp_name`] (feature `usage`) | the name of an MCP tool, of its body or of the header `Mcp-Name` | the client | the client's choice |
//! | [`method`] | the method; all non-standard methods are one | the client, from ten | never absent |
//! | [`matched_path`], [`route`] (feature `axum`) | the path of the route; with the method | the client, from your routes | the client's choice if no route matches, the server's fault if the layer is not in a router |
//! | [`client_certificate`] (feature `tonic`) | the TLS certificate that a tonic server has verified | its issuer | the server's fault, or the client's choice if it is [`optional`](Extractor::optional) |
//! | [`metadata`] (feature `tonic`) | a metadata key of a call | the client | the client's choice |
//! | [`grpc_method`], [`grpc_service`] (feature `tonic`) | the called method, and its service | the client | the client's choice |
//! | [`global`] | nothing: one key for all requests | no client | never absent |
//! | [`from_fn`] | what a closure returns | depends on what it reads | as the closure returns |
//!
//! Each function returns an [`Extractor`].
//!
//! Extractors combine: [`or`](Extractor::or) takes the second if the first is absent, [`and`](Extractor::and) takes both
//! as one key, [`map`](Extractor::map) makes a key from the typed value, [`prefix`](Extractor::prefix) puts a constant
//! before it, and [`hashed`](Extractor::hashed) keeps 128 bits of a keyed hash in place of a secret value.
//!
//! # Conditions and lists
//!
//! `one_of`, and `within` for addresses, turn an extractor into a condition: for
//! [`Policy::when`](crate::Policy::when), and for the lists of a layer,
//! [`allow`](crate::middleware::RateLimitLayerBuilder::allow) and
//! [`deny`](crate::middleware::RateLimitLayerBuilder::deny).
//!
//! ```
//! use tower_ratelimit::key::{self, Head};
//! use tower_ratelimit::{Policy, TokenBucket};
//!
//! let inside = key::client_ip().within(["10.0.0.0/8", "2001:db8::/32"]);
//! let policy = Policy::new("strangers", TokenBucket::per_second(5))
//!     .key(key::client_ip())
//!     .when(move |head: &Head<'_>| !inside(head));
//! ```
//!
//! # What a client can choose
//!
//! A client chooses its headers. A policy on an unverified header alone is a bypass: a client that
//! sends a fresh value each time has a fresh quota each time. Take such a key from a verified
//! source (an [`extension`] that authentication has put there), or declare a policy on the address
//! beside it.
//!
//! # Credentials
//!
//! An API key, a token or a session's cookie lets its owner act as the client, and a store shows its
//! keys to many: to all of its users, in its backups, in its slow log. [`api_key`], [`bearer_token`] and
//! [`cookie`] keep 128 bits of a keyed hash in place of the value, and `hashed` does the same for any
//! other extractor. Nodes that share a store share the [`Secret`] too. A credential that reaches a
//! shared store in the clear is said in the log when the layer is built
//! ([`TRL015`](crate::diagnostics)).
//!
//! # A verified client, or its address
//!
//! A site that gives more to clients with an API key must not let the header alone decide: under
//! `.when(|head| head.header("x-api-key").is_none())` any made-up key escapes the strict policy.
//! Authentication verifies the API key and adds the identity of the client to the request's extensions. A
//! request without the extension was not verified, whatever the client has sent:
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, body::Body, extract::Request, middleware, middleware::Next, routing::get};
//! use tower::ServiceExt;
//! use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key, policy::OnMissingKey};
//!
//! /// Who has sent the request. Only authentication makes one.
//! #[derive(Clone)]
//! struct Customer {
//!     id: u64,
//! }
//!
//! async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
//!     let api_key = request.headers().get("x-api-key");
//!     // In place of a look into the database.
//!     if api_key.is_some_and(|api_key| api_key == "k3y-of-ann") {
//!         request.extensions_mut().insert(Customer { id: 1 });
//!     }
//!     next.run(request).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let customer = key::extension::<Customer>().optional();
//! let limit = RateLimitLayer::builder()
//!     .policy(
//!         Policy::new("customer", FixedWindow::per_day(100))
//!             .key(customer.map(|customer: &Customer| customer.id))
//!             .on_missing_key(OnMissingKey::Skip),
//!     )
//!     .policy(
//!         Policy::new("stranger", FixedWindow::per_day(1))
//!             .key(key::client_ip())
//!             .when(|head| head.extension::<Customer>().is_none()),
//!     )
//!     .build()?;
//! let app: Router = Router::new()
//!     .route("/", get(|| async {}))
//!     .layer(limit)
//!     // The last layer is the outermost: the limit knows what this has found out.
//!     .layer(middleware::from_fn(authenticate));
//!
//! let send = async |api_key: Option<&str>| {
//!     let mut request = Request::new(Body::empty());
//!     request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 1], 0)));
//!     if let Some(api_key) = api_key {
//!         request.headers_mut().insert("x-api-key", api_key.parse().unwrap());
//!     }
//!     app.clone().oneshot(request).await.unwrap().status()
//! };
//! assert_eq!(send(None).await, 200);
//! // No made-up key is a fresh quota.
//! assert_eq!(send(Some("made-up")).await, 429);
//! assert_eq!(send(Some("made-up-too")).await, 429);
//! assert_eq!(send(Some("k3y-of-ann")).await, 200);
//! assert_eq!(send(Some("k3y-of-ann")).await, 200);
//! # Ok(())
//! # }
//! ```
//!
//! Where it costs much to verify, another layer outside authentication counts all requests by address:
//! it bounds how many API keys one address can try.
//!
//! # Keys for an operator
//!
//! An operator who blocks, resets or inspects a client passes to a [`Limiter`](crate::Limiter) the key that
//! the policy's extractor makes. That is often not the value itself: the text `"203.0.113.9"` is not an
//! address, the hash of an API key is not the API key, and a key of two sources joined by `or` includes the
//! source. So use `key_of` of the same extractor:
//!
//! ```
//! use std::{net::IpAddr, time::Duration};
//!
//! use tower_ratelimit::key::{self, Extract, Head, IntoKey, Secret, Source};
//! use tower_ratelimit::{RateLimitLayer, TokenBucket};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let configured = "b2f0e6f2c6a44f6db4f3a1f9d7c0a5e8";
//! let secret = Secret::new(configured)?;
//! let client = key::api_key().hashed(&secret).or(key::client_ip());
//! let limiter = RateLimitLayer::new(client.clone(), TokenBucket::per_second(5)).limiter();
//!
//! let leaked = client.key_of(Source::First("k3y"))?;
//! limiter.block(leaked, Duration::from_secs(3_600)).await?;
//!
//! let address: IpAddr = "203.0.113.9".parse()?;
//! let inspection = limiter.inspect(client.key_of(Source::Second(address))?).await?;
//! assert_eq!(inspection.to_string(), "default: nothing of 5 used.\n");
//!
//! // A closure reads a request: make one up that is like the client's.
//! let tenant = |head: &Head<'_>| head.header("x-tenant").map(IntoKey::into_key);
//! let request = http::Request::get("/").header("x-tenant", "acme").body(())?;
//! let acme = tenant.extract(&Head::of(&request))?;
//! assert_eq!(acme, "acme".into_key());
//! # Ok(())
//! # }
//! ```
//!
//! | extractor | what `key_of` takes |
//! | --- | --- |
//! | [`client_ip`], [`peer_ip`] | the client's address, whatever proxies are trusted |
//! | [`api_key`], [`cookie`], [`header`], [`query`], [`json`](json()), [`mcp_name`] | the text of the value |
//! | [`bearer_token`] | the token, without its scheme |
//! | [`extension`] | a reference to the value |
//! | [`method`], [`matched_path`], [`grpc_method`], [`grpc_service`] | the text |
//! | [`route`] | a pair: method and path |
//! | [`client_certificate`], [`metadata`] | the bytes |
//! | [`global`] | `()` |
//! | [`and`](Extractor::and) | a pair of what both take |
//! | [`or`](Extractor::or) | a [`Source`] of what one of them takes |
//! | [`map`](Extractor::map) | what its closure takes |
//! | [`prefix`](Extractor::prefix), [`hashed`](Extractor::hashed) | what the extractor takes that they wrap |
//! | [`from_fn`] and closures | nothing: they make a key of a request by [`Extract::extract`] |
//!
//! All clients without a key are [`Key::MISSING`]. For a value that is not text, as a header may have, make
//! the key from a request too.
//!
//! # Behind a proxy
//!
//! The peer of a server behind a proxy is the proxy. The proxy tells the address of the client in a
//! header, which every client can write too. So [`client_ip`] reads no header until it is told
//! which proxies to trust and which header they maintain. The proxies have to append to that header
//! or to overwrite it.
//!
//! nginx in a network of its own, with
//! `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;`:
//!
//! ```
//! use tower_ratelimit::key::{self, Forwarding, Proxies};
//!
//! let key = key::client_ip().behind(Proxies::in_networks(["10.0.0.0/8"]), Forwarding::XForwardedFor);
//! // The same over a Unix socket, with nginx as the only proxy.
//! let key = key::client_ip().behind(Proxies::unix_socket(), Forwarding::XForwardedFor);
//! ```
//!
//! A cloud load balancer with unknown addresses. Google's global load balancer sends
//! `<what the client sent>, <client>, <load balancer>`, so the client is the second from the right.
//! A load balancer that appends the client alone is `hops(1)`:
//!
//! ```
//! use tower_ratelimit::key::{self, Forwarding, Proxies};
//!
//! let key = key::client_ip().behind(Proxies::hops(2), Forwarding::XForwardedFor);
//! ```
//!
//! Cloudflare, with the networks that it publishes:
//!
//! ```
//! use tower_ratelimit::key::{self, Forwarding, Proxies};
//!
//! # let published = "173.245.48.0/20\n2400:cb00::/32\n";
//! let cloudflare = Proxies::try_in_networks(published.lines())?;
//! let key = key::client_ip().behind(cloudflare, Forwarding::CF_CONNECTING_IP);
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```
//!
//! The crate cannot detect:
//!
//! - With [networks](Proxies::in_networks): a proxy in them that passes the header on as the client
//!   sent it. Then each client chooses its own address.
//! - With [hops](Proxies::hops): a peer that bypasses the proxies. It sends as many elements as
//!   they would, and chooses its own address. Close the server to all other peers.
//! - With a single value of a vendor: who wrote it. If a client can reach the server directly, from
//!   a trusted address, it can forge the value. Trust the networks of the vendor only, or require a
//!   client certificate from the vendor.
//! - A translator (NAT64, SIIT) whose prefix is not [given](Extractor::unwrap_ipv4): all of IPv4
//!   behind it is one IPv6 network with one quota.
//! - How clients share an IPv6 network. A home often has a /56 and a business a /48, which is 256
//!   or 65,536 quotas of a /64 each: see [`ipv6_prefix`](Extractor::ipv6_prefix) for a second, wider
//!   policy.
//!
//! # When there is no key
//!
//! - **The client left it out** (a header): all such requests share one quota. The same holds for
//!   all requests for which a closure returns `None`.
//! - **The server does not provide it** (the peer address, an [`extension`]): the answer is
//!   `500 Internal Server Error`, and the log says once which line of code is missing. So a whole
//!   site does not share one quota by accident. A closure does the same by returning
//!   [`Missing::ByServer`].
//!
//! [`on_missing_key`](crate::Policy::on_missing_key) changes both for a policy: such requests share one quota, are
//! not counted, or are refused with a status that you choose.
//!
//! If some requests have an identity and others do not, state to which requests the policy applies
//! (`.when(|head| head.extension::<User>().is_some())`), or count the others by something else:
//! `user.optional().or(key::client_ip())`. Without `optional`, `or` does not take the second key
//! when the server fails to provide the first.
//!
//! # Limits for each plan
//!
//! A key identifies the client, and a [plan](crate::plan) sets the limits of a customer: one policy and one
//! decision, with the limit of the plan of the request.

pub(crate) mod extract;

pub use tower_ratelimit_core::key::{Extracted, IntoKey, Key, KeyName, Missing, Secret};

pub use self::extract::*;
pub(crate) use self::extract::{Parts, SharedParts};

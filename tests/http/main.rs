//! The layer in HTTP services: its place, the requests that it reads, its responses, and that the responses are true.

#![cfg(all(feature = "axum", feature = "tracing"))]

#[path = "../support/mod.rs"]
mod support;

mod adaptive_concurrency;
#[cfg(feature = "ops")]
mod admin;
mod arrivals;
mod axum;
mod blocked;
mod bodies;
#[cfg(feature = "calendar")]
mod calendars;
#[cfg(feature = "client")]
mod client;
mod combinators;
mod concurrency;
mod deadlines;
mod dialect_truth;
mod dialects;
mod either_or;
mod exchange;
mod exposed;
mod extractors;
mod factors;
mod fair;
mod fields;
mod forged;
mod forwarding;
mod full_store;
mod fuzzed;
mod gone;
mod guaranteed;
mod handlers;
mod inner_fields;
mod keys;
mod leaving;
mod listed_addresses;
mod lists;
mod messages;
mod missing_key;
mod named_keys;
mod names;
mod overridden;
mod partitions;
mod plans;
mod policies;
mod priorities;
mod proxy_protocol;
mod readiness;
mod refusal_options;
mod refusals;
mod resolver;
mod scene;
mod shaping;
mod shared_caches;
mod slow_store;
mod soft;
mod soft_crowds;
mod soft_truth;
mod spacing;
mod states;
mod stepped;
mod structured;
mod tcp;
mod together;
mod traffic;
mod tree_shares;
mod tree_states;
mod trees;
mod truth;
mod unannounced;
mod unix_socket;
#[cfg(feature = "usage")]
mod usage;
mod vacancies;
mod waiting;
mod waiting_again;
mod waiting_crowds;
mod without_headers;

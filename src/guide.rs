//! The guide: one page for each subject, with examples that are tests.
//!
//! The pages are also files in the folder `docs` of the repository.

#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../docs/calendars.md")]
pub mod calendars {}

#[doc = include_str!("../docs/hours.md")]
pub mod hours {}

#[doc = include_str!("../docs/keys.md")]
pub mod keys {}

#[doc = include_str!("../docs/plans.md")]
pub mod plans {}

#[doc = include_str!("../docs/trees.md")]
pub mod trees {}

#[doc = include_str!("../docs/resolver.md")]
pub mod resolver {}

#[doc = include_str!("../docs/stability.md")]
pub mod stability {}

#[doc = include_str!("../docs/llm.md")]
pub mod llm {}

#[doc = include_str!("../docs/mcp.md")]
pub mod mcp {}

#[doc = include_str!("../docs/responses.md")]
pub mod responses {}

#[doc = include_str!("../docs/either_or.md")]
pub mod either_or {}

#[doc = include_str!("../docs/fair.md")]
pub mod fair {}

#[doc = include_str!("../docs/together.md")]
pub mod together {}

#[doc = include_str!("../docs/waiting.md")]
pub mod waiting {}

#[doc = include_str!("../docs/outcomes.md")]
pub mod outcomes {}

// The example is a test in `tests/docs.rs`, since it needs more of tonic than the crate does.
#[cfg_attr(not(doctest), doc = include_str!("../docs/grpc.md"))]
pub mod grpc {}

#[doc = include_str!("../docs/concurrency.md")]
pub mod concurrency {}

#[doc = include_str!("../docs/penalties.md")]
pub mod penalties {}

#[doc = include_str!("../docs/without-http.md")]
pub mod without_http {}

// The example is a test in `tests/docs.rs`, since it needs a client.
#[cfg_attr(not(doctest), doc = include_str!("../docs/outgoing.md"))]
pub mod outgoing {}

#[doc = include_str!("../docs/stores.md")]
pub mod stores {}

#[doc = include_str!("../docs/many-nodes.md")]
pub mod many_nodes {}

#[doc = include_str!("../docs/regions.md")]
pub mod regions {}

#[doc = include_str!("../docs/reliability.md")]
pub mod reliability {}

#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {
    #[doc = include_str!("../docs/migrating/tower-governor.md")]
    pub mod tower_governor {}

    #[doc = include_str!("../docs/migrating/axum-governor.md")]
    pub mod axum_governor {}

    #[doc = include_str!("../docs/migrating/actix.md")]
    pub mod actix {}

    #[doc = include_str!("../docs/migrating/express-rate-limit.md")]
    pub mod express_rate_limit {}

    #[doc = include_str!("../docs/migrating/bucket4j.md")]
    pub mod bucket4j {}
}

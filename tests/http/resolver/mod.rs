//! Plans of a source: what is looked up, when, and what a request gets in the meantime.
//!
//! Time is tokio's, and paused: it moves when every task waits for it, or by `advance`.

mod http;
mod invalidating;
mod limits;
mod logged;
mod lookups;
mod precedence;
mod random;
mod scene;
mod service;
mod trouble;

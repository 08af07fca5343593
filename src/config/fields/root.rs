//! The fields at the top of the file, and those of its tables that concern all policies.

use super::adapt::{ADAPT, CONCURRENCY};
use super::store::STORE;
use crate::config::responses::RESPONSES;
use crate::config::vocabulary::{Shape, Vocabulary, field};

pub(crate) static ROOT: Vocabulary<()> = Vocabulary(&[
    field(
        "$schema",
        "The address of the JSON Schema, for editors.",
        Shape::Text,
    ),
    field(
        "policies",
        "The policies, each a table under its name.",
        Shape::Map(&Shape::Named("policy")),
    ),
    field(
        "plans",
        "The plans: under the name of each, a limit for each policy that it speaks of.",
        Shape::Map(&Shape::Map(&Shape::Named("limit"))),
    ),
    field(
        "default_plan",
        "The plan of requests without a plan, and of requests with an unknown one.",
        Shape::Text,
    ),
    field(
        "plan_of",
        "How the plan of a request is found.",
        Shape::Table(&PLAN_OF),
    ),
    field(
        "resolver",
        "Looks up the plan or the limits of a request, by what code has registered.",
        Shape::Table(&RESOLVER),
    ),
    field(
        "adjustable",
        "Lets code change limits while they are in force.",
        Shape::Flag,
    ),
    field("proxies", "The trusted proxies.", Shape::Table(&PROXIES)),
    field(
        "lists",
        "Requests that no policy decides.",
        Shape::Table(&LISTS),
    ),
    field(
        "responses",
        "The responses to clients.",
        Shape::Table(&RESPONSES),
    ),
    field(
        "store",
        "The store that keeps the state; the default is this process.",
        Shape::Table(&STORE),
    ),
    field(
        "nodes",
        "Divides each limit by this number of nodes, which share no store.",
        Shape::Whole,
    ),
    field(
        "mode",
        "The mode of all policies together, which weakens theirs.",
        Shape::Word(&["enforce", "shadow", "off"]),
    ),
    field(
        "shadow",
        "The path of another file of limits, from the directory of this one. It decides beside this file on state of its own, and refuses no request.",
        Shape::Text,
    ),
    field(
        "wait_places",
        "How many requests may wait for their turn, under all policies together.",
        Shape::Whole,
    ),
    field(
        "secret",
        "Hashes keys that are credentials.",
        Shape::Named("secret"),
    ),
    field(
        "adapt",
        "What the limits of policies follow that have `adapt`.",
        Shape::Table(&ADAPT),
    ),
    field(
        "concurrency",
        "How many requests may be in flight at once, learnt from how long they take: \"adaptive\", or a table.",
        Shape::Any(&[Shape::Word(&["adaptive"]), Shape::Table(&CONCURRENCY)]),
    ),
]);

pub(crate) static PLAN_OF: Vocabulary<()> = Vocabulary(&[
    field(
        "header",
        "The plan is the value of this header.",
        Shape::Text,
    ),
    field(
        "from",
        "The networks of the gateways that set the header. It is not read from other peers.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "function",
        "The plan is what code has registered.",
        Shape::Text,
    ),
    field(
        "key",
        "The plan is that of this key in `plans`.",
        Shape::Named("key"),
    ),
    field(
        "plans",
        "The plans of keys.",
        Shape::Secret(&Shape::Map(&Shape::Text)),
    ),
]);

pub(crate) static PROXIES: Vocabulary<()> = Vocabulary(&[
    field(
        "networks",
        "The networks of the proxies.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "hops",
        "The number of proxies, in place of their networks.",
        Shape::Whole,
    ),
    field(
        "unix_socket",
        "Trusts the other end of a Unix socket.",
        Shape::Flag,
    ),
    field(
        "header",
        "The header with the address of the client: x-forwarded-for, forwarded, or the name of a header with one value.",
        Shape::Text,
    ),
]);

pub(crate) static LISTS: Vocabulary<()> = Vocabulary(&[
    field(
        "exempt_paths",
        "Paths without a limit and without headers.",
        Shape::List(&Shape::Text),
    ),
    field(
        "allow",
        "Requests without a limit and without headers.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "deny",
        "Requests that get 403.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);

pub(crate) static RESOLVER: Vocabulary<()> = Vocabulary(&[
    field(
        "function",
        "The resolver that code has registered.",
        Shape::Text,
    ),
    field(
        "capacity",
        "Of how many keys the plan is kept.",
        Shape::Whole,
    ),
    field(
        "not_found_capacity",
        "Of how many keys it is kept that they have no plan.",
        Shape::Whole,
    ),
    field("fresh_for", "How long a plan is fresh.", Shape::Duration),
    field(
        "stale_for",
        "How long a plan that is no longer fresh is served while it is refreshed.",
        Shape::Duration,
    ),
    field(
        "not_found_for",
        "How long it is fresh that a key has no plan.",
        Shape::Duration,
    ),
    field(
        "retry_after",
        "How long no lookup of a key begins after one has failed.",
        Shape::Duration,
    ),
    field(
        "timeout",
        "How long a request waits for a lookup.",
        Shape::Duration,
    ),
    field(
        "lookup_timeout",
        "How long a lookup may take.",
        Shape::Duration,
    ),
    field(
        "in_flight",
        "How many lookups may be in flight at the same time.",
        Shape::Whole,
    ),
    field(
        "refuse_unresolved",
        "Refuses a request whose plan is not known in time, and never was.",
        Shape::Flag,
    ),
]);

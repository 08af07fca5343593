//! The rule that gives the limit of a request: the first one of the table in `plan`.

use proptest::prelude::*;
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans};
use tower_ratelimit::{FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy};

use super::told;
use crate::scenarios::DAY;

/// The rules of a random configuration. Each rule has a limit of its own, so that the limit shows the rule.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any combination of rules can be there"
)]
struct Given {
    by_override: bool,
    operation: bool,
    other_operation: bool,
    closure: bool,
    key: bool,
    prefix: bool,
    other_key: bool,
    plan: bool,
    asks_named_operation: bool,
}

impl Given {
    /// Returns the table of the documentation, from the top.
    fn limit(self) -> u32 {
        let operation = self.operation || self.other_operation;
        let ranks = [
            (self.by_override, 10),
            (self.operation && self.asks_named_operation, 20),
            // A table of operations without this one has the limit of `other`, if there is one.
            (
                operation && self.other_operation && !(self.operation && self.asks_named_operation),
                30,
            ),
            (self.closure, 35),
            (self.key, 40),
            (self.prefix, 50),
            (self.other_key, 60),
            (self.plan, 70),
        ];
        let first = ranks.into_iter().find(|(is_given, _)| *is_given);
        first.map_or(80, |(_, limit)| limit)
    }

    fn limiter(self) -> LocalLimiter {
        let of = FixedWindow::per_minute;
        let mut policy = Policy::new("minute", of(80));
        if self.operation || self.other_operation {
            let name = if self.operation {
                "read"
            } else {
                "never asked"
            };
            let mut operations = Operations::new().limit(name, of(20));
            if self.other_operation {
                operations = operations.other(of(30));
            }
            policy = policy.operations(operations);
        }
        let mut limits = KeyLimits::new();
        if self.key {
            limits = limits.key("ann", of(40));
        }
        if self.prefix {
            limits = limits.prefix("a", of(50));
        }
        if self.other_key {
            limits = limits.other(of(60));
        }
        policy = policy.key_limits(limits);
        if self.closure {
            policy = policy.limit_by(move |_| Some(of(35)));
        }
        let store = MemoryStore::new().clock(ManualClock::new());
        let mut builder = Limiter::builder().policy(policy).store(store);
        if self.plan {
            let plan = Plan::new("plan").limit("minute", of(70));
            builder = builder.plans(Plans::new([plan]), |_| None::<&str>);
        }
        let limiter = builder.build_local().unwrap();
        let operation = if self.asks_named_operation {
            "read"
        } else {
            "write"
        };
        let limiter = limiter.operation(operation);
        if self.by_override {
            limiter
                .override_limit("minute", "ann", of(10), DAY)
                .unwrap()
                .now()
                .unwrap();
        }
        limiter
    }
}

proptest! {
    #[test]
    fn the_first_rule_of_the_table_gives_the_limit(flags in any::<[bool; 9]>()) {
        let [by_override, operation, other_operation, closure, key, prefix, other_key, plan, asks_named_operation] = flags;
        let given = Given {
            by_override, operation, other_operation, closure, key, prefix, other_key, plan, asks_named_operation,
        };
        let decision = given.limiter().check("ann", 1).now();
        let limit = given.limit();
        prop_assert_eq!(told(&decision), [("minute", limit, limit - 1)]);
    }
}

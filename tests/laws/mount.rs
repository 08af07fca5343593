/// Mounts every law for each algorithm, as a module of its name with one module per driver.
macro_rules! mount {
    ($($(#[$cfg:meta])? $algorithm:ident: $subject:expr;)+) => {
        /// Every algorithm, for the laws about several policies.
        const MOUNTED: &[fn(&case::Numbers) -> Subject] =
            &[$($(#[$cfg])? $algorithm::subject),+];

        $(
        $(#[$cfg])?
        mod $algorithm {
            use crate::case::Numbers;
            use crate::subject::Subject;

            const SEEDS: &str = crate::property::seeds!($algorithm);

            pub(super) fn subject(numbers: &Numbers) -> Subject {
                #[allow(clippy::wildcard_imports, reason = "the line in `mount!` is written for the root")]
                use crate::*;
                let subject: fn(&Numbers) -> Subject = $subject;
                subject(numbers)
            }

            mod step {
                crate::mount::laws!(crate::support::driver::Step);
                crate::mount::laws_of_state!();
                crate::mount::laws_of_limits!(crate::support::driver::Step);
            }

            mod memory {
                crate::mount::laws!(crate::support::driver::Memory);
                crate::mount::tests! { steadily: restart::a_restart_forgets_nothing }
                crate::mount::laws_of_a_store!(crate::support::driver::Memory);
                crate::mount::tests! { stepping_back, crate::support::driver::Memory:
                    blocks::law_8_no_wait_is_longer_than_the_block
                }
                crate::mount::laws_of_another_limit!(crate::support::driver::Memory);
                crate::mount::laws_of_limits!(crate::support::driver::Memory);
            }

            /// A layer that is built again with another limit.
            mod rebuilt {
                crate::mount::laws_of_limits!(crate::support::driver::Rebuilt);
            }

            #[cfg(feature = "redis")]
            mod redis {
                crate::mount::laws!(crate::redis::Redis);
                crate::mount::laws_of_a_store!(crate::redis::Redis);
                crate::mount::laws_of_another_limit!(crate::redis::Redis);
                crate::mount::laws_of_limits!(crate::redis::Redis);
                crate::mount::tests! { stepping_back, crate::redis::Redis:
                    blocks::law_8_no_wait_is_longer_than_the_block
                }
                crate::mount::tests! { steadily, crate::redis::Redis:
                    redis::law_6_what_a_denial_leaves_is_byte_for_byte_the_same
                    redis::every_state_dies_and_not_too_soon
                }
            }

            // A small step back counts as a clock that stands still: law 8 has its own test.
            mod shared {
                crate::mount::steady_laws!(crate::support::driver::Shared);
                crate::mount::laws_of_a_store!(crate::support::driver::Shared);
                crate::mount::laws_of_another_limit!(crate::support::driver::Shared);
                crate::mount::steady_laws_of_limits!(crate::support::driver::Shared);
            }
        }
        )+
    };
}
pub(crate) use mount;

/// Mounts the laws that a client can observe.
macro_rules! laws {
    ($driver:ty) => {
        crate::mount::steady_laws!($driver);
        crate::mount::tests! { stepping_back, $driver:
            verbs::to_peek_tells_what_a_decision_would
            verbs::laws_2_to_4_hold_after_a_settlement
            verbs::nothing_is_settled_by_0_units
            stepping_back::law_8_time_never_hurts
            stepping_back::law_8_laws_2_to_4_hold_after_a_step_back
            stepping_back::law_8_a_step_back_admits_at_most_one_limit_more
        }
    };
}
pub(crate) use laws;

/// Mounts those of them in which time goes forward.
macro_rules! steady_laws {
    ($driver:ty) => {
        crate::mount::tests! { steadily, $driver:
            laws::law_1_never_one_too_many
            laws::law_2_retry_is_tight
            laws::law_3_remaining_is_tight
            laws::law_4_reset_is_tight
            laws::law_5_idle_is_new
            laws::law_6_a_denial_charges_nothing
            laws::law_7_one_cost_one_step
            laws::law_9_the_outcome_is_the_models
            laws::the_longest_wait_is_reached
            verbs::a_refund_takes_out_what_was_admitted_last
            verbs::a_key_that_is_reset_is_new
            verbs::what_is_settled_counts
            verbs::law_5_idle_is_new_after_a_settlement
        }
    };
}
pub(crate) use steady_laws;

/// Mounts the laws about the state itself.
macro_rules! laws_of_state {
    () => {
        crate::mount::tests! { steadily:
            state::law_6_a_denial_leaves_the_state_byte_for_byte
        }
        crate::mount::tests! { stepping_back:
            state::every_number_is_exact_as_a_double
        }
    };
}
pub(crate) use laws_of_state;

/// Mounts the laws about blocks, which a store keeps beside the state.
macro_rules! laws_of_a_store {
    ($driver:ty) => {
        crate::mount::tests! { steadily, $driver:
            blocks::a_blocked_key_is_denied_and_then_as_if_it_had_not_asked
            blocks::the_wait_of_a_blocked_key_is_tight
        }
    };
}
pub(crate) use laws_of_a_store;

/// Mounts the laws about overrides.
macro_rules! laws_of_another_limit {
    ($driver:ty) => {
        crate::mount::tests_of_another_limit! { steadily_with_another, $driver:
            overriding::an_overridden_key_goes_by_its_own_limit
            overriding::law_8_the_limit_of_a_key_is_a_change_of_quota
        }
        crate::mount::tests_of_another_limit! { changing, $driver:
            overriding::law_8_no_wait_is_longer_than_the_longest_of_both
        }
    };
}
pub(crate) use laws_of_another_limit;

/// Mounts law 11, for requests with limits of their own.
macro_rules! laws_of_limits {
    ($driver:ty) => {
        crate::mount::steady_laws_of_limits!($driver);
        crate::mount::tests_of_limits! { limited, $driver:
            law_8_every_limit_moves_back_as_the_model_does
            law_8_laws_2_to_4_hold_under_the_limit_of_now
        }
    };
}
pub(crate) use laws_of_limits;

/// Mounts those of them in which time goes forward.
macro_rules! steady_laws_of_limits {
    ($driver:ty) => {
        crate::mount::tests_of_limits! { steadily_limited, $driver:
            law_11_every_limit_reads_what_is_kept_as_the_model_does
            law_11_laws_2_to_4_hold_under_the_limit_of_now
            law_11_no_change_of_limit_admits_more_than_the_highest_limit
            law_11_down_and_up_again_grants_nothing
        }
    };
}
pub(crate) use steady_laws_of_limits;

/// Mounts laws about three limits of one key.
macro_rules! tests_of_limits {
    ($cases:ident, $driver:ty: $($law:ident)+) => {$(
        #[test]
        fn $law() {
            use crate::changing::Limits;
            use crate::support::driver::Driver;

            let (price, cases) = (<$driver>::PRICE, crate::case::$cases());
            crate::property::check_at(super::SEEDS, price, cases, &|(case, numbers)| {
                let limits = Limits::new(numbers, super::subject);
                if !limits.all().all(<$driver>::takes) {
                    return Ok(());
                }
                crate::changing::$law::<$driver>(&limits, case)
            });
        }
    )+};
}
pub(crate) use tests_of_limits;

/// Mounts laws about two subjects that differ in their limit.
macro_rules! tests_of_another_limit {
    ($cases:ident, $driver:ty: $($room:ident::$law:ident)+) => {$(
        #[test]
        fn $law() {
            use crate::support::driver::Driver;

            let (price, cases) = (<$driver>::PRICE, crate::case::$cases());
            crate::property::check_at(super::SEEDS, price, cases, &|(case, another)| {
                let subjects = [&case.numbers, another].map(super::subject);
                if !subjects.iter().all(|subject| <$driver>::takes(&subject.algorithm)) {
                    return Ok(());
                }
                crate::$room::$law::<$driver>(&subjects, case)
            });
        }
    )+};
}
pub(crate) use tests_of_another_limit;

macro_rules! tests {
    ($cases:ident, $driver:ty: $($room:ident::$law:ident)+) => {
        $(
        #[test]
        fn $law() {
            use crate::support::driver::Driver;

            let price = <$driver>::PRICE;
            crate::property::check_at(super::SEEDS, price, crate::case::$cases(), &|case| {
                let subject = super::subject(&case.numbers);
                if !<$driver>::takes(&subject.algorithm) {
                    return Ok(());
                }
                crate::$room::$law::<$driver>(&subject, case)
            });
        }
        )+
    };
    ($cases:ident: $($room:ident::$law:ident)+) => {
        $(
        #[test]
        fn $law() {
            crate::property::check(super::SEEDS, crate::case::$cases(), &|case| {
                crate::$room::$law(&super::subject(&case.numbers), case)
            });
        }
        )+
    };
}
pub(crate) use tests;

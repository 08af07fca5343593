//! Finds a policy that another policy makes pointless, because the other denies everything that it would
//! deny.
//!
//! Such a policy is usually a typing error in a limit or a period. The warning must not be wrong,
//! so a policy is reported only if a bound on what the stricter one admits proves it.

use crate::algorithm::{Algorithm, Replenishment};
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::factor::Factor;
use crate::policy::Scope;

const NEVER_BINDS: Diagnostic = Diagnostic::new(
    "TRL006",
    "",
    "a policy can never deny or mark anything, since another of the same clients is at least as strict",
    "leave it out, or correct whichever of the two has a digit too few or too many",
);

const HIDDEN: Diagnostic = Diagnostic::new(
    "TRL029",
    "",
    "a policy can never deny anything, even with its factor at its floor, since another of the same clients is at least as \
     strict: limits that follow the load have no effect",
    "give the factor to the stricter policy, or lower the floor; in a file of limits: `adapt = true` of the policy, `least` under `[adapt]`",
);

/// A policy that can never bind because of another, and that other.
#[derive(Clone, Debug)]
pub struct Pointless {
    /// The plan that has both limits.
    plan: Option<String>,
    policy: String,
    beside: String,
    follows_load: bool,
}

impl Pointless {
    /// Returns each policy that can never bind because of another.
    pub(crate) fn find(policies: &[Scope<'_>]) -> Vec<Self> {
        let mut subjects = Vec::new();
        let policies = policies.get(..MOST_COMPARED).unwrap_or(policies);
        for (index, policy) in policies.iter().enumerate() {
            let by = policies.iter().enumerate().find(|(other, stricter)| {
                let first_of_equals = index < *other && is_pointless(policy, stricter);
                *other != index
                    && is_pointless(policy, stricter)
                    && !(first_of_equals && is_pointless(stricter, policy))
            });
            if let Some((_, stricter)) = by {
                subjects.push(Self {
                    plan: None,
                    policy: policy.name.to_owned(),
                    beside: stricter.name.to_owned(),
                    follows_load: policy.factor.is_some(),
                });
            }
        }
        subjects
    }

    pub(crate) fn in_plan(self, plan: &str) -> Self {
        Self {
            plan: Some(plan.to_owned()),
            ..self
        }
    }

    /// Returns the name of the plan, if both are limits of one.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the name of the stricter one.
    pub fn beside(&self) -> &str {
        &self.beside
    }

    /// Both, as a log names them.
    fn subject(&self) -> String {
        format!("policy {:?} beside {:?}", self.policy, self.beside)
    }

    /// Says it in the log.
    pub fn warn(&self) {
        let diagnostic = if self.follows_load {
            &HIDDEN
        } else {
            &NEVER_BINDS
        };
        warn_once_of(diagnostic, self.subject());
    }
}

/// The largest number of policies that are compared. A longer list comes from a program, which makes no
/// typing errors.
const MOST_COMPARED: usize = 500;

/// Returns whether `policy` is pointless beside `other`.
fn is_pointless(policy: &Scope<'_>, other: &Scope<'_>) -> bool {
    let same_requests =
        policy.counts.is_some() && policy.counts == other.counts && !other.is_conditional;
    let refuses_no_more = policy.refuses <= other.refuses
        // While the store is away, the other one may let pass what this one refuses.
        && policy.on_store_failure == other.on_store_failure;
    same_requests && refuses_no_more && !other.refuses_none && never_binds_in(policy, other)
}

/// The most that an algorithm admits: a limit in each period. The kind says how much more in a span
/// that touches two periods.
#[derive(Clone, Copy)]
struct Bound {
    kind: Kind,
    limit: u128,
    /// In microseconds; for a bucket, the time in which `per_period` drain.
    period: u128,
    per_period: u128,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// No span of one period has more than the limit.
    Sliding,
    /// Windows that begin at multiples of the period.
    Aligned,
    /// Windows that begin at any time.
    Anchored,
    Bucket,
}

impl Bound {
    /// Returns the most that the stricter algorithm may admit.
    fn above(algorithm: &Algorithm) -> Option<Self> {
        let kind = match algorithm.replenishment()? {
            // It delays requests, even where it denies none.
            _ if algorithm.shapes() => return None,
            Replenishment::Aligned | Replenishment::Sliding => Kind::Aligned,
            Replenishment::Anchored => Kind::Anchored,
            Replenishment::Log | Replenishment::Slots => Kind::Sliding,
            Replenishment::Steady => Kind::Bucket,
            // No bound is known for the others.
            _ => return None,
        };
        let limit = u128::from(algorithm.limit()?);
        let (per_period, period) = match kind {
            Kind::Bucket => (algorithm.limits()?.quota().into(), algorithm.frame().1?),
            _ => (limit, algorithm.period()?),
        };
        Some(Self {
            kind,
            limit,
            period: period.as_micros(),
            per_period,
        })
    }

    /// Returns the bound where this share of the limit is in force, counted in thousandths.
    fn times(self, factor: Factor) -> Self {
        let factor = u128::from(factor.get());
        Self {
            limit: self.limit * factor,
            per_period: self.per_period * factor,
            ..self
        }
    }

    /// Returns the span over which the possibly pointless algorithm counts. Estimates and slots
    /// reach up to twice their period back.
    fn below(algorithm: &Algorithm) -> Option<Self> {
        let bound = Self::above(algorithm).filter(|bound| bound.limit > 0)?;
        Some(match algorithm.replenishment()? {
            Replenishment::Sliding | Replenishment::Slots => Self {
                kind: Kind::Sliding,
                period: 2 * bound.period,
                ..bound
            },
            _ => bound,
        })
    }
}

/// Returns whether the lenient policy never binds beside the strict one, at the factors for which this is
/// hardest to prove.
fn never_binds_in(lenient: &Scope<'_>, strict: &Scope<'_>) -> bool {
    let least = Bound::below(lenient.algorithm).map(|bound| bound.times(lenient.least()));
    let most = Bound::above(strict.algorithm).map(|bound| bound.times(strict.most()));
    never_binds(least, most)
}

/// Returns whether `lenient` denies no request of any sequence that `strict` admits.
///
/// `true` is proved, from the most that `strict` admits in a span of any length. `false` may mean unknown.
fn never_binds(lenient: Option<Bound>, strict: Option<Bound>) -> bool {
    let (Some(lenient), Some(strict)) = (lenient, strict) else {
        return false;
    };
    let is_faster = |lenient: Bound, strict: Bound| {
        strict.per_period * lenient.period <= lenient.per_period * strict.period
    };
    match (lenient.kind, strict.kind) {
        (Kind::Bucket, Kind::Bucket | Kind::Sliding) => {
            strict.limit <= lenient.limit && is_faster(lenient, strict)
        }
        // A short span may touch two windows, and get the limit of both.
        (Kind::Bucket, Kind::Aligned | Kind::Anchored) => {
            2 * strict.limit <= lenient.limit && is_faster(lenient, strict)
        }
        (_, Kind::Bucket) => {
            strict.limit + strict.per_period * lenient.period / strict.period.max(1)
                <= lenient.limit
        }
        (_, Kind::Sliding) => strict.limit <= lenient.limit && strict.period >= lenient.period,
        (Kind::Aligned, Kind::Aligned) if strict.period.is_multiple_of(lenient.period) => {
            strict.limit <= lenient.limit
        }
        (_, Kind::Aligned | Kind::Anchored) => {
            2 * strict.limit <= lenient.limit && strict.period >= lenient.period
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::State;
    use crate::clock::Micros;
    use crate::factor::FactorCell;
    use crate::policy::OnStoreFailure;
    use crate::policy::scope::Keyless;

    fn algorithm() -> impl Strategy<Value = Algorithm> {
        let kind = prop::sample::select(vec![
            "fixed-window",
            "anchored-window",
            "sliding-window",
            "sliding-slots",
            "sliding-log",
            "token-bucket",
            "leaky-bucket",
            "token-bucket-interval",
            "gcra",
        ]);
        let period = prop::sample::select(vec![10_u32, 20, 30, 40, 60, 120]);
        (kind, 1..6_u32, period, 1..8_u32).prop_map(|(kind, limit, period, size)| {
            let size = match kind {
                "token-bucket" | "gcra" => format!(" burst {size}"),
                "leaky-bucket" => format!(" capacity {size}"),
                "sliding-slots" => " slots 5".to_owned(),
                _ => String::new(),
            };
            format!("{kind} {limit}/{period}ms{size}").parse().unwrap()
        })
    }

    fn never_binds(lenient: &Algorithm, strict: &Algorithm) -> bool {
        super::never_binds(Bound::below(lenient), Bound::above(strict))
    }

    fn pointless_pair() -> impl Strategy<Value = (Algorithm, Algorithm)> {
        let pair = (algorithm(), algorithm());
        pair.prop_filter("may bind", |(lenient, strict)| never_binds(lenient, strict))
    }

    proptest! {
        // Rejected pairs count over the whole run.
        #![proptest_config(ProptestConfig { max_local_rejects: u32::MAX, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_said_never_to_bind_denies_nothing_that_the_other_allows(
            (lenient, strict) in pointless_pair(),
            start in 0..200_u64,
            attempts in prop::collection::vec((0..15_u64, 1..3_u32), 1..80),
        ) {
            let mut states = (State::NEW, State::NEW);
            let mut now = Micros::new(1_700_000_000_000_000 + start * 1_000);
            for (pause, cost) in attempts {
                now = now.saturating_add(Micros::new(pause * 1_000));
                let (by_lenient, after_lenient) = lenient.step(states.0.clone(), now, cost);
                let (by_strict, after_strict) = strict.step(states.1.clone(), now, cost);
                prop_assert!(by_lenient.is_allowed() || !by_strict.is_allowed());
                if by_lenient.is_allowed() && by_strict.is_allowed() {
                    states = (after_lenient, after_strict);
                }
            }
        }
    }

    #[track_caller]
    fn assert_never_binds(expected: bool, lenient: &str, strict: &str) {
        let found = never_binds(&lenient.parse().unwrap(), &strict.parse().unwrap());
        assert_eq!(found, expected, "{lenient} beside {strict}");
    }

    #[test]
    fn a_policy_that_follows_the_load_is_hidden_by_one_below_its_floor_and_by_no_other() {
        let cell = FactorCell::between(Factor::thousandths(100), Factor::thousandths(2_000));
        let found_pointless = |lenient: &str, strict: &str, adaptive: [bool; 2]| {
            let algorithms = [lenient, strict].map(|text| text.parse::<Algorithm>().unwrap());
            let scope = |place: usize| Scope {
                name: ["api", "fixed"][place],
                above: None,
                algorithm: &algorithms[place],
                factor: adaptive[place].then_some(&cell),
                refuses_none: false,
                counts: Some(String::new()),
                is_conditional: false,
                refuses: Keyless::None,
                on_store_failure: OnStoreFailure::default(),
            };
            let found = Pointless::find(&[scope(0), scope(1)]);
            let found = found.into_iter();
            found
                .map(|it| (it.subject(), it.follows_load))
                .collect::<Vec<_>>()
        };
        let api = "fixed-window 100/min";
        let hidden = [(r#"policy "api" beside "fixed""#.to_owned(), true)];
        assert_eq!(
            found_pointless(api, "fixed-window 10/min", [true, false]),
            hidden
        );
        // At a tenth of its limit the policy denies requests that the other allows.
        assert_eq!(
            found_pointless(api, "fixed-window 11/min", [true, false]),
            []
        );
        // The stricter policy may grow to twice its limit.
        assert_eq!(
            found_pointless(api, "fixed-window 60/min", [false, true]),
            []
        );
        let plain = [(r#"policy "api" beside "fixed""#.to_owned(), false)];
        assert_eq!(
            found_pointless(api, "fixed-window 50/min", [false, true]),
            plain
        );
    }

    #[test]
    fn the_common_mistakes_are_found_and_what_makes_sense_is_not() {
        for kind in ["fixed-window", "sliding-log", "token-bucket", "gcra"] {
            let of = |quota: &str| format!("{kind} {quota}");
            assert_never_binds(true, &of("10/min"), &of("10/h"));
            assert_never_binds(false, &of("10/h"), &of("10/min"));
            assert_never_binds(false, &of("10/s"), &of("100/min"));
        }
        assert_never_binds(true, "fixed-window 100/min", "fixed-window 50/h");
        assert_never_binds(true, "fixed-window 1000/s", "token-bucket 10/s burst 20");
        assert_never_binds(false, "fixed-window 10/s", "fixed-window 100/min");
        assert_never_binds(true, "sliding-window 20/min", "fixed-window 10/h");
        // Ten at the end of an hour, and ten more in the next hour.
        assert_never_binds(false, "sliding-log 10/min", "fixed-window 10/h");
        assert_never_binds(false, "unlimited", "fixed-window 10/h");
        assert_never_binds(false, "fixed-window 10/h", "unlimited");
        assert_never_binds(false, "fixed-window 0/min", "fixed-window 0/h");
    }
}

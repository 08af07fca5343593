use std::cmp::Reverse;

use proptest::collection::vec;
use proptest::prelude::*;
use tower_ratelimit::{Algorithm, Decision};

use crate::MOUNTED;
use crate::case::{Case, CaseRequest, Numbers, numbers, stepping_back};
use crate::laws::{Holds, LONGEST};
use crate::property::{check, seeds};
use crate::subject::Subject;
use crate::support::driver::{Policies, Seen, micros};
use crate::support::model::{Model, decide_all};

/// Law 10: a request is charged to every policy or to none, and each policy has its own numbers, in the order of
/// declaration.
#[test]
fn law_10_all_are_charged_or_none() {
    check(seeds!(all_or_nothing), mixed(), &|mixed| {
        let mut models: Vec<Model> = mixed.subjects().iter().map(Subject::model).collect();
        mixed.play(|_, asked, decision| {
            let expected = decide_all(&mut models, asked.at, asked.cost);
            let told: Vec<Seen> = seen(decision).collect();
            prop_assert_eq!(&told, &expected, "{:?}", asked);
            let all = expected.iter().all(|policy| policy.allowed);
            prop_assert_eq!(decision.is_allowed(), all);
            let names = decision.policies().map(|(name, _)| name.parse());
            prop_assert!(names.eq((0..told.len()).map(Ok)));
            Ok(())
        })
    });
}

/// Law 10: the least remaining binds an allowed request, and the longest wait a denied one, where "never" is the
/// longest of all. Of equals, the first declared binds.
#[test]
fn law_10_the_answer_names_the_policy_that_binds() {
    check(seeds!(all_or_nothing), mixed(), &|mixed| {
        mixed.play(|_, _, decision| {
            let told: Vec<Seen> = seen(decision).collect();
            let (name, binding) = decision.binding().expect("policies were asked");
            let expected = binding_place(&told);
            prop_assert_eq!(name, expected.to_string());
            prop_assert_eq!(Seen::from(binding), told[expected]);
            let retry = decision.retry_after().map(micros);
            prop_assert_eq!(retry, told[expected].retry_after);
            Ok(())
        })
    });
}

fn binding_place(told: &[Seen]) -> usize {
    let mut binding = None;
    for (place, policy) in told.iter().enumerate() {
        let rank = match policy {
            Seen { allowed: true, .. } => (1, Reverse(u64::MAX - u64::from(policy.remaining))),
            Seen { retry_after, .. } => (0, Reverse(retry_after.unwrap_or(u64::MAX))),
        };
        if binding.is_none_or(|(least, _)| rank < least) {
            binding = Some((rank, place));
        }
    }
    binding.expect("policies were asked").1
}

/// Laws 2 and 10: the wait of the whole answer is tight.
#[test]
fn law_10_the_retry_of_the_whole_is_tight() {
    check(seeds!(all_or_nothing), mixed(), &|mixed| {
        mixed.play(|policies, CaseRequest { at, cost }, decision| {
            let allowed_after = |wait| policies.fork().decide(at + wait, cost).is_allowed();
            match decision.retry_after().map(micros) {
                None => prop_assert!(decision.is_allowed() || !allowed_after(LONGEST)),
                Some(wait) => {
                    prop_assert!(!decision.is_allowed());
                    prop_assert!(!allowed_after(wait - 1), "allowed too early");
                    prop_assert!(
                        wait == LONGEST || allowed_after(wait),
                        "denied at {wait} µs"
                    );
                }
            }
            Ok(())
        })
    });
}

/// Laws 3 and 10: as many more requests of cost 1 are allowed as the least that remains under any policy.
#[test]
fn law_10_the_remaining_of_the_whole_is_tight() {
    check(seeds!(all_or_nothing), mixed(), &|mixed| {
        mixed.play(|policies, CaseRequest { at, .. }, decision| {
            let mut policies = policies.fork();
            let least = seen(decision).map(|policy| policy.remaining).min();
            let least = least.expect("policies were asked");
            let ones = least.min(3);
            if least > ones {
                prop_assert!(policies.decide(at, least - ones).is_allowed());
            }
            for left in (0..ones).rev() {
                prop_assert!(policies.decide(at, 1).is_allowed(), "{} remain", left + 1);
            }
            prop_assert!(!policies.decide(at, 1).is_allowed());
            Ok(())
        })
    });
}

#[derive(Clone, Debug)]
struct Mixed {
    /// Its numbers are those of the first policy.
    case: Case,
    /// Indices in the list of algorithms, and numbers.
    policies: Vec<(usize, Numbers)>,
}

fn mixed() -> impl Strategy<Value = Mixed> {
    let policy = || (0..MOUNTED.len(), numbers(), any::<bool>());
    (stepping_back(), vec(policy(), 2..=3)).prop_map(|(case, policies)| {
        let first = case.numbers;
        let policies = policies.into_iter().enumerate();
        let policies = policies.map(|(place, (algorithm, mut numbers, alike))| {
            if place == 0 {
                numbers = first;
            } else if alike {
                numbers.period = first.period;
                numbers.slots = first.slots;
            }
            (algorithm, numbers)
        });
        Mixed {
            policies: policies.collect(),
            case,
        }
    })
}

fn is_queue(subject: &Subject) -> bool {
    matches!(subject.algorithm, Algorithm::LeakyQueue(_))
}

impl Mixed {
    /// Of two queues, which cannot be combined, the second is left out.
    fn subjects(&self) -> Vec<Subject> {
        let policies = self.policies.iter();
        let mut subjects: Vec<Subject> = policies
            .map(|(algorithm, numbers)| MOUNTED[*algorithm](numbers))
            .collect();
        let mut has_queue = false;
        subjects.retain(|subject| {
            let is_second = is_queue(subject) && has_queue;
            has_queue |= is_queue(subject);
            !is_second
        });
        subjects
    }

    fn play(&self, mut each: impl FnMut(&Policies, CaseRequest, &Decision) -> Holds) -> Holds {
        let subjects = self.subjects();
        let algorithms: Vec<Algorithm> = subjects.iter().map(|each| each.algorithm).collect();
        let mut policies = Policies::new(algorithms);
        let mut walk = self.case.walk();
        while let Some(asked) = walk.ask() {
            let decision = policies.decide(asked.at, asked.cost);
            let (_, binding) = decision.binding().expect("policies were asked");
            walk.told(binding.into());
            each(&policies, asked, &decision)?;
        }
        Ok(())
    }
}

fn seen(decision: &Decision) -> impl Iterator<Item = Seen> {
    decision.policies().map(|(_, outcome)| Seen::from(outcome))
}

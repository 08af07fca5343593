use std::time::Instant;

use super::numbers::Numbers;
use super::opened::OpenedPolicy;
use super::reply::ScriptReply;
use tower_ratelimit_core::__internal::{DenialCache as Cache, Sent};
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::store::Charge;

/// The denials of the servers.
pub(super) type DenialCache = Cache<Numbers>;

/// Remembers the answer that is received now, if it denies. It is told again as long as no charge by another node can
/// have made its wait longer.
pub(super) fn remember(
    denials: &DenialCache,
    (charges, policies): (&[Charge], &[OpenedPolicy]),
    (sent, now): (Sent, Instant),
    (answer, outcomes): (&ScriptReply, &Outcomes),
) {
    // A charge of cost 0 is answered and not denied, except where nothing can pass.
    if answer.is_allowed()
        || answer.is_to_be_asked_again(policies)
        || charges.iter().all(|charge| charge.cost == 0)
    {
        return;
    }
    let wait = answer.wait(outcomes);
    let known = charges.iter().filter_map(|charge| {
        let reply = answer.of(charge.policy)?;
        Some(reply.outlasts(wait, policies.get(charge.policy)?))
    });
    let sent = sent.at_most(known.min().unwrap_or_default().to_duration());
    let Some(lasts) = sent.lasts(wait, now) else {
        return;
    };
    let numbers = charges.iter().map(|charge| {
        let reply = answer.of(charge.policy)?;
        let numbers = Numbers::of(reply, policies.get(charge.policy)?, lasts.wait.into());
        Some((numbers, reply.denies()))
    });
    // A server that has one of the keys may not have answered.
    if let Some(numbers) = numbers.collect::<Option<Vec<_>>>() {
        denials.remember(charges, sent, (answer.at(), lasts), numbers);
    }
}

#[cfg(test)]
mod exact_tests;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use tower_ratelimit_core::__internal::KeyEpochs;
    use tower_ratelimit_core::algorithm::{AnchoredWindow, State};
    use tower_ratelimit_core::clock::Micros;
    use tower_ratelimit_core::key::IntoKey;

    fn policies() -> [OpenedPolicy; 2] {
        [(); 2].map(|()| OpenedPolicy::of(AnchoredWindow::per_day(1).into()))
    }

    fn denied(charges: &[Charge]) -> ScriptReply {
        ScriptReply::denied(charges, Micros::new(1_704_067_200_000_000), &State::NEW)
    }

    /// As when a part of a cluster goes away during a call: the next answer may include the others.
    #[test]
    fn an_answer_that_leaves_a_policy_out_is_not_remembered() {
        let epochs = Arc::new(KeyEpochs::default());
        let denials = DenialCache::new(Duration::from_secs(60), epochs);
        let (key, policies) = (7_u32.into_key(), policies());
        let both = [Charge::new(0, key, 1), Charge::new(1, key, 1)];
        let is_remembered = |answer: &ScriptReply| {
            let sent = denials.send(&both, Instant::now());
            let reply = (answer, &answer.outcomes(&policies));
            remember(&denials, (&both, &policies), (sent, Instant::now()), reply);
            let mut outcomes = Outcomes::new(Micros::ZERO);
            denials.replay((&both, &policies), Instant::now(), false, &mut outcomes)
        };
        assert!(!is_remembered(&denied(&both[..1])));
        assert!(is_remembered(&denied(&both)));
    }
}

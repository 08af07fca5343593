//! The law of groups of which one policy pays for a request.
//!
//! No answer of a backend names a member that is left alone, so the questions go through a limiter, and the reference is a number
//! of used units for each policy.

use super::random::Random;
use super::{Broken, Stage};
use tower_ratelimit_core::__internal::Sealed;
use tower_ratelimit_core::algorithm::AnchoredWindow;
use tower_ratelimit_core::error::{ConfigError, StoreError};
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::limiter::Limiter;
use tower_ratelimit_core::policy::Policy;
use tower_ratelimit_core::store::{Payers, Store};

pub(super) const PAYERS: &str =
    "of several policies the first that has room is charged, and the others are left alone";

/// Three members, and a policy that is always charged. No window of a day ends while the test runs.
const LIMITS: [(&str, u32); 4] = [("plan", 4), ("credits", 6), ("pool", 3), ("always", 11)];
const MEMBERS: usize = 3;
const ALWAYS: usize = 3;

const STEPS: u32 = 16;

pub(super) async fn one_pays<S: Store>(stage: &Stage<S>) -> Result<(), Broken> {
    if matches!(stage.store.chooses_payers(), Payers::None(_)) {
        return Ok(());
    }
    let policies = LIMITS.map(|(name, limit)| {
        let name = format!("conformance-{name}");
        Policy::new(name, AnchoredWindow::per_day(limit))
    });
    let names = policies.each_ref().map(|policy| policy.name().to_owned());
    let limiter = Limiter::builder()
        .policies(policies)
        .first_of("group", names.iter().take(MEMBERS))
        .store(Lent(&stage.store))
        .build()
        .map_err(|error| Broken::refused(PAYERS, &error))?;
    let mut random = Random::new(stage.run);
    for key in stage.keys("payers", 8) {
        let mut used = [0; LIMITS.len()];
        let mut past = String::new();
        for _ in 0..STEPS {
            let cost = 1 + u32::try_from(random.below(4)).unwrap_or(0);
            let takes = random.below(4) == 0;
            let verb = if takes { "take" } else { "charge" };
            past = format!("{past}{verb} {cost}; ");
            let (units, payer) = if takes {
                take(&used, cost)
            } else {
                charge(&used, cost)
            };
            let told = ask(&limiter, key, cost, takes).await;
            let (told_units, told_payer) = told.map_err(|error| Broken::failed(PAYERS, &error))?;
            let payer_name = payer.and_then(|payer| names.get(payer));
            if (told_units, told_payer.as_ref()) != (units, payer_name) {
                let seen = format!(
                    "{told_units} units by {told_payer:?}, and not {units} by {payer_name:?}; {past}"
                );
                return Err(Broken::new(PAYERS, seen));
            }
            for policy in payer.into_iter().chain(payer.map(|_| ALWAYS)) {
                used[policy] += units;
            }
            let inspection = limiter.inspect(key).await;
            let inspection = inspection.map_err(|error| Broken::failed(PAYERS, &error))?;
            let counted: Vec<u32> = inspection.policies().map(|(_, it)| it.used()).collect();
            if counted != used {
                let seen = format!("{counted:?} are used, and not {used:?}; {past}");
                return Err(Broken::new(PAYERS, seen));
            }
        }
    }
    Ok(())
}

/// Asks for so many units. Returns how many are charged, and who pays.
async fn ask(
    limiter: &Limiter,
    key: Key,
    cost: u32,
    takes: bool,
) -> Result<(u32, Option<String>), StoreError> {
    let (units, decision) = if takes {
        limiter.acquire_up_to(key, cost).await?
    } else {
        let decision = limiter.check(key, cost).await?;
        (if decision.is_allowed() { cost } else { 0 }, decision)
    };
    Ok((units, decision.payer("group").map(str::to_owned)))
}

/// Returns how many units are left of each policy.
fn left(used: &[u32; LIMITS.len()]) -> [u32; LIMITS.len()] {
    let mut left = LIMITS.map(|(_, limit)| limit);
    for (left, used) in left.iter_mut().zip(used) {
        *left -= used;
    }
    left
}

/// Returns the units that are charged, and the member that pays.
fn charge(used: &[u32; LIMITS.len()], cost: u32) -> (u32, Option<usize>) {
    let left = left(used);
    let payer = (0..MEMBERS).find(|member| left[*member] >= cost);
    match payer.filter(|_| left[ALWAYS] >= cost) {
        Some(payer) => (cost, Some(payer)),
        None => (0, None),
    }
}

/// The same, of as many units as there are.
fn take(used: &[u32; LIMITS.len()], most: u32) -> (u32, Option<usize>) {
    let left = left(used);
    let payer = (0..MEMBERS).find(|member| left[*member] > 0);
    match payer.filter(|_| left[ALWAYS] > 0) {
        Some(payer) => (most.min(left[payer]).min(left[ALWAYS]), Some(payer)),
        None => (0, None),
    }
}

/// The store under test, for a limiter that does nothing in its place while it is away.
struct Lent<'s, S>(&'s S);

impl<S: Store> Sealed for Lent<'_, S> {}

impl<S: Store> Store for Lent<'_, S> {
    type Backend = S::Backend;

    fn open(&self, policies: &[Policy]) -> Result<S::Backend, ConfigError> {
        self.0.open(policies)
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    fn chooses_payers(&self) -> Payers {
        self.0.chooses_payers()
    }

    fn availability(&self) -> Option<tower_ratelimit_core::store::Availability> {
        None
    }
}

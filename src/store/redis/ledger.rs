use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::answer::Answer;
use super::denials::{Changes, Denials};
use super::failure::{failure, interrupted};
use super::link::Link;
use super::script::{Call, Script};
use super::shared_call::{Question, SharedCalls};
use crate::algorithm::{Algorithm, Lua};
#[cfg(feature = "testing")]
use crate::clock::Clock;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{Key, KeyName};
use crate::store::{Charge, Ledger, Reply};

/// A [`RedisStore`](super::RedisStore) opened for a list of policies.
pub struct RedisLedger(Arc<Opened>);

/// What a call needs of the ledger.
pub(super) struct Opened {
    pub(super) link: Arc<Link>,
    pub(super) policies: Box<[Counted]>,
    pub(super) prefix: Arc<str>,
    pub(super) denials: Option<Denials>,
    pub(super) changes: Arc<Changes>,
    pub(super) charge: SharedCalls,
    pub(super) amend: Script,
    #[cfg(feature = "testing")]
    pub(super) clock: Option<Arc<dyn Clock>>,
}

/// A policy: its algorithm, and how the keys of its states end.
pub(super) struct Counted {
    pub(super) algorithm: Algorithm,
    pub(super) lua: Option<Lua>,
    pub(super) suffix: String,
}

/// What a request is asked for.
#[derive(Clone, Copy)]
enum Purpose {
    Charge,
    Peek,
    /// To tell how each policy stands with a request that is denied elsewhere.
    Deny,
}

/// What is changed of a key.
#[derive(Clone, Copy)]
enum Amendment {
    Refund,
    Settle,
    Reset,
    Block(Micros),
    Unblock,
    GiveBack(Micros),
    /// The numbers, and for how long.
    Override([u64; 4], Micros),
    EndOverride,
}

pub(super) type Charges = SmallVec<[Charge; 4]>;

impl Opened {
    /// Decides about charges that may be of several keys. Where these may live on several servers, one
    /// is asked after the other, and what was taken is given back when a later one denies.
    async fn decide(self: &Arc<Self>, charges: &[Charge]) -> Result<Answer, StoreError> {
        let groups = self.groups(charges);
        if let [group] = &*groups {
            return self.ask(group, Purpose::Charge).await;
        }
        // To its end, also if nobody waits for it any more: what was taken has to be given back.
        let opened = Arc::clone(self);
        let decided = tokio::spawn(async move { opened.decide_apart(&groups).await });
        decided.await.unwrap_or_else(|_| Err(interrupted()))
    }

    async fn decide_apart(&self, groups: &[Charges]) -> Result<Answer, StoreError> {
        let mut together = Answer::none();
        for (index, group) in groups.iter().enumerate() {
            match self.ask(group, Purpose::Charge).await {
                Ok(answer) if answer.is_allowed() => together.add(answer),
                answer => {
                    let taken = together.charged();
                    // Whether that is done or not, the request is denied.
                    let _ = self.change_each(&taken, Amendment::Refund).await;
                    let mut denied = answer?;
                    let others = groups[..index].iter().chain(&groups[index + 1..]);
                    for group in others {
                        if let Ok(other) = self.ask(group, Purpose::Deny).await {
                            denied.add(other);
                        }
                    }
                    return Ok(denied);
                }
            }
        }
        Ok(together)
    }

    /// Those that one script can see: of one key, or all if there is one server.
    fn groups(&self, charges: &[Charge]) -> SmallVec<[Charges; 1]> {
        let mut groups: SmallVec<[Charges; 1]> = SmallVec::new();
        for charge in charges {
            let is_together =
                |group: &&mut Charges| !self.link.is_divided() || group[0].key == charge.key;
            match groups.iter_mut().find(is_together) {
                Some(group) => group.push(*charge),
                None => groups.push(Charges::from_slice(&[*charge])),
            }
        }
        groups
    }

    async fn ask(&self, charges: &Charges, purpose: Purpose) -> Result<Answer, StoreError> {
        #[cfg(feature = "testing")]
        let moment = self.clock.as_ref().map(Clock::now);
        #[cfg(not(feature = "testing"))]
        let moment = None;
        let verb = match purpose {
            Purpose::Charge => "charge",
            Purpose::Peek => "peek",
            Purpose::Deny => "deny",
        };
        let mut question = Question::new(verb, moment);
        let mut names = Names::default();
        for charge in charges {
            if let Some(policy) = self.policies.get(charge.policy) {
                let key = names.name(&self.prefix, &charge.key, &policy.suffix);
                question.charge(key, charge);
            }
        }
        let value = self.charge.run(question, self.link.deadline()).await;
        let value = value.map_err(failure)?;
        Answer::read(value, charges)
    }

    async fn peek(&self, charges: &[Charge]) -> Result<Answer, StoreError> {
        let groups = self.groups(charges);
        let mut answers: SmallVec<[Answer; 1]> = SmallVec::new();
        for group in &groups {
            answers.push(self.ask(group, Purpose::Peek).await?);
        }
        let is_denied = !answers.iter().all(Answer::is_allowed);
        let mut together = Answer::none();
        for (group, answer) in groups.iter().zip(answers) {
            // It has told how it would stand if the others allowed it.
            let is_told_anew = is_denied && answer.is_allowed();
            together.add(if is_told_anew {
                self.ask(group, Purpose::Deny).await?
            } else {
                answer
            });
        }
        Ok(together)
    }

    async fn change(&self, charges: &[Charge], amendment: Amendment) -> Result<(), StoreError> {
        let mut call = self.call(match amendment {
            Amendment::Refund => "refund",
            Amendment::Settle => "settle",
            Amendment::Reset => "reset",
            Amendment::Block(_) => "block",
            Amendment::Unblock => "unblock",
            Amendment::GiveBack(_) => "give back",
            Amendment::Override(..) => "override",
            Amendment::EndOverride => "end override",
        });
        let mut names = Names::default();
        for charge in charges {
            let (amount, moment) = match amendment {
                Amendment::Block(length) | Amendment::Override(_, length) => {
                    (length.min(Micros::LONGEST).get(), 0)
                }
                Amendment::GiveBack(departure) => (charge.cost.into(), departure.get()),
                _ => (charge.cost.into(), 0),
            };
            self.put(&mut call, &mut names, charge, amount, moment);
        }
        if let Amendment::Override(numbers, _) = amendment {
            for number in numbers {
                call.argument(number);
            }
        }
        let answer = self
            .amend
            .run(&self.link, &call, self.link.deadline())
            .await;
        answer.map(drop).map_err(failure)
    }

    async fn change_each(
        &self,
        charges: &[Charge],
        amendment: Amendment,
    ) -> Result<(), StoreError> {
        self.changes.add(charges);
        // Somebody may be denied in between, and whatever comes of this it may have been done.
        let _forgetting = Forgetting(self, charges);
        let mut changed = Ok(());
        for group in self.groups(charges) {
            // That one server fails is no reason to leave out those of the others.
            changed = changed.and(self.change(&group, amendment).await);
        }
        changed
    }

    fn counts(&self, charge: &Charge) -> bool {
        let policy = self.policies.get(charge.policy);
        policy.is_some_and(|policy| policy.lua.is_some())
    }

    fn call(&self, verb: &str) -> Call {
        let mut call = Call::default();
        #[cfg(feature = "testing")]
        match &self.clock {
            Some(clock) => call.argument(clock.now().get()),
            None => call.argument(""),
        }
        #[cfg(not(feature = "testing"))]
        call.argument("");
        call.argument(verb);
        call
    }

    /// Adds a charge to a call.
    fn put(&self, call: &mut Call, names: &mut Names, charge: &Charge, amount: u64, more: u64) {
        let Some(policy) = self.policies.get(charge.policy) else {
            return;
        };
        let Some(Lua { name, numbers, .. }) = policy.lua else {
            return;
        };
        call.key(names.name(&self.prefix, &charge.key, &policy.suffix));
        call.argument(name);
        for number in [amount, more].into_iter().chain(numbers) {
            call.argument(number);
        }
    }
}

/// Forgets the denials of these keys in the end.
struct Forgetting<'a>(&'a Opened, &'a [Charge]);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.0.changes.add(self.1);
    }
}

/// The name of the key that was named last: most charges are of one.
#[derive(Default)]
struct Names(Option<(Key, KeyName)>);

impl Names {
    fn name(&mut self, prefix: &str, key: &Key, suffix: &str) -> String {
        let name = match &self.0 {
            Some((named, name)) if named == key => name,
            _ => &self.0.insert((*key, key.name())).1,
        };
        super::state_key(prefix, name, suffix)
    }
}

impl RedisLedger {
    pub(super) fn new(opened: Opened) -> Self {
        Self(Arc::new(opened))
    }

    /// Asks about these charges, if all are of policies that were opened and have a limit; of others
    /// nothing is told.
    fn ask(&self, charges: &[Charge], purpose: Purpose) -> Reply<Result<Outcomes, StoreError>> {
        let opened = &self.0;
        if !charges.iter().all(|charge| opened.counts(charge)) || charges.is_empty() {
            return Reply::Now(Ok(Outcomes::new(Micros::ZERO)));
        }
        let denials = opened.denials.as_ref();
        let denials = denials.filter(|_| matches!(purpose, Purpose::Charge));
        if let Some(denials) = denials
            && let Some(denied) = denials.find(charges, &opened.policies, Instant::now())
        {
            return Reply::Now(Ok(denied));
        }
        let question = denials.map(|denials| denials.put(charges, Instant::now()));
        let (opened, charges) = (Arc::clone(opened), Charges::from_slice(charges));
        Reply::later(async move {
            let answer = match purpose {
                Purpose::Charge => Opened::decide(&opened, &charges).await?,
                _ => opened.peek(&charges).await?,
            };
            if let Some(denials) = &opened.denials
                && answer.is_allowed()
            {
                match purpose {
                    // What is remembered of other costs tells numbers that are not true any more.
                    Purpose::Charge => opened.changes.add(&charges),
                    _ => denials.forget(&charges),
                }
            }
            let outcomes = answer.outcomes(&opened.policies, Micros::ZERO);
            if let (Some(denials), Some(question)) = (&opened.denials, question) {
                let now = Instant::now();
                denials.remember((&charges, question), (&answer, &outcomes), now);
            }
            Ok(outcomes)
        })
    }

    fn change(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<(), StoreError>> {
        let opened = Arc::clone(&self.0);
        let charges = charges.iter().filter(|charge| opened.counts(charge));
        let charges: Charges = charges.copied().collect();
        if charges.is_empty() {
            return Reply::Now(Ok(()));
        }
        Reply::later(async move { opened.change_each(&charges, amendment).await })
    }
}

impl Ledger for RedisLedger {
    fn charge(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ask(charges, Purpose::Charge)
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.ask(charges, Purpose::Peek)
    }

    fn refund(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Refund)
    }

    fn settle(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Settle)
    }

    fn reset(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Reset)
    }

    fn block(&self, charges: &[Charge], length: Micros) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Block(length))
    }

    fn unblock(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::Unblock)
    }

    fn override_limit(
        &self,
        charge: &Charge,
        limit: &Algorithm,
        length: Micros,
    ) -> Reply<Result<(), StoreError>> {
        match limit.lua() {
            Some(Lua { numbers, .. }) => {
                self.change(&[*charge], Amendment::Override(numbers, length))
            }
            None => Reply::Now(Err(StoreError::new(StoreErrorKind::Unsupported))),
        }
    }

    fn end_override(&self, charges: &[Charge]) -> Reply<Result<(), StoreError>> {
        self.change(charges, Amendment::EndOverride)
    }

    fn give_back(&self, charge: &Charge, departure: Micros) -> Reply<Result<(), StoreError>> {
        self.change(&[*charge], Amendment::GiveBack(departure))
    }
}

impl fmt::Debug for RedisLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLedger")
            .field("link", &self.0.link)
            .finish_non_exhaustive()
    }
}

//! Joins simultaneous requests into one call of the script.
//!
//! Starting a call costs a server nearly as much as deciding a request, so a server decides more requests when
//! they share calls.

use std::collections::VecDeque;
use std::fmt;
use std::iter::once;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::failure::{failure, failure_of};
use super::lease::{Ask, Terms};
use super::link::Link;
use super::query::{LEASE, Own, PolicyRule, Query, Rule, rules_of};
use super::script::{Call, Script};
use crate::algorithm::Lua;
use crate::clock::Micros;
use crate::key::Key;
use crate::store::outage::{Watch, late};

/// Runs the script that decides requests. On one server, simultaneous requests share a call: a server takes
/// nearly as long to start a call as to decide a request.
///
/// No request waits for time to pass. While few calls are under way, a request starts one, which includes all
/// requests that have come by the time its task runs. The others wait until a call is answered, or until
/// there are enough of them to fill a call.
pub(super) struct Batcher(Arc<Shared>);

struct Shared {
    script: Script,
    lender: Option<Lender>,
    /// The algorithm of each policy, its rule, and its penalty.
    rules: Box<[PolicyRule]>,
    link: Arc<Link>,
    watch: Arc<Watch>,
    gathered: Mutex<Gathered>,
    /// Whether the server has reported that it takes keys of one slot only.
    is_sliced: AtomicBool,
}

/// The script that also grants units, and the terms of each policy whose units are leased.
pub(super) struct Lender {
    script: Script,
    terms: Box<[Option<Terms>]>,
}

/// Requests that are not part of a call yet.
#[derive(Debug, Default)]
struct Gathered {
    waiting: VecDeque<Waiting>,
    /// The number of calls that have been started and are not over.
    under_way: usize,
    /// The number of these calls that do not include any request yet.
    starting: usize,
}

#[derive(Debug)]
struct Waiting {
    query: Query,
    until: Instant,
    answer: oneshot::Sender<RedisResult<Value>>,
}

/// A call that was started. It is a task of its own, so that a request that gives up, or is not polled, does
/// not delay the others.
struct UnderWay {
    shared: Arc<Shared>,
    /// Whether another call is being written at this moment.
    is_behind: bool,
    has_begun: bool,
}

/// While this many calls are under way, the next call has to be full or to wait. With fewer, a request on a
/// busy node waits longer: for a good part of a round trip. With more, a runtime of several threads shares
/// less.
const FEW: usize = 8;

/// The number of requests in a call at most. Beyond that, sharing saves the server nothing.
const MOST_REQUESTS: usize = 32;

/// The number of charges in a call of several requests at most: other clients of the server wait meanwhile.
const MOST_CHARGES: usize = 128;

impl Lender {
    pub(super) fn new(rules: &[PolicyRule], terms: Box<[Option<Terms>]>) -> Self {
        let lent = rules
            .iter()
            .zip(&terms)
            .filter(|(_, terms)| terms.is_some());
        let lent: Vec<Lua> = lent.filter_map(|((_, rule, _), _)| *rule).collect();
        Self {
            script: Script::of(&lent, include_str!("lease/lease.lua")),
            terms,
        }
    }
}

impl Batcher {
    pub(super) fn new(
        rules: Box<[PolicyRule]>,
        lender: Option<Lender>,
        link: Arc<Link>,
        watch: Arc<Watch>,
    ) -> Self {
        let those: Vec<Lua> = rules.iter().filter_map(|(_, rule, _)| *rule).collect();
        Self(Arc::new(Shared {
            script: Script::of(&those, include_str!("charge.lua")),
            lender,
            rules,
            link,
            watch,
            gathered: Mutex::default(),
            is_sliced: AtomicBool::new(false),
        }))
    }

    /// Sends this query, and waits until `until` for the answer of the script.
    pub(super) async fn run(&self, query: Query, until: Instant) -> RedisResult<Value> {
        let Self(shared) = self;
        if shared.link.is_divided() || shared.is_sliced.load(Ordering::Relaxed) {
            let asked = Arc::clone(shared);
            let key = query.key;
            let asked = async move { asked.ask_alone(&query, until).await };
            return shared.link.run((&shared.watch, &key), 1, asked).await?;
        }
        let key = query.key;
        let (answer, told) = oneshot::channel();
        let begun = shared.link.background.begun();
        shared.gathered().waiting.push_back(Waiting {
            query,
            until,
            answer,
        });
        // The call includes the requests of the same moment. If this request is not polled any more, the next one
        // starts the call.
        yield_now().await;
        shared.start_behind_others();
        match shared.link.wait(1, told).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(ended())),
            Err(late) => {
                shared.gave_up(&key, begun);
                Err(late)
            }
        }
    }
}

impl Shared {
    /// Counts a failure if a call could have begun and no task has, while a request waited that has given up: the store's thread
    /// is stuck, and sees none itself.
    fn gave_up(&self, key: &Key, begun: u64) {
        let is_starting = self.gathered().starting > 0;
        if is_starting && self.link.background.begun() == begun {
            self.watch.waiting(key).end(Some(&late()));
        }
    }

    fn start_behind_others(self: &Arc<Self>) {
        let gathered = self.gathered();
        let is_behind = gathered.starting > 0;
        self.start(gathered, is_behind);
    }

    /// Starts a call for the waiting requests, if it is time to.
    fn start(self: &Arc<Self>, mut gathered: MutexGuard<'_, Gathered>, is_behind: bool) {
        if !gathered.is_time_for_a_call() {
            return;
        }
        gathered.under_way += 1;
        gathered.starting += 1;
        drop(gathered);
        let call = UnderWay {
            shared: Arc::clone(self),
            is_behind,
            has_begun: false,
        };
        // Boxed, because the runtime moves the future of a task several times.
        // Without a thread the call is dropped, and with it the requests are told.
        let _ = self.link.background.spawn(Box::pin(call.make()));
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call for all of these.
    async fn ask<'a>(
        &self,
        queries: impl Iterator<Item = &'a Query> + Clone,
        until: Instant,
    ) -> RedisResult<Value> {
        let first = queries.clone().next();
        if let Some(lender) = &self.lender
            && first.is_some_and(|first| first.kind.verb == LEASE)
        {
            let call = self.call_of_leases(lender, queries);
            return lender.script.run(&self.link, &call, until).await;
        }
        let call = self.call(queries);
        self.script.run(&self.link, &call, until).await
    }

    async fn ask_alone(&self, query: &Query, until: Instant) -> RedisResult<Value> {
        let waiting = self.watch.waiting(&query.key);
        let answer = self.ask(once(query), until).await;
        waiting.end(failure_of([&answer]).as_ref());
        answer
    }

    fn rule(&self, asked: &Rule) -> Option<Lua> {
        let (algorithm, rule, _) = self.rules.get(asked.policy)?;
        match asked.own {
            Own::None | Own::Slots(_) => *rule,
            Own::Limit(limit) => algorithm.under(limit)?.lua(),
        }
    }

    /// Makes a call of the script that grants units.
    fn call_of_leases<'a>(
        &self,
        lender: &Lender,
        queries: impl Iterator<Item = &'a Query> + Clone,
    ) -> Call {
        let mut call = Call::default();
        let moment = queries.clone().find_map(|query| query.kind.moment);
        match moment {
            Some(moment) => call.argument(moment.get()),
            None => call.argument(""),
        }
        let rules = rules_of(queries.clone());
        call.argument(rules.len());
        for asked in &rules {
            let rule = self.rule(asked);
            call.argument(rule.map_or("", |rule| rule.name));
            let at = || moment.unwrap_or_else(Micros::by_this_node);
            for number in rule.map_or([0; 4], |rule| rule.numbers_at(at)) {
                call.argument(number);
            }
            let terms = lender.terms.get(asked.policy).copied().flatten();
            for number in terms.map_or([0; 5], Terms::numbers) {
                call.argument(number);
            }
        }
        let nothing = Ask::default();
        for query in queries {
            call.argument(query.charges.len());
            for asked in &query.charges {
                let place = rules.iter().position(|rule| *rule == asked.rule);
                let ask = asked.ask.as_deref().unwrap_or(&nothing);
                call.argument(place.map_or(0, |place| place + 1));
                call.argument(asked.cost);
                call.argument(asked.softness);
                call.argument(ask.units);
                call.argument(ask.awaited);
                call.argument(ask.seen);
                call.argument(ask.tells.len());
                for tell in &ask.tells {
                    call.argument(tell.end.get());
                    call.argument(tell.spent);
                    call.argument(tell.unspent);
                }
                call.key(&asked.key);
            }
        }
        call
    }

    fn call<'a>(&self, queries: impl Iterator<Item = &'a Query> + Clone) -> Call {
        let mut call = Call::default();
        let kind = queries.clone().next().map(|query| query.kind);
        let moment = kind.and_then(|kind| kind.moment);
        match moment {
            Some(moment) => call.argument(moment.get()),
            None => call.argument(""),
        }
        call.argument(kind.map_or("", |kind| kind.verb));
        let rules = rules_of(queries.clone());
        call.argument(rules.len());
        for asked in &rules {
            let rule = self.rule(asked);
            let name = rule.map_or("", |rule| rule.name);
            match self
                .rules
                .get(asked.policy)
                .and_then(|(_, _, penalty)| *penalty)
            {
                None => call.argument(name),
                Some(penalty) => {
                    let numbers = penalty.numbers().map(|number| number.to_string());
                    call.argument(format_args!("{name}|{}", numbers.join(" ")));
                }
            }
            let at = || moment.unwrap_or_else(Micros::by_this_node);
            let numbers = match asked.own {
                Own::Slots(numbers) => numbers,
                Own::None | Own::Limit(_) => rule.map_or([0; 4], |rule| rule.numbers_at(at)),
            };
            for number in numbers {
                call.argument(number);
            }
            let hours = rule.map_or_else(String::new, |rule| rule.hours_at(at));
            if !hours.is_empty() {
                call.argument("hours");
                call.argument(hours);
            }
        }
        let mut left = queries;
        while let Some(first) = left.next() {
            let is_alike = |query: &&Query| query.is_like(first);
            let behind = left.clone().take_while(is_alike).count();
            call.argument(1 + behind);
            call.argument(first.charges.len());
            for asked in &first.charges {
                let place = rules.iter().position(|rule| *rule == asked.rule);
                call.argument(place.map_or(0, |place| place + 1));
                call.argument(asked.cost);
                call.argument(asked.softness);
            }
            for query in once(first).chain(left.by_ref().take(behind)) {
                for asked in &query.charges {
                    call.key(&asked.key);
                }
            }
        }
        call
    }
}

impl Gathered {
    fn is_time_for_a_call(&self) -> bool {
        let taken = self.starting * MOST_REQUESTS;
        let left = self.waiting.len().saturating_sub(taken);
        left >= MOST_REQUESTS || left > 0 && self.under_way < FEW
    }

    /// Takes the requests of the next call: the first, and those behind it as far as they fit.
    fn take(&mut self) -> Vec<Waiting> {
        let mut together: Vec<Waiting> = Vec::new();
        let mut charges = 0;
        while let Some(next) = self.waiting.pop_front() {
            // The request has gone away.
            if next.answer.is_closed() {
                continue;
            }
            charges += next.query.charges.len();
            if let Some(first) = together.first()
                && (together.len() == MOST_REQUESTS
                    || charges > MOST_CHARGES
                    || next.query.kind != first.query.kind)
            {
                self.waiting.push_front(next);
                break;
            }
            together.push(next);
        }
        together
    }
}

impl UnderWay {
    async fn make(mut self) {
        if self.is_behind {
            // Requests that a server reads together get their answers together, and then the server is idle
            // until all of them ask again.
            yield_now().await;
        }
        let together = {
            let mut gathered = self.shared.gathered();
            gathered.starting -= 1;
            self.has_begun = true;
            let together = gathered.take();
            self.shared.start(gathered, true);
            together
        };
        let until = together.iter().map(|waiting| waiting.until).max();
        let queries = together.iter().map(|waiting| &waiting.query);
        let (Some(first), Some(until)) = (queries.clone().next(), until) else {
            return;
        };
        let waiting = self.shared.watch.waiting(&first.key);
        let answer = self.shared.ask(queries, until).await;
        self.shared.watch.calls().batched(together.len() - 1);
        if together.len() > 1 && answer.as_ref().is_err_and(is_of_slots) {
            // A single server that is set up as a node of a cluster. It has executed nothing.
            self.shared.is_sliced.store(true, Ordering::Relaxed);
            for Waiting { query, answer, .. } in together {
                let asked = Box::pin(self.shared.ask_alone(&query, until));
                let _ = answer.send(asked.await);
            }
            return;
        }
        let answers = apart(answer, together.len());
        waiting.end(failure_of(&answers).as_ref());
        for (waiting, answer) in together.into_iter().zip(answers) {
            // Sending fails if the request has gone away.
            let _ = waiting.answer.send(answer);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut gathered = self.shared.gathered();
        gathered.under_way -= 1;
        if self.has_begun {
            self.shared.start(gathered, false);
        } else {
            gathered.starting -= 1;
            // There is no thread for the call. Dropping the senders tells the requests.
            let waiting = mem::take(&mut gathered.waiting);
            drop(gathered);
            if let Some(first) = waiting.front() {
                let failure = failure(ended());
                self.shared
                    .watch
                    .waiting(&first.query.key)
                    .end(Some(&failure));
            }
            drop(waiting);
        }
    }
}

/// Splits the answer to a call into one for each request.
pub(super) fn apart(answer: RedisResult<Value>, requests: usize) -> Vec<RedisResult<Value>> {
    let text = match answer {
        Ok(Value::BulkString(text)) if requests > 1 => text,
        answer => return vec![answer; requests],
    };
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    if lines.len() != requests {
        let about = "the script's answer is not one for each request";
        let nonsense = RedisError::from((ErrorKind::UnexpectedReturnType, about));
        return vec![Err(nonsense); requests];
    }
    let read = |line: &&[u8]| match line {
        [b'-', ..] => {
            redis::parse_redis_value(&[line, b"\r\n".as_slice()].concat())?.extract_error()
        }
        line => Ok(Value::BulkString(line.to_vec())),
    };
    lines.iter().map(read).collect()
}

fn is_of_slots(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot)
}

fn ended() -> RedisError {
    (ErrorKind::Io, "the store has no thread").into()
}

impl fmt::Debug for Batcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batcher").finish_non_exhaustive()
    }
}

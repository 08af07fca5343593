//! Joins simultaneous operations into one call of a script.
//!
//! Starting a call costs a server nearly as much as deciding a request, so a server does more operations when they share calls.

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
use super::link::Link;
use super::script::{Call, Script};
use tower_ratelimit_core::__internal::{Watch, late};
use tower_ratelimit_core::key::Key;

/// What a script does many of in one call.
pub(super) trait Operation: fmt::Debug + Send + Sync + Sized + 'static {
    /// The scripts, and what their calls are made of.
    type Encoder: Send + Sync + 'static;

    /// While this many calls are under way, the next call has to be full or to wait.
    const FEW_CALLS: usize;

    /// The number of calls under way at most.
    const MOST_CALLS: usize;

    /// The number of operations in a call at most.
    const MOST_TOGETHER: usize;

    /// Whether it is a request: then it is not sent after the request has gone away, and counts as batched.
    const IS_REQUEST: bool;

    /// The key of its first charge.
    fn key(&self) -> &Key;

    /// Until when a call that begins now waits for the answer.
    fn until(&self, link: &Link) -> Instant;

    /// Returns whether one call can have this operation and, as its first, another.
    fn fits_behind(&self, first: &Self) -> bool;

    /// Returns the number of its charges.
    fn charges(&self) -> usize;

    /// Makes one call of these operations. The answer has a line for each.
    fn encode<'a>(
        encoder: &'a Self::Encoder,
        operations: impl Iterator<Item = &'a Self> + Clone,
    ) -> (&'a Script, Call);
}

/// Runs a script for operations. On one server, simultaneous operations share a call: a server takes nearly as long to start a
/// call as to decide a request.
///
/// No operation waits for time to pass. While few calls are under way, an operation starts one, which includes all operations
/// that have come by the time its task runs. The others wait until a call is answered, or until there are enough of them to fill
/// a call.
pub(super) struct Batcher<O: Operation>(Arc<Queue<O>>);

struct Queue<O: Operation> {
    encoder: O::Encoder,
    link: Arc<Link>,
    watch: Arc<Watch>,
    gathered: Mutex<Gathered<O>>,
    /// Whether the server has reported that it takes keys of one slot only.
    is_sliced: AtomicBool,
}

/// Operations that are not part of a call yet.
#[derive(Debug)]
struct Gathered<O> {
    waiting: VecDeque<Waiting<O>>,
    /// The number of calls that have been started and are not over.
    under_way: usize,
    /// The number of these calls that do not include any operation yet.
    starting: usize,
}

#[derive(Debug)]
struct Waiting<O> {
    operation: O,
    answer: oneshot::Sender<RedisResult<Value>>,
}

/// A call that was started. It is a task of its own, so that a request that gives up, or is not polled, does
/// not delay the others.
struct UnderWay<O: Operation> {
    queue: Arc<Queue<O>>,
    /// Whether another call is being written at this moment.
    is_behind: bool,
    has_begun: bool,
}

/// The number of charges in a call of several operations at most: other clients of the server wait meanwhile.
const MOST_CHARGES: usize = 128;

impl<O: Operation> Batcher<O> {
    pub(super) fn new(encoder: O::Encoder, link: &Arc<Link>, watch: &Arc<Watch>) -> Self {
        Self(Arc::new(Queue {
            encoder,
            link: Arc::clone(link),
            watch: Arc::clone(watch),
            gathered: Mutex::new(Gathered {
                waiting: VecDeque::new(),
                under_way: 0,
                starting: 0,
            }),
            is_sliced: AtomicBool::new(false),
        }))
    }

    /// Sends the operation of a request, and waits for the answer of the script.
    pub(super) async fn run(&self, operation: O) -> RedisResult<Value> {
        let Self(queue) = self;
        let key = *operation.key();
        if queue.link.is_divided() || queue.is_sliced.load(Ordering::Relaxed) {
            let alone = Arc::clone(queue);
            let until = operation.until(&queue.link);
            let answer = async move { alone.ask_alone(&operation, until).await };
            return queue.link.run((&queue.watch, &key), 1, answer).await?;
        }
        let begun = queue.link.background.begun();
        let answer = queue.gathered().add(operation);
        // The call includes the requests of the same moment. If this request is not polled any more, the next one
        // starts the call.
        yield_now().await;
        queue.start_behind_others();
        match queue.link.wait(1, answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(ended())),
            Err(late) => {
                queue.gave_up(&key, begun);
                Err(late)
            }
        }
    }

    /// Sends operations that are done even if their caller goes away, and returns where the answers come.
    pub(super) fn send(&self, operations: Vec<O>) -> Vec<oneshot::Receiver<RedisResult<Value>>> {
        let mut gathered = self.0.gathered();
        let answers = operations
            .into_iter()
            .map(|operation| gathered.add(operation));
        let answers = answers.collect();
        self.0.start(gathered, true);
        answers
    }
}

impl<O: Operation> Queue<O> {
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
    fn start(self: &Arc<Self>, mut gathered: MutexGuard<'_, Gathered<O>>, is_behind: bool) {
        if !gathered.is_time_for_a_call() {
            return;
        }
        gathered.under_way += 1;
        gathered.starting += 1;
        drop(gathered);
        let call = UnderWay {
            queue: Arc::clone(self),
            is_behind,
            has_begun: false,
        };
        // Boxed, because the runtime moves the future of a task several times.
        // Without a thread the call is dropped, and with it the requests are told.
        let _ = self.link.background.spawn(Box::pin(call.make()));
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered<O>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call for all of these.
    async fn ask<'a>(
        &'a self,
        operations: impl Iterator<Item = &'a O> + Clone,
        until: Instant,
    ) -> RedisResult<Value> {
        let (script, call) = O::encode(&self.encoder, operations);
        script.run(&self.link, &call, until).await
    }

    async fn ask_alone(&self, operation: &O, until: Instant) -> RedisResult<Value> {
        let waiting = self.watch.waiting(operation.key());
        let answer = self.ask(once(operation), until).await;
        waiting.end(failure_of([&answer]).as_ref());
        answer
    }
}

impl<O: Operation> Gathered<O> {
    fn add(&mut self, operation: O) -> oneshot::Receiver<RedisResult<Value>> {
        let (answer, answered) = oneshot::channel();
        self.waiting.push_back(Waiting { operation, answer });
        answered
    }

    fn is_time_for_a_call(&self) -> bool {
        let taken = self.starting * O::MOST_TOGETHER;
        let left = self.waiting.len().saturating_sub(taken);
        let is_full = left >= O::MOST_TOGETHER && self.under_way < O::MOST_CALLS;
        is_full || left > 0 && self.under_way < O::FEW_CALLS
    }

    /// Takes the operations of the next call: the first, and those behind it as far as they fit.
    fn take(&mut self) -> Vec<Waiting<O>> {
        let mut together: Vec<Waiting<O>> = Vec::new();
        let mut charges = 0;
        while let Some(next) = self.waiting.pop_front() {
            // The request has gone away.
            if O::IS_REQUEST && next.answer.is_closed() {
                continue;
            }
            charges += next.operation.charges();
            if let Some(first) = together.first()
                && (together.len() == O::MOST_TOGETHER
                    || charges > MOST_CHARGES
                    || !next.operation.fits_behind(&first.operation))
            {
                self.waiting.push_front(next);
                break;
            }
            together.push(next);
        }
        together
    }
}

impl<O: Operation> UnderWay<O> {
    async fn make(mut self) {
        if self.is_behind {
            // Requests that a server reads together get their answers together, and then the server is idle
            // until all of them ask again.
            yield_now().await;
        }
        let queue = Arc::clone(&self.queue);
        let together = {
            let mut gathered = queue.gathered();
            gathered.starting -= 1;
            self.has_begun = true;
            let together = gathered.take();
            queue.start(gathered, true);
            together
        };
        let operations = together.iter().map(|waiting| &waiting.operation);
        let untils = operations
            .clone()
            .map(|operation| operation.until(&queue.link));
        let (Some(first), Some(until)) = (operations.clone().next(), untils.max()) else {
            return;
        };
        let waiting = queue.watch.waiting(first.key());
        let answer = queue.ask(operations, until).await;
        if O::IS_REQUEST {
            queue.watch.calls().batched(together.len() - 1);
        }
        if together.len() > 1 && answer.as_ref().is_err_and(is_of_slots) {
            // A single server that is set up as a node of a cluster. It has executed nothing.
            queue.is_sliced.store(true, Ordering::Relaxed);
            for Waiting { operation, answer } in together {
                let alone = Box::pin(queue.ask_alone(&operation, until));
                let _ = answer.send(alone.await);
            }
            return;
        }
        let answers = apart(answer, together.len());
        waiting.end(failure_of(&answers).as_ref());
        for (waiting, answer) in together.into_iter().zip(answers) {
            // Sending fails if the caller has gone away.
            let _ = waiting.answer.send(answer);
        }
    }
}

impl<O: Operation> Drop for UnderWay<O> {
    fn drop(&mut self) {
        let mut gathered = self.queue.gathered();
        gathered.under_way -= 1;
        if self.has_begun {
            self.queue.start(gathered, false);
        } else {
            gathered.starting -= 1;
            // There is no thread for the call. Dropping the senders tells the callers.
            let waiting = mem::take(&mut gathered.waiting);
            drop(gathered);
            if let Some(first) = waiting.front() {
                let failure = failure(ended());
                let waiting = self.queue.watch.waiting(first.operation.key());
                waiting.end(Some(&failure));
            }
            drop(waiting);
        }
    }
}

/// Splits the answer to a call into one for each operation.
fn apart(answer: RedisResult<Value>, operations: usize) -> Vec<RedisResult<Value>> {
    let text = match answer {
        Ok(Value::BulkString(text)) if operations > 1 => text,
        answer => return vec![answer; operations],
    };
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    if lines.len() != operations {
        let about = "the script's answer is not one for each request";
        let nonsense = RedisError::from((ErrorKind::UnexpectedReturnType, about));
        return vec![Err(nonsense); operations];
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

impl<O: Operation> fmt::Debug for Batcher<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batcher").finish_non_exhaustive()
    }
}

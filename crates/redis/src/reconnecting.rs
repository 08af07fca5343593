//! A connection that is made again when it has become useless.
//!
//! An attempt runs in a task of its own, so that a request with a short deadline does not start it over
//! again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::promise::{Promise, timed_out};

/// A connection that is made when it is first needed, and again when it has become useless.
pub(super) struct Reconnecting<C> {
    connect: Arc<dyn Fn() -> Promise<C> + Send + Sync>,
    current: Arc<Mutex<Current<C>>>,
    /// How long a call may wait for its answer.
    deadline: Duration,
}

struct Current<C> {
    connection: Option<C>,
    /// The number of the connection, because a useless one may have been replaced already.
    number: u64,
    /// The result of the running attempt, and when it began.
    coming: Option<(Instant, ConnectionAttempt<C>)>,
    /// When the first call was sent that was given up, while nothing has been answered since.
    unanswered_since: Option<Instant>,
}

type ConnectionAttempt<C> = watch::Receiver<Option<RedisResult<(C, u64)>>>;

/// The least time for an attempt to connect. A call that cannot wait for it leaves it to the next call.
pub(super) const CONNECTING: Duration = Duration::from_secs(1);

impl<C: Clone + Send + Sync + 'static> Reconnecting<C> {
    pub(super) fn new(
        deadline: Duration,
        connect: impl Fn() -> Promise<C> + Send + Sync + 'static,
    ) -> Self {
        Self {
            connect: Arc::new(connect),
            current: Arc::new(Mutex::new(Current {
                connection: None,
                number: 0,
                coming: None,
                unanswered_since: None,
            })),
            deadline,
        }
    }

    /// Returns the present connection, and its number.
    pub(super) fn current(&self) -> Option<(C, u64)> {
        lock(&self.current).usable(self.deadline)
    }

    /// Returns the connection, which may have to be made, and its number.
    pub(super) async fn connection(&self) -> RedisResult<(C, u64)> {
        let coming = {
            let mut current = lock(&self.current);
            if let Some(usable) = current.usable(self.deadline) {
                return Ok(usable);
            }
            self.coming(&mut current)
        };
        outcome(coming).await
    }

    /// Connects again. Other calls use the present connection meanwhile.
    pub(super) async fn renew(&self) -> RedisResult<()> {
        let coming = self.coming(&mut lock(&self.current));
        outcome(coming).await.map(drop)
    }

    /// Begins to connect again, without waiting.
    pub(super) fn begin_to_renew(&self) {
        drop(self.coming(&mut lock(&self.current)));
    }

    /// Returns the running attempt, or starts one.
    fn coming(&self, current: &mut Current<C>) -> ConnectionAttempt<C> {
        // An attempt has no result when its runtime ends, and never ends if the runtime does not run any
        // more.
        let longest = self.longest() + CONNECTING;
        let coming = current.coming.take();
        let coming = coming
            .filter(|(since, coming)| coming.has_changed().is_ok() && since.elapsed() < longest);
        let coming = coming.unwrap_or_else(|| (Instant::now(), self.attempt()));
        current.coming.insert(coming).1.clone()
    }

    /// Returns how long an attempt may take.
    fn longest(&self) -> Duration {
        self.deadline.max(CONNECTING)
    }

    /// Connects in a task of its own. If a call connected, the next call would start again with what is left
    /// of its own time.
    fn attempt(&self) -> ConnectionAttempt<C> {
        let (come, coming) = watch::channel(None);
        let (connect, current) = (Arc::clone(&self.connect), Arc::clone(&self.current));
        let longest = self.longest();
        tokio::spawn(async move {
            let connected = timeout(longest, connect()).await;
            let connected = connected.unwrap_or_else(|_| Err(timed_out()));
            let mut current = lock(&current);
            current.coming = None;
            let outcome = connected.map(|connection| {
                current.number += 1;
                current.connection = Some(connection.clone());
                current.unanswered_since = None;
                (connection, current.number)
            });
            come.send_replace(Some(outcome));
        });
        coming
    }

    /// Drops the connection with this number, which is useless.
    pub(super) fn forget(&self, number: u64) {
        let mut current = lock(&self.current);
        if current.number == number {
            current.connection = None;
        }
    }

    /// Records that a call is sent on the connection with this number.
    pub(super) fn sent(&self, number: u64) -> Sent<'_, C> {
        Sent {
            line: self,
            number,
            at: Instant::now(),
            is_answered: false,
        }
    }
}

impl<C: Clone> Current<C> {
    fn usable(&mut self, deadline: Duration) -> Option<(C, u64)> {
        if self.is_silent(deadline) {
            self.connection = None;
        }
        Some((self.connection.clone()?, self.number))
    }

    /// Returns whether the connection had as much time to answer as a call has, and answered nothing.
    fn is_silent(&self, deadline: Duration) -> bool {
        self.unanswered_since
            .is_some_and(|since| since.elapsed() >= deadline)
    }
}

fn lock<C>(current: &Mutex<Current<C>>) -> MutexGuard<'_, Current<C>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn outcome<C: Clone>(mut coming: ConnectionAttempt<C>) -> RedisResult<(C, u64)> {
    match coming.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(outcome)) => outcome.clone(),
        _ => Err(ended()),
    }
}

fn ended() -> RedisError {
    (
        ErrorKind::Io,
        "the attempt to connect has ended with its runtime, or in a panic",
    )
        .into()
}

/// A call without an answer yet. Dropping it gives the answer up.
pub(super) struct Sent<'a, C> {
    line: &'a Reconnecting<C>,
    number: u64,
    at: Instant,
    is_answered: bool,
}

impl<C> Sent<'_, C> {
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl<C> Drop for Sent<'_, C> {
    fn drop(&mut self) {
        let mut current = lock(&self.line.current);
        if current.number != self.number {
            return;
        }
        current.unanswered_since = match (self.is_answered, current.unanswered_since) {
            (true, _) => None,
            (false, Some(since)) => Some(since),
            (false, None) => Some(self.at),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::sleep;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);

    /// The first attempt fails; each of the others takes 60 ms.
    fn line() -> Arc<Reconnecting<u32>> {
        let attempts = AtomicU32::new(0);
        let connect = move || -> Promise<u32> {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                if attempt == 0 {
                    pending::<()>().await;
                }
                sleep(Duration::from_millis(60)).await;
                Ok(attempt)
            })
        };
        Arc::new(Reconnecting::new(PATIENCE, connect))
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_give_up_one_after_the_other_do_not_keep_the_next_from_connecting() {
        let line = line();
        let mut callers = Vec::new();
        for _ in 0..1_000 {
            let line = Arc::clone(&line);
            callers.push(tokio::spawn(async move {
                matches!(timeout(PATIENCE, line.connection()).await, Ok(Ok(_)))
            }));
            sleep(Duration::from_millis(5)).await;
        }
        let mut connected = 0;
        for caller in callers {
            connected += usize::from(caller.await.unwrap());
        }
        // The failed attempt took one of the five seconds.
        assert!(connected > 700, "{connected}");
    }
    #[test]
    fn an_attempt_whose_runtime_is_not_run_any_more_is_given_up() {
        let runtime = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().build().unwrap()
        };
        let line = line();
        let (idle, runs) = (runtime(), runtime());
        let first = idle.block_on(async { timeout(PATIENCE, line.connection()).await });
        assert!(first.is_err());
        let second = runs.block_on(async {
            let connect = || timeout(PATIENCE, line.connection());
            let connected = async { while !matches!(connect().await, Ok(Ok(_))) {} };
            timeout(CONNECTING * 5, connected).await
        });
        assert!(second.is_ok());
        drop(idle);
    }
}

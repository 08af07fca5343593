use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::failure::is_read_only;
use super::promise::{Promise, in_time, timed_out};
use super::reconnecting::Reconnecting;

/// One server, over one connection.
pub(super) struct Server(Reconnecting<Connection>);

/// What comes of one attempt to send a call.
enum Sent {
    Answered(RedisResult<Value>),
    /// The connection broke before a byte of the call went out.
    NotAtAll(RedisError),
}

impl Server {
    pub(super) fn new(
        deadline: Duration,
        connect: impl Fn() -> Promise<Connection> + Send + Sync + 'static,
    ) -> Self {
        Self(Reconnecting::new(deadline, connect))
    }

    pub(super) async fn connect(&self) -> RedisResult<()> {
        match self.current() {
            Some(_) => Ok(()),
            None => self.0.connection().await.map(drop),
        }
    }

    #[cfg(feature = "redis-cluster")]
    pub(super) fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    /// Sends this, and waits for the answer until then. After an error of the network, and when the time is over, it
    /// is unknown whether the call was done, so it is sent a second time in one case alone: its connection broke
    /// before any of it was written, as one does that died while it was idle.
    ///
    /// Its future is a part of each request's, and is kept small: an `async fn` that is given a future has room for it
    /// twice.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        is_asking: bool,
        until: Instant,
    ) -> RedisResult<Value> {
        let mut is_again = false;
        loop {
            match self.send_once(command, is_asking, until).await {
                Sent::Answered(answer) => return answer,
                Sent::NotAtAll(error) if is_again => return Err(error),
                Sent::NotAtAll(_) => is_again = true,
            }
        }
    }

    async fn send_once(&self, command: &Cmd, is_asking: bool, until: Instant) -> Sent {
        let (mut connection, number) = match self.current() {
            Some(current) => current,
            None => match in_time(timeout_at(until, self.0.connection()).await) {
                Ok(connected) => connected,
                Err(error) => return Sent::Answered(Err(error)),
            },
        };
        let before = connection.written();
        let waits = self.0.sent(number);
        let answer = {
            // Written by the first poll, before the timer is set. It does not yield in between: tasks that do go on in
            // any order, and requests that come one behind the other are decided so.
            let mut sent = pin!(connection.send(command, is_asking));
            match poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await {
                Poll::Ready(answer) => Ok(answer),
                Poll::Pending => timeout_at(until, sent).await,
            }
        };
        waits.answered();
        match answer {
            Ok(Err(error)) if is_of_no_use_after(&error) => {
                self.0.forget(number);
                // The connection ends with such an error, so nothing is written later.
                if connection.has_written_nothing_since(before) {
                    return Sent::NotAtAll(error);
                }
                Sent::Answered(Err(error))
            }
            Ok(answer) => Sent::Answered(answer),
            Err(_) => {
                self.0.forget(number);
                Sent::Answered(Err(timed_out()))
            }
        }
    }

    /// The connection that there is, unless it has died meanwhile.
    fn current(&self) -> Option<(Connection, u64)> {
        let (connection, number) = self.0.current()?;
        if connection.is_over() {
            self.0.forget(number);
            return None;
        }
        Some((connection, number))
    }
}

/// Whether another connection may do what this one did not. One to a server that may not write any more
/// leads to what was the primary before a failover.
fn is_of_no_use_after(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_timeout() || is_read_only(error)
}

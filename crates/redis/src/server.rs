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

/// The result of one attempt to send a call.
enum Sent {
    Answered(RedisResult<Value>),
    /// The connection broke before a byte of the call was written.
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
    pub(super) fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    /// Sends this command, and waits until `until` for the answer. After an error of the network, and when
    /// the time is over, it is unknown whether the command ran. So it is sent a second time in one case only:
    /// the connection broke before any of it was written, as a connection does that died while it was idle.
    ///
    /// The future is part of each request's future, and is kept small: an `async fn` with a future as an
    /// argument has room for it twice.
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
            // The first poll writes the command, before the timer is set. It does not yield in between: tasks
            // that yield continue in any order, and requests that come one after the other are decided in
            // that order.
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
                // Such an error ends the connection, so nothing is written later.
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

    /// Returns the present connection, unless it has died.
    fn current(&self) -> Option<(Connection, u64)> {
        let (connection, number) = self.0.current()?;
        if connection.is_over() {
            self.0.forget(number);
            return None;
        }
        Some((connection, number))
    }
}

/// Returns whether another connection may succeed where this one failed. A connection to a server that may
/// not write any more leads to the previous primary after a failover.
fn is_of_no_use_after(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_timeout() || is_read_only(error)
}

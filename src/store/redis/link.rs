use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
#[cfg(feature = "redis-cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::task::yield_now;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

#[cfg(feature = "redis-cluster")]
use super::cluster;
use super::failure::{is_read_only, of_a_cluster};
use super::line::Line;
#[cfg(feature = "redis-sentinel")]
use super::sentinel::Sentinels;

pub(super) type Promise<T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send>>;

/// The way to a server, or to a cluster of them: one connection, on which calls go out one behind the
/// other without waiting for each other's answers.
pub(super) struct Link {
    wire: Wire,
    deadline: Duration,
}

enum Wire {
    Server(Line<MultiplexedConnection>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Line<ClusterConnection>),
    Given {
        send: Box<dyn Fn(Cmd) -> Promise<Value> + Send + Sync>,
        is_divided: bool,
    },
}

impl Link {
    pub(super) fn to_server(client: Client, deadline: Duration) -> Self {
        let connect =
            move || -> Promise<MultiplexedConnection> { Box::pin(connected(client.clone())) };
        Self {
            wire: Wire::Server(Line::new(deadline, connect)),
            deadline,
        }
    }

    /// To the server that the sentinels name whenever a connection is made.
    #[cfg(feature = "redis-sentinel")]
    pub(super) fn to_master(sentinels: Sentinels, deadline: Duration) -> Self {
        let connect =
            move || -> Promise<MultiplexedConnection> { Box::pin(sentinels.clone().connect()) };
        Self {
            wire: Wire::Server(Line::new(deadline, connect)),
            deadline,
        }
    }

    #[cfg(feature = "redis-cluster")]
    pub(super) fn to_cluster(client: redis::cluster::ClusterClient, deadline: Duration) -> Self {
        let connect = move || -> Promise<ClusterConnection> {
            let client = client.clone();
            Box::pin(async move { client.get_async_connection().await })
        };
        Self {
            wire: Wire::Cluster(Line::new(deadline, connect)),
            deadline,
        }
    }

    /// Over a connection that somebody else looks after, to a server or to a cluster.
    pub(super) fn over<C>(connection: C, is_divided: bool, deadline: Duration) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let send = move |command: Cmd| -> Promise<Value> {
            let mut connection = connection.clone();
            Box::pin(async move { connection.req_packed_command(&command).await })
        };
        Self {
            wire: Wire::Given {
                send: Box::new(send),
                is_divided,
            },
            deadline,
        }
    }

    /// Whether keys may live on several servers.
    pub(super) fn is_divided(&self) -> bool {
        match &self.wire {
            Wire::Server(_) => false,
            #[cfg(feature = "redis-cluster")]
            Wire::Cluster(_) => true,
            Wire::Given { is_divided, .. } => *is_divided,
        }
    }

    /// Connects, where the store does so itself: to a cluster anew, since its nodes may have other parts by
    /// now.
    pub(super) async fn connect(&self) -> RedisResult<()> {
        match &self.wire {
            Wire::Server(line) => line.connection().await.map(drop),
            #[cfg(feature = "redis-cluster")]
            Wire::Cluster(line) => line.renew().await,
            Wire::Given { .. } => Ok(()),
        }
    }

    /// How long a call may take.
    pub(super) fn patience(&self) -> Duration {
        self.deadline
    }

    /// When a call has to be over that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Sends this once, and waits for the answer until then. After an error of the network, and when it is
    /// over, nobody knows whether it was done.
    ///
    /// Its future is a part of each request's, and is kept small: an `async fn` that is given a future has room for it
    /// twice.
    pub(super) async fn send(&self, command: Cmd, until: Instant) -> RedisResult<Value> {
        match &self.wire {
            Wire::Server(line) => {
                let (mut connection, number) = match line.current() {
                    Some(current) => current,
                    None => in_time(timeout_at(until, line.connection()).await)?,
                };
                let waits = line.sent(number);
                let mut sent = pin!(connection.send_packed_command(&command));
                let answer = match poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await
                {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => {
                        // What is asked is written first: the timer is set while the server is at work.
                        yield_now().await;
                        in_time(timeout_at(until, sent).await)
                    }
                };
                let answer = answer.and_then(Value::extract_error);
                waits.answered();
                if let Err(error) = &answer
                    && is_of_no_use_after(error)
                {
                    line.forget(number);
                }
                answer.map_err(of_a_part)
            }
            #[cfg(feature = "redis-cluster")]
            Wire::Cluster(line) => {
                let (connection, number) = in_time(timeout_at(until, line.connection()).await)?;
                let sent = Box::pin(cluster::send(connection, &command));
                let answer = in_time(timeout_at(until, sent).await);
                if answer.as_ref().is_err_and(cluster::is_over) {
                    line.forget(number);
                }
                answer
            }
            Wire::Given { send, .. } => {
                let answer = in_time(timeout_at(until, send(command)).await);
                answer.and_then(Value::extract_error)
            }
        }
    }
}

/// A connection without deadlines of its own: that of a call is kept above, that of connecting by who does it.
pub(super) async fn connected(client: Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await
}

/// Whether another connection may do what this one did not. One to a server that may not write any more
/// leads to what was the primary before a failover.
fn is_of_no_use_after(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_timeout() || is_read_only(error)
}

/// A server that has a part of the keys only will say so again and again.
fn of_a_part(error: RedisError) -> RedisError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => of_a_cluster(),
        _ => error,
    }
}

fn in_time<T>(answer: Result<RedisResult<T>, Elapsed>) -> RedisResult<T> {
    answer.unwrap_or_else(|_| Err(timed_out()))
}

pub(super) fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

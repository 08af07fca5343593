use std::io;
use std::pin::Pin;

use redis::RedisResult;
use tokio::time::error::Elapsed;

/// The result of a call to a server.
pub(super) type Promise<T> = Pin<Box<dyn Future<Output = RedisResult<T>> + Send>>;

pub(super) fn in_time<T>(answer: Result<RedisResult<T>, Elapsed>) -> RedisResult<T> {
    answer.unwrap_or_else(|_| Err(timed_out()))
}

pub(super) fn timed_out() -> redis::RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

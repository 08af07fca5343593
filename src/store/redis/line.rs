use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::RedisResult;

use super::link::Promise;

/// A connection that is made when it is first needed, and anew once it is of no use any more.
pub(super) struct Line<C> {
    connect: Box<dyn Fn() -> Promise<C> + Send + Sync>,
    current: Mutex<Current<C>>,
    /// Whoever finds no connection waits for the one who is connecting.
    connecting: tokio::sync::Mutex<()>,
}

struct Current<C> {
    connection: Option<C>,
    /// Which one it is: one that is of no use may have been replaced already.
    number: u64,
}

impl<C: Clone> Line<C> {
    pub(super) fn new(connect: impl Fn() -> Promise<C> + Send + Sync + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            current: Mutex::new(Current {
                connection: None,
                number: 0,
            }),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// The connection, and its number.
    pub(super) async fn connection(&self) -> RedisResult<(C, u64)> {
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let _turn = self.connecting.lock().await;
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let connection = (self.connect)().await?;
        let mut current = self.current();
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    /// The connection of this number is of no use any more.
    pub(super) fn forget(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            current.connection = None;
        }
    }

    fn found(&self) -> Option<(C, u64)> {
        let current = self.current();
        let connection = current.connection.clone()?;
        Some((connection, current.number))
    }

    fn current(&self) -> MutexGuard<'_, Current<C>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

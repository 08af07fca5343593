use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tower_ratelimit::RedisStore;
use tower_ratelimit::store::{Backend as _, Store as _};

/// The tasks of the test's runtime and of a store's own.
pub(crate) struct Tasks {
    runtimes: [Handle; 2],
    /// How many last, such as that of a connection.
    lasting: usize,
}

impl Tasks {
    /// Takes the fewest in some milliseconds, while no request is under way, to be those that last.
    pub(crate) async fn beside(store: &RedisStore) -> Self {
        let of_store = store.open(&[]).unwrap().runtime().unwrap();
        let mut tasks = Self {
            runtimes: [Handle::current(), of_store],
            lasting: usize::MAX,
        };
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tasks.lasting = tasks.lasting.min(tasks.alive());
        }
        tasks
    }

    fn alive(&self) -> usize {
        let each = self.runtimes.iter();
        each.map(|runtime| runtime.metrics().num_alive_tasks())
            .sum()
    }

    /// Waits until only those are left that last, without this many of them.
    pub(crate) async fn end(&self, without: usize) {
        let started = Instant::now();
        while self.alive() > self.lasting - without {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "a task has not ended"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

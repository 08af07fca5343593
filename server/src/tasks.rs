//! The tasks of the connections of a listener.

use std::future::Future;

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The connections of a listener, and the requests on those of HTTP/2, each of which is a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    cut_off: CancellationToken,
}

impl Tasks {
    /// Begins the task of a connection.
    pub(crate) fn connect(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cut_off = self.cut_off.clone();
        self.tracker.spawn(async move {
            // The result says whether it was cut off.
            let _ = cut_off.run_until_cancelled_owned(task).await;
        });
    }

    /// Waits until all have ended.
    pub(crate) async fn are_over(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Drops the connections where they are, with their requests, and waits until that is done.
    pub(crate) async fn cut_off(&self) {
        self.cut_off.cancel();
        self.are_over().await;
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Begins the task of a request, which ends when its connection is dropped.
    fn execute(&self, task: F) {
        self.tracker.spawn(task);
    }
}

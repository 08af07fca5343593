//! The thread of a store.
//!
//! What must go on after a request never lives in the runtime of that request: a program may have several
//! runtimes, and any of them may end, sleep or be busy. A request that waits for this thread has a clock of its own
//! (`Link::wait`), since the thread may be stuck.
//!
//! The futures of a user's resolver or store may need the user's runtime: they stay there, and a request that waits for another's
//! takes the work over. What a user starts, such as the watcher of a file, is a task of the runtime in which it was started.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::thread;

use pin_project_lite::pin_project;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
#[cfg(feature = "tracing")]
use tracing::dispatcher::{Dispatch, get_default, set_default};
#[cfg(feature = "tracing")]
use tracing::subscriber::NoSubscriber;

/// A thread with a runtime of its own, which starts with the first task and ends with the last handle.
///
/// A task keeps the thread if it holds a handle, such as the store. One that is to end with the store holds it weakly.
#[derive(Clone, Default)]
pub(crate) struct Background {
    started: Arc<Mutex<Option<Started>>>,
    begun: Arc<AtomicU64>,
}

struct Started {
    runtime: Handle,
    /// Dropping it ends the thread.
    _lives: oneshot::Sender<Infallible>,
}

impl Background {
    /// Starts the thread, unless it runs, and returns its runtime.
    ///
    /// # Errors
    ///
    /// When the system has no thread for it. The next call tries again.
    pub(crate) fn runtime(&self) -> io::Result<Handle> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let started = match &mut *started {
            Some(started) => started,
            none => none.insert(Started::start()?),
        };
        Ok(started.runtime.clone())
    }

    /// Starts a task, which runs to its end, whatever becomes of the caller.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let runtime = self.runtime()?;
        Ok(runtime.spawn(Task {
            begins: Some(Arc::clone(&self.begun)),
            future,
        }))
    }

    /// Returns how many tasks have begun. If a task was started since and none has begun, the thread is stuck.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Starts a task that is dropped with what waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Awaited<T> {
        Awaited(self.spawn(future))
    }
}

pin_project! {
    /// A task that is counted when it begins.
    struct Task<F> {
        begins: Option<Arc<AtomicU64>>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if let Some(begun) = this.begins.take() {
            begun.fetch_add(1, Ordering::Relaxed);
        }
        this.future.poll(cx)
    }
}

/// A task that ends when its caller goes away.
#[derive(Debug)]
pub(crate) struct Awaited<T>(io::Result<JoinHandle<T>>);

impl<T> Future for Awaited<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(task) => Pin::new(task).poll(cx).map_err(|_| ended()),
            Err(error) => Poll::Ready(Err(mem::replace(error, ended()))),
        }
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        if let Ok(task) = &self.0 {
            task.abort();
        }
    }
}

impl Started {
    fn start() -> io::Result<Self> {
        let (lives, end) = oneshot::channel::<Infallible>();
        let (give, given) = mpsc::channel::<Runtime>();
        let thread = thread::Builder::new().name("ratelimit-store".into());
        // The thread comes first: a runtime that has no thread would be dropped here, where tokio may forbid it.
        #[cfg(feature = "tracing")]
        let log = log();
        thread.spawn(move || {
            #[cfg(feature = "tracing")]
            let _logs = log.as_ref().map(set_default);
            if let Ok(runtime) = given.recv() {
                let _ = runtime.block_on(end);
            }
        })?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        if let Err(mpsc::SendError(runtime)) = give.send(runtime) {
            runtime.shutdown_background();
            return Err(ended());
        }
        Ok(Self {
            runtime: handle,
            _lives: lives,
        })
    }
}

/// Returns the subscriber of the caller, if there is one yet: the thread logs to it too.
#[cfg(feature = "tracing")]
fn log() -> Option<Dispatch> {
    let log = get_default(Dispatch::clone);
    (!log.is::<NoSubscriber>()).then_some(log)
}

fn ended() -> io::Error {
    io::Error::other("the store's thread has ended, or its task has panicked")
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::task::Waker;

    use tokio::time::{Duration, sleep};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_task_goes_on_when_the_runtime_that_began_it_is_not_run_any_more() {
        let background = Background::default();
        let (tell, answers) = channel();
        let asleep = runtime();
        asleep.block_on(async {
            let task = background.spawn(async move {
                sleep(Duration::from_millis(1)).await;
                tell.send(()).unwrap();
            });
            drop(task.unwrap());
        });
        answers.recv().unwrap();
        drop(asleep);
    }

    #[test]
    fn what_a_caller_waits_for_is_dropped_with_the_caller() {
        let background = Background::default();
        let (tell, answers) = channel();
        let (sender, dropped) = channel::<()>();
        let runtime = runtime();
        runtime.block_on(async {
            let mut run = Box::pin(background.run(async move {
                let _kept = sender;
                tell.send(()).unwrap();
                std::future::pending::<()>().await;
            }));
            let polled = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            answers.recv().unwrap();
        });
        assert!(dropped.recv().is_err());
    }

    #[test]
    fn the_thread_ends_with_its_last_handle_even_inside_of_it() {
        let background = Background::default();
        let (tell, answers) = channel::<()>();
        let last = background.clone();
        let (go, goes) = oneshot::channel::<()>();
        let task = background.spawn(async move {
            let _ = goes.await;
            drop(last);
            // Dropped with the runtime, since it never ends.
            let _kept = tell;
            std::future::pending::<()>().await;
        });
        drop(task.unwrap());
        drop(background);
        go.send(()).unwrap();
        // The sender is dropped.
        assert!(answers.recv().is_err());
    }
}

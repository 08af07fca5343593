//! Tasks that the runtime finishes while no request waits for them.

use std::pin::Pin;

use tokio::runtime::Handle;

/// Runs a future to its end.
///
/// The future is boxed, so that a program contains one task and not one for each kind of future.
pub(super) fn spawn(runtime: &Handle, future: impl Future<Output = ()> + Send + 'static) {
    let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    runtime.spawn(future);
}

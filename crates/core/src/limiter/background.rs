//! Tasks that go on while no request waits for them.
//!
//! They run in the store's own runtime if it has one, which never stops. The futures of a user's store may need the runtime
//! of the request.

use std::pin::Pin;

use tokio::runtime::Handle;

use crate::store::Backend;

/// Runs a future of this backend to its end: where the backend says, or in this runtime, or in that of the request. Without any of
/// them it is dropped.
///
/// The future is boxed, so that a program contains one task and not one for each kind of future.
pub(super) fn spawn(
    backend: &dyn Backend,
    of_request: Option<&Handle>,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let runtime = backend.runtime();
    let runtime = runtime.or_else(|| Handle::try_current().ok());
    let Some(runtime) = runtime.as_ref().or(of_request) else {
        return;
    };
    let future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    runtime.spawn(future);
}

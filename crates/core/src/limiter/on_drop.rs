/// Calls a closure when it is dropped, unless it is [disarmed](Self::disarm): for what has to happen even if a closure of a
/// user panics, or if the task that waits for a store ends with its runtime.
pub(super) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(super) fn new(call: F) -> Self {
        Self(Some(call))
    }

    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

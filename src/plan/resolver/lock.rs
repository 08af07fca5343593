use std::sync::{Mutex, MutexGuard, PoisonError};

/// No panic leaves what is locked here half changed.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

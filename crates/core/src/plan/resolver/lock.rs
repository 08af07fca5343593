use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic leaves none of the data here half changed.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

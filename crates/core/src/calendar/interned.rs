use std::sync::{Mutex, PoisonError};

/// Values that live as long as the program, each of them once, so that a reference identifies the value.
pub(crate) struct Interned<T: 'static>(Mutex<Vec<&'static T>>);

impl<T> Interned<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the value for which `is_it` holds, or adds the one that `make` returns.
    ///
    /// A value is never freed: configurations name a few zones and calendars, and requests name none that no
    /// configuration has.
    pub(crate) fn get(&self, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &'static T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| is_it(known)) {
            return known;
        }
        let new: &'static T = Box::leak(Box::new(make()));
        all.push(new);
        new
    }
}

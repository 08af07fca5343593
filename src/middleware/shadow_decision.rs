//! The decision of a gate in shadow, until the gate in force has ruled.

use std::sync::Arc;
#[cfg(feature = "config")]
use std::sync::{Mutex, PoisonError};

use http::Request;

use super::gate::Ruling;
#[cfg(feature = "config")]
pub(super) use super::shadow::Shadow;
#[cfg(feature = "config")]
use super::shadow::Tried;

/// Without files there is no gate in shadow.
#[cfg(not(feature = "config"))]
pub(super) enum Shadow {}

/// The decision of a shadow on a request, if there is one.
#[derive(Default)]
pub(super) struct ShadowDecision {
    #[cfg(feature = "config")]
    tried: Option<Box<Tried>>,
}

/// Part of the extensions of a request that waits.
#[cfg(feature = "config")]
#[derive(Clone)]
struct Carried(Arc<Mutex<Option<Box<Tried>>>>);

#[cfg(feature = "config")]
impl ShadowDecision {
    /// Lets the shadow decide, before the gate in force charges anything.
    #[inline]
    pub(super) fn of<B>(shadow: Option<&Arc<Shadow>>, request: &mut Request<B>) -> Self {
        Self {
            tried: shadow.and_then(|shadow| shadow.try_out(request)),
        }
    }

    /// Takes the decision that a request has carried while it waited.
    pub(super) fn carried_by<B>(request: &mut Request<B>) -> Self {
        let carried = request.extensions_mut().remove::<Carried>();
        let tried = carried.and_then(|Carried(tried)| {
            let mut tried = tried.lock().unwrap_or_else(PoisonError::into_inner);
            tried.take()
        });
        Self { tried }
    }

    /// Puts the decision into the request, which waits.
    pub(super) fn wait_with<B>(self, request: &mut Request<B>) {
        if let Some(tried) = self.tried {
            let carried = Carried(Arc::new(Mutex::new(Some(tried))));
            request.extensions_mut().insert(carried);
        }
    }

    /// Compares the decision with the ruling of the gate in force, unless the request waits.
    #[inline]
    pub(super) fn compare<B>(self, ruling: &mut Ruling, request: &mut Request<B>) {
        match self.tried {
            None => {}
            Some(_) if matches!(ruling, Ruling::Wait(_)) => self.wait_with(request),
            Some(tried) => tried.compare(ruling, request),
        }
    }
}

#[cfg(not(feature = "config"))]
impl ShadowDecision {
    #[inline]
    pub(super) fn of<B>(_: Option<&Arc<Shadow>>, _: &mut Request<B>) -> Self {
        Self::default()
    }

    #[inline]
    pub(super) fn carried_by<B>(_: &mut Request<B>) -> Self {
        Self::default()
    }

    #[inline]
    pub(super) fn wait_with<B>(self, _: &mut Request<B>) {}

    #[inline]
    pub(super) fn compare<B>(self, _: &mut Ruling, _: &mut Request<B>) {}
}

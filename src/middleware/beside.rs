//! What was decided beside the gate in force, until that has ruled.

use http::Request;

use super::gate::Ruling;
#[cfg(feature = "config")]
pub(super) use super::shadow::Shadow;
#[cfg(feature = "config")]
use super::shadow::Tried;

/// Nothing is in shadow without files.
#[cfg(not(feature = "config"))]
pub(super) enum Shadow {}

/// The decision of a shadow on a request, if there is one.
#[derive(Default)]
pub(super) struct Beside {
    #[cfg(feature = "config")]
    tried: Option<Box<Tried>>,
}

impl Beside {
    /// Asks the shadow, before the gate in force charges anything.
    #[cfg(feature = "config")]
    #[inline]
    pub(super) fn of<B>(shadow: Option<&std::sync::Arc<Shadow>>, request: &mut Request<B>) -> Self {
        Self {
            tried: shadow.and_then(|shadow| shadow.try_out(request)),
        }
    }

    #[cfg(not(feature = "config"))]
    #[inline]
    pub(super) fn of<B>(_: Option<&std::sync::Arc<Shadow>>, _: &mut Request<B>) -> Self {
        Self::default()
    }

    /// Holds it against the ruling of the gate in force, unless that has to wait.
    #[inline]
    pub(super) fn compare<B>(&mut self, ruling: &mut Ruling, request: &mut Request<B>) {
        #[cfg(feature = "config")]
        if self.tried.is_some()
            && !matches!(ruling, Ruling::Wait(_))
            && let Some(tried) = self.tried.take()
        {
            tried.compare(ruling, request);
        }
        #[cfg(not(feature = "config"))]
        let _ = (ruling, request);
    }
}

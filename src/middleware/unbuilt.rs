//! The compiler's message for a builder in place of a layer.
//!
//! A message of our own needs a trait of our own: a builder would be a layer if [`Unbuilt`] were [`Built`],
//! which it never is.

use std::fmt;

use tower_layer::Layer;

use super::{RateLimit, RateLimitLayer, RateLimitLayerBuilder};

/// A builder that was not built.
// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
pub struct Unbuilt<'a, S>(
    #[expect(dead_code, reason = "nothing reads it")] &'a RateLimitLayerBuilder<S>,
);

/// Never implemented: a builder that was built is a [`RateLimitLayer`].
// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a `RateLimitLayerBuilder` is not a layer until it is built",
    label = "this needs a layer, and there is its builder",
    note = "build it: `.layer(builder.build()?)`, or `.build().expect(\"limits that are right\")` where nothing can be returned"
)]
pub trait Built {
    /// Returns the layer.
    fn layer(self) -> RateLimitLayer;
}

// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
impl<S, T> Layer<T> for RateLimitLayerBuilder<S>
where
    for<'a> Unbuilt<'a, S>: Built,
{
    type Service = RateLimit<T>;

    fn layer(&self, inner: T) -> RateLimit<T> {
        Unbuilt(self).layer().layer(inner)
    }
}

impl<S> fmt::Debug for Unbuilt<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unbuilt").finish_non_exhaustive()
    }
}

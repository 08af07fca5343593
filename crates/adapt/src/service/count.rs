use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;
use tower_service::Service;

use super::Except;
use crate::guarded::{Admit, Guarded};
use crate::sampled::{Classify, Sampled};
use crate::{InFlightGuard, Sample, Traffic};

/// Counts the requests of any service for the signals of a [`Traffic`]: their latency, how many are in
/// flight, and how many fail.
///
/// A request is in flight from its call to its answer. An answer counts with its latency, and an error is a
/// failure, unless [`classify`](Self::classify) says otherwise. Add the layer inside the limit.
///
/// `Q` is the request, `T` the response and `E` the error of the service. For an HTTP service,
/// `middleware::TrafficLayer` knows the statuses, and a request is in flight to the end of the body.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_ratelimit_adapt::{Load, Signal, Traffic};
/// use tower_ratelimit_adapt::service::CountTrafficLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let traffic = Traffic::new();
/// let mut in_flight = traffic.in_flight(NonZeroU32::new(4).unwrap());
///
/// let work = service_fn(async |_: u32| Ok::<_, BoxError>("done"));
/// CountTrafficLayer::new(&traffic).layer(work).oneshot(7).await?;
/// assert_eq!(in_flight.read(Duration::ZERO), Some(Load::percent(25)));
/// # Ok(())
/// # }
/// ```
pub struct CountTrafficLayer<Q, T, E> {
    traffic: Traffic,
    except: Option<Arc<Except<Q>>>,
    classify: Option<Arc<Classify<T, E>>>,
}

impl<Q, T, E> CountTrafficLayer<Q, T, E> {
    /// Creates a layer that counts into `traffic`.
    pub fn new(traffic: &Traffic) -> Self {
        Self {
            traffic: traffic.clone(),
            except: None,
            classify: None,
        }
    }

    /// Excludes the requests that match the condition, such as probes.
    pub fn except(mut self, except: impl Fn(&Q) -> bool + Send + Sync + 'static) -> Self {
        self.except = Some(Arc::new(except));
        self
    }

    /// Sets how an answer counts: as served, as failed, or not at all.
    pub fn classify(
        mut self,
        classify: impl Fn(Result<&T, &E>) -> Sample + Send + Sync + 'static,
    ) -> Self {
        self.classify = Some(Arc::new(classify));
        self
    }
}

impl<S: Service<Q>, Q> Layer<S> for CountTrafficLayer<Q, S::Response, S::Error> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Guarded<S, Self> {
        Guarded::new(inner, self)
    }
}

impl<S: Service<Q>, Q> Admit<S, Q> for CountTrafficLayer<Q, S::Response, S::Error> {
    type Response = S::Response;
    type Guard = Sampled<InFlightGuard, Classify<S::Response, S::Error>>;

    #[inline]
    fn admit(
        &self,
        _: &mut S,
        request: &mut Q,
    ) -> Result<Self::Guard, Result<S::Response, S::Error>> {
        let except = self.except.as_ref();
        let is_counted = except.is_none_or(|except| !except(request));
        let guard = is_counted.then(|| self.traffic.begin());
        let classify = self.classify.clone();
        Ok(Sampled { guard, classify })
    }
}

impl<Q, T, E> Clone for CountTrafficLayer<Q, T, E> {
    fn clone(&self) -> Self {
        Self {
            traffic: self.traffic.clone(),
            except: self.except.clone(),
            classify: self.classify.clone(),
        }
    }
}

impl<Q, T, E> fmt::Debug for CountTrafficLayer<Q, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountTrafficLayer")
            .field("traffic", &self.traffic)
            .finish_non_exhaustive()
    }
}

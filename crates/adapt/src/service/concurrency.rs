//! The layer of an adaptive concurrency for services of any kind.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;
use tower_service::Service;

use super::Except;
use crate::guarded::{Admit, Guarded};
use crate::sampled::{Classify, Sampled};
use crate::{AdaptiveConcurrency, Permit, Sample, Saturated};

/// Bounds how many requests of any service are in flight at once, by an [adaptive limit](AdaptiveConcurrency).
///
/// - A slot is taken when the service is called, and is free when it has answered or the call is dropped. A service that
///   is not ready takes none.
/// - A request without a slot is refused at once, with the result of the closure for [`Saturated`].
/// - The limit learns from the time to the answer. An answer is a sample, and an error a sign of an overload,
///   unless [`classify`](Self::classify) says otherwise.
///
/// `Q` is the request, `T` the response and `E` the error of the service. For an HTTP service,
/// `middleware::AdaptiveConcurrencyLayer` also makes the refusal, knows the statuses, and holds the slot to the end of the
/// body.
///
/// ```
/// use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
/// use tower_ratelimit_adapt::{AdaptiveConcurrency, Sample, Saturated};
/// use tower_ratelimit_adapt::service::ConcurrencyLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let concurrency = AdaptiveConcurrency::builder().start(1).build()?;
/// let layer = ConcurrencyLayer::new(&concurrency, |full: Saturated| Err(full.into()))
///     .classify(|answer: Result<&usize, &BoxError>| match answer {
///         Ok(_) => Sample::Served,
///         // A query with a mistake says nothing of the load.
///         Err(error) if error.to_string().contains("syntax") => Sample::Nothing,
///         Err(_) => Sample::Overloaded,
///     });
///
/// let query = service_fn(async |query: &'static str| Ok::<_, BoxError>(query.len()));
/// let mut queries = layer.layer(query);
/// let first = queries.ready().await?.call("SELECT 1");
/// let second = queries.ready().await?.call("SELECT 2").await;
/// assert!(second.unwrap_err().is::<Saturated>());
///
/// assert_eq!(first.await?, 8);
/// assert_eq!(queries.ready().await?.call("SELECT 23").await?, 9);
/// # Ok(())
/// # }
/// ```
pub struct ConcurrencyLayer<Q, T, E> {
    options: Arc<Options<Q, T, E>>,
}

struct Options<Q, T, E> {
    concurrency: AdaptiveConcurrency,
    refuse: Arc<Refuse<T, E>>,
    except: Option<Arc<Except<Q>>>,
    partition: Option<Arc<PartitionOf<Q>>>,
    classify: Option<Arc<Classify<T, E>>>,
}

type Refuse<T, E> = dyn Fn(Saturated) -> Result<T, E> + Send + Sync;

type PartitionOf<Q> = dyn Fn(&Q) -> Option<Cow<'static, str>> + Send + Sync;

impl<Q, T, E> ConcurrencyLayer<Q, T, E> {
    /// Creates a layer over this limit, which several layers can share. `refuse` returns the result for a
    /// refused request.
    pub fn new(
        concurrency: &AdaptiveConcurrency,
        refuse: impl Fn(Saturated) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            options: Arc::new(Options {
                concurrency: concurrency.clone(),
                refuse: Arc::new(refuse),
                except: None,
                partition: None,
                classify: None,
            }),
        }
    }

    /// Excludes the requests that match the condition, such as probes. They take no slot and give no samples.
    pub fn except(self, except: impl Fn(&Q) -> bool + Send + Sync + 'static) -> Self {
        self.with(|options| options.except = Some(Arc::new(except)))
    }

    /// Sets the [partition](crate::AdaptiveConcurrencyBuilder::partition) of a request. `None`, and an
    /// unknown name, count as the rest.
    pub fn partition_of<P: Into<Cow<'static, str>>>(
        self,
        partition_of: impl Fn(&Q) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        let partition = move |request: &Q| partition_of(request).map(Into::into);
        self.with(|options| options.partition = Some(Arc::new(partition)))
    }

    /// Sets what an answer says about the load.
    pub fn classify(
        self,
        classify: impl Fn(Result<&T, &E>) -> Sample + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.classify = Some(Arc::new(classify)))
    }

    fn with(mut self, change: impl FnOnce(&mut Options<Q, T, E>)) -> Self {
        change(Arc::make_mut(&mut self.options));
        self
    }
}

impl<Q, T, E> Options<Q, T, E> {
    /// Takes a slot. Returns `None` for a request that needs none.
    fn enter(&self, request: &Q) -> Result<Option<Permit>, Saturated> {
        if self.except.as_ref().is_some_and(|except| except(request)) {
            return Ok(None);
        }
        let partition = self.partition.as_ref().and_then(|of| of(request));
        self.concurrency.enter(partition.as_deref()).map(Some)
    }
}

impl<S: Service<Q>, Q> Layer<S> for ConcurrencyLayer<Q, S::Response, S::Error> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Guarded<S, Self> {
        Guarded::new(inner, self)
    }
}

impl<S: Service<Q> + Clone, Q> Admit<S, Q> for ConcurrencyLayer<Q, S::Response, S::Error> {
    type Response = S::Response;
    type Guard = Sampled<Permit, Classify<S::Response, S::Error>>;

    #[inline]
    fn admit(
        &self,
        inner: &mut S,
        request: &mut Q,
    ) -> Result<Self::Guard, Result<S::Response, S::Error>> {
        let options = &*self.options;
        match options.enter(request) {
            Ok(guard) => {
                let classify = options.classify.clone();
                Ok(Sampled { guard, classify })
            }
            Err(full) => {
                // The instance that was polled ready may hold a permit or a place in a queue.
                *inner = inner.clone();
                Err((options.refuse)(full))
            }
        }
    }
}

impl<Q, T, E> Clone for Options<Q, T, E> {
    fn clone(&self) -> Self {
        Self {
            concurrency: self.concurrency.clone(),
            refuse: Arc::clone(&self.refuse),
            except: self.except.clone(),
            partition: self.partition.clone(),
            classify: self.classify.clone(),
        }
    }
}

impl<Q, T, E> Clone for ConcurrencyLayer<Q, T, E> {
    fn clone(&self) -> Self {
        let options = Arc::clone(&self.options);
        Self { options }
    }
}

impl<Q, T, E> fmt::Debug for ConcurrencyLayer<Q, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("concurrency", &self.options.concurrency)
            .finish_non_exhaustive()
    }
}

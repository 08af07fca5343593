//! The layer, and what it reads.

use std::fmt;
use std::sync::Arc;

use http::Request;
use http::header::CONTENT_LENGTH;
use http_body::SizeHint;
use tower_layer::Layer;

use super::reading::{Reading, Readings};
use super::{CurrentEnforcer, RateLimitLayer, ReadJson, Unreadable};
use crate::error::{ConfigError, or_panic};
use crate::key::{Head, Unread, WantedFields};
use crate::usage::{self, estimate};

const MAX_BYTES: usize = 64 * 1_024;

/// Reads fields of a request's JSON body, so that they decide its key, its cost, its estimate and its operation. It stands outside of
/// the [`RateLimitLayer`](crate::RateLimitLayer) whose policies ask for them.
///
/// - [`key::json`](crate::key::json()) is a key, or an operation, and [`usage::estimate`](crate::usage::estimate) has estimates. A
///   closure takes the [`JsonFields`](crate::key::JsonFields) from the extensions of the request.
/// - A body is read if its content type is JSON (`application/json`, `…+json`), it has no content coding, and it is at most 64 KiB
///   long. It then goes to the inner service, unchanged. The inner service is called when the body has arrived.
/// - A body is read whatever the limits inside say, unless they [refuse it](Self::unless_refused_by) without it. Let a timeout
///   outside end requests that send their body slowly.
/// - A request without a body has none of the fields.
///
/// The inner service gets another body type, [`ReadBody`](crate::middleware::ReadBody); a service of axum takes it.
///
/// # Defaults
///
/// - fields: none but those of the presets in [`usage::estimate`](crate::usage::estimate)
/// - longest body: 64 KiB
/// - which requests are read: all, even those that the limits inside refuse
/// - a body that cannot be read, and one in which a text stands twice: the request is refused, with status 413 if the body is too
///   long, 415 if it is no JSON or has a content coding, and 400 if it is no JSON object or a text stands twice
///
/// ```
/// use axum::{Router, body::Body, routing::post};
/// use http::Request;
/// use tower::ServiceExt;
/// use tower_ratelimit::middleware::{ReadJsonLayer, Unreadable};
/// use tower_ratelimit::plan::Operations;
/// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let chats = Policy::new("chats", FixedWindow::per_minute(100))
///     .key(key::global())
///     .operation(key::json("model"))
///     .operations(Operations::new().limit("large", FixedWindow::per_minute(1)));
/// let read = ReadJsonLayer::new()
///     .text("model")
///     .max_bytes(16 * 1_024)
///     .read_if(|head| (head.path() == "/chat").then_some(Unreadable::Refuse));
/// let app: Router = Router::new()
///     .route("/chat", post(|body: String| async { body }))
///     .layer(RateLimitLayer::builder().policy(chats).build()?)
///     // The last layer is the outermost.
///     .layer(read);
///
/// let ask = async |body: &'static str| {
///     let request = Request::post("/chat").header("content-type", "application/json");
///     app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap()
/// };
/// let large = r#"{"model":"large"}"#;
/// let response = ask(large).await;
/// assert_eq!(axum::body::to_bytes(response.into_body(), 1_000).await?, large);
/// assert_eq!(ask(large).await.status(), 429);
/// assert_eq!(ask(r#"{"model":"small"}"#).await.status(), 200);
/// assert_eq!(ask(r#"{"model":"small","model":"large"}"#).await.status(), 400);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReadJsonLayer {
    readings: Readings,
    /// The limits that may refuse a request before its body is read.
    limits: Option<CurrentEnforcer>,
}

impl Default for ReadJsonLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadJsonLayer {
    /// Creates a layer with the defaults above.
    pub fn new() -> Self {
        let mut wanted = WantedFields::default();
        for path in estimate::paths() {
            // They are paths, and few: a test builds this.
            let _ = wanted.number(path);
        }
        let _ = wanted.model(usage::MODEL);
        Self {
            readings: Readings::Own(Reading {
                wanted: Arc::new(wanted),
                max_bytes: MAX_BYTES,
                read_if: None,
                include_usage_if: None,
            }),
            limits: None,
        }
    }

    /// Asks this closure for the layer of each request, such as that of a file that may have changed.
    pub fn following(next: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        let next = move || next().readings.now();
        Self {
            readings: Readings::Following(Arc::new(next)),
            limits: None,
        }
    }

    /// Reads the text at this path, such as `model` or `params.name`. A text that stands twice in a body makes it unreadable, as one
    /// of more than 256 bytes does.
    ///
    /// # Panics
    ///
    /// If the path is not one, or the layer reads 64 fields already. [`try_text`](Self::try_text) returns an error
    /// instead.
    #[track_caller]
    pub fn text(self, path: &str) -> Self {
        or_panic(self.try_text(path))
    }

    /// Reads the text at this path; see [`text`](Self::text).
    ///
    /// # Errors
    ///
    /// When the path has an empty name or one of more than 64 bytes, or more than eight names, and when the layer reads 64 fields
    /// already.
    pub fn try_text(self, path: &str) -> Result<Self, ConfigError> {
        self.wanting(|wanted| wanted.text(path))
    }

    /// Reads the number at this path. Of several in a body, the largest counts.
    ///
    /// # Panics
    ///
    /// See [`text`](Self::text). [`try_number`](Self::try_number) returns an error instead.
    #[track_caller]
    pub fn number(self, path: &str) -> Self {
        or_panic(self.try_number(path))
    }

    /// Reads the number at this path; see [`number`](Self::number).
    ///
    /// # Errors
    ///
    /// See [`try_text`](Self::try_text).
    pub fn try_number(self, path: &str) -> Result<Self, ConfigError> {
        self.wanting(|wanted| wanted.number(path))
    }

    /// Reads the fields of a request of the Model Context Protocol for [`key::mcp_name`](crate::key::mcp_name), and holds its headers
    /// against them: a request is refused with status 400, as the protocol says, if its `Mcp-Method` is not the `method` of the body,
    /// or its `Mcp-Name` is not the name of the tool or of the prompt, or the address of the resource. A header that is not there
    /// says nothing else: clients of versions before 2026-07-28 have none.
    ///
    /// [The guide](crate::guide::mcp) has a page on it.
    ///
    /// # Panics
    ///
    /// If the layer reads more than 61 fields already. [`try_mcp`](Self::try_mcp) returns an error instead.
    #[track_caller]
    pub fn mcp(self) -> Self {
        or_panic(self.try_mcp())
    }

    /// Reads requests of the Model Context Protocol; see [`mcp`](Self::mcp).
    ///
    /// # Errors
    ///
    /// When the layer reads more than 61 fields already.
    pub fn try_mcp(self) -> Result<Self, ConfigError> {
        self.wanting(WantedFields::mcp)
    }

    /// Sets the length of the longest body that is read, in bytes. Each request under way may hold so many.
    pub fn max_bytes(self, bytes: usize) -> Self {
        let reading = self.readings.now();
        self.with(Reading {
            max_bytes: bytes,
            ..reading
        })
    }

    /// Sets which requests are read, and what happens to one that cannot be read. A request for which the closure returns `None` is
    /// not read.
    pub fn read_if(
        self,
        read_if: impl Fn(&Head<'_>) -> Option<Unreadable> + Send + Sync + 'static,
    ) -> Self {
        let reading = self.readings.now();
        self.with(Reading {
            read_if: Some(Arc::new(read_if)),
            ..reading
        })
    }

    /// Sets which requests ask for the usage of the stream that answers them, as services in the language of OpenAI tell it only on
    /// request; the default is none.
    ///
    /// A JSON body with `"stream": true` gets `"stream_options": {"include_usage": true}`, unless the client asks for it itself, and
    /// `accept-encoding: identity`. The event of the usage, in which `choices` is empty, is taken out of the answer again, outside of
    /// the limits that [settle](crate::usage::openai) by it; the `"usage": null` in other events stays. Headers and trailers that
    /// hold for the bytes of the answer are taken out with it: its length, `etag`, digests and signatures. An answer that is
    /// compressed all the same keeps the event.
    ///
    /// A request with a digest or a signature of its body (`content-digest`, `signature`, AWS) stays as it is, and so does one whose
    /// body [cannot be read](Unreadable::Pass).
    ///
    /// Chat completions and completions know the member. Others, such as responses, refuse it: name the paths.
    ///
    /// ```
    /// use tower_ratelimit::middleware::ReadJsonLayer;
    ///
    /// let read = ReadJsonLayer::new().include_usage_if(|head| head.path() == "/v1/chat/completions");
    /// ```
    pub fn include_usage_if(
        self,
        holds: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let reading = self.readings.now();
        self.with(Reading {
            include_usage_if: Some(Arc::new(holds)),
            ..reading
        })
    }

    /// Does not read the body of a request that these limits refuse whatever it says. They are the limits inside, for which the
    /// body is read.
    ///
    /// Policies that ask for no field of the body are looked at before it is read. If one of them denies the request, the answer is
    /// its refusal, in which those that need the body do not appear. If they allow it, they are charged together with the others
    /// when the body has been read, all or none. A policy that lets requests [wait](crate::Policy::wait_up_to) refuses none
    /// that may wait, a [`LeakyQueue`](crate::LeakyQueue) refuses none before the body is read, and a request whose plan is
    /// being looked up is read. A request that is refused so is not decided by a file in shadow.
    ///
    /// It costs a second look: closures of the policies see such a request twice, and a [shared store](crate::store) is asked
    /// once more.
    ///
    /// ```
    /// use axum::{Router, body::Body, routing::post};
    /// use http::Request;
    /// use tower::ServiceExt;
    /// use tower_ratelimit::middleware::ReadJsonLayer;
    /// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = RateLimitLayer::builder()
    ///     .policy(Policy::new("client", FixedWindow::per_minute(1)).key(key::api_key()))
    ///     .policy(Policy::new("models", FixedWindow::per_minute(100)).key(key::json("model")))
    ///     .build()?;
    /// let read = ReadJsonLayer::new().text("model").unless_refused_by(&limits);
    /// let app: Router = Router::new()
    ///     .route("/chat", post(|body: String| async { body }))
    ///     .layer(limits)
    ///     // The last layer is the outermost.
    ///     .layer(read);
    ///
    /// let ask = async |body: Body| {
    ///     let request = Request::post("/chat").header("x-api-key", "ann").header("content-type", "application/json");
    ///     app.clone().oneshot(request.body(body).unwrap()).await.unwrap().status()
    /// };
    /// assert_eq!(ask(Body::from(r#"{"model":"small"}"#)).await, 200);
    /// // A body that never comes.
    /// let never = futures_util::stream::pending::<Result<String, std::io::Error>>();
    /// assert_eq!(ask(Body::from_stream(never)).await, 429);
    /// # Ok(())
    /// # }
    /// ```
    pub fn unless_refused_by(self, limits: &RateLimitLayer) -> Self {
        Self {
            limits: Some(limits.current().clone()),
            ..self
        }
    }

    /// Reads a whole body that is at hand, for a decision about a request without its body, such as one that a proxy describes. The
    /// fields are then in the extensions of the request.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::key::{self, Extract, Head, IntoKey};
    /// use tower_ratelimit::middleware::ReadJsonLayer;
    ///
    /// let request = Request::post("/chat").header("content-type", "application/json");
    /// let mut request = request.body(())?;
    /// let read = ReadJsonLayer::new().text("model");
    /// read.read_whole(&mut request, br#"{"model":"small"}"#).expect("a body with a model");
    /// assert_eq!(key::json("model").extract(&Head::of(&request)), Ok("small".into_key()));
    /// # Ok::<(), http::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Why the body cannot be read, if the request is to be refused then.
    pub fn read_whole<B>(&self, request: &mut Request<B>, body: &[u8]) -> Result<(), Unread> {
        let length = body.len() as u64;
        self.read_at_hand(request, Some(body), SizeHint::with_exact(length))
    }

    /// Takes the beginning of a body that is at hand, and not the rest, for a body that [is too long](Unread::TooLong), such as one that
    /// a proxy has cut. An estimate is made of the length that the request declares, or of the beginning.
    ///
    /// ```
    /// use http::Request;
    /// use tower_ratelimit::key::Unread;
    /// use tower_ratelimit::middleware::ReadJsonLayer;
    ///
    /// let request = Request::post("/chat").header("content-type", "application/json");
    /// let mut request = request.body(())?;
    /// let read = ReadJsonLayer::new().text("model");
    /// assert_eq!(read.read_beginning(&mut request, br#"{"model":"sm"#), Err(Unread::TooLong));
    /// # Ok::<(), http::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Why the body cannot be read, if the request is to be refused then.
    pub fn read_beginning<B>(&self, request: &mut Request<B>, begin: &[u8]) -> Result<(), Unread> {
        let declared = request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        let mut length = SizeHint::new();
        length.set_lower(declared.unwrap_or(0).max(begin.len() as u64));
        self.read_at_hand(request, None, length)
    }

    /// Reads a body of this length, or takes it for one that is too long.
    fn read_at_hand<B>(
        &self,
        request: &mut Request<B>,
        body: Option<&[u8]>,
        length: SizeHint,
    ) -> Result<(), Unread> {
        let reading = self.readings.now();
        let lower = length.lower();
        let (fields, unreadable) = match reading.look(&Head::of(request), length, false) {
            Ok(unreadable) => {
                let too_long = || reading.wanted.unread(Unread::TooLong, lower);
                let read = |body| reading.wanted.read(body).under(request.headers());
                (body.map_or_else(too_long, read), unreadable)
            }
            Err((why, unreadable)) => (reading.wanted.unread(why, lower), unreadable),
        };
        if let (Some(why), Unreadable::Refuse) = (fields.unread(), unreadable) {
            return Err(why);
        }
        request.extensions_mut().insert(fields);
        Ok(())
    }

    /// Takes a field that is not among those of the layer for one that no body has. Limits may change between the reading of a
    /// body and the decision.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn and_no_others(self) -> Self {
        let mut reading = self.readings.now();
        Arc::make_mut(&mut reading.wanted).and_no_others();
        self.with(reading)
    }

    fn with(self, reading: Reading) -> Self {
        Self {
            readings: Readings::Own(reading),
            ..self
        }
    }

    fn wanting(
        self,
        add: impl FnOnce(&mut WantedFields) -> Result<(), ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut reading = self.readings.now();
        add(Arc::make_mut(&mut reading.wanted))?;
        Ok(self.with(reading))
    }
}

impl<S> Layer<S> for ReadJsonLayer {
    type Service = ReadJson<S>;

    fn layer(&self, inner: S) -> ReadJson<S> {
        ReadJson::new(inner, self.readings.clone(), self.limits.clone())
    }
}

impl fmt::Debug for ReadJsonLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadJsonLayer")
            .field(&self.readings)
            .finish()
    }
}

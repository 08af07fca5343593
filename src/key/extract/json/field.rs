use super::fields::JsonFields;
use super::path::{EXAMPLE, JsonPath};
use super::{Extractor, Head, IntoKey, Key, Keyed, Missing, Origin, Typed};
use crate::diagnostics::Diagnostic;
use crate::error::{ConfigError, or_panic};

/// The text at this path of the request's JSON body, such as `model` or `params.name`. The path is the names of the members on
/// the way with dots between them. A number, `true` and `false` count as the text that the body has.
///
/// A [`ReadJsonLayer`](crate::middleware::ReadJsonLayer) outside reads the body, and has to name the same path. If it does not, the
/// answer is `500 Internal Server Error`, and the log says so once (`TRL039`).
///
/// The client chooses the value: see [what a client can choose](crate::key#what-a-client-can-choose). All requests without
/// the field share one quota.
///
/// ```
/// use axum::{Router, body::Body, routing::post};
/// use http::Request;
/// use tower::ServiceExt;
/// use tower_ratelimit::middleware::ReadJsonLayer;
/// use tower_ratelimit::{FixedWindow, RateLimitLayer, key};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app: Router = Router::new()
///     .route("/chat", post(|body: String| async { body }))
///     .layer(RateLimitLayer::new(key::json("model"), FixedWindow::per_minute(1)))
///     // The last layer is the outermost.
///     .layer(ReadJsonLayer::new().text("model"));
///
/// let ask = async |body: &'static str| {
///     let request = Request::post("/chat").header("content-type", "application/json");
///     let response = app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
///     response.status()
/// };
/// assert_eq!(ask(r#"{"model":"small"}"#).await, 200);
/// assert_eq!(ask(r#"{"model":"large"}"#).await, 200);
/// assert_eq!(ask(r#"{"model":"small"}"#).await, 429);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// If the path is not one. [`try_json`] returns an error instead.
#[track_caller]
pub fn json(path: &str) -> Extractor<JsonField> {
    or_panic(try_json(path))
}

/// The text at this path of the request's JSON body; see [`json`].
///
/// # Errors
///
/// When the path has an empty name or one of more than 64 bytes, or more than eight names.
pub fn try_json(path: &str) -> Result<Extractor<JsonField>, ConfigError> {
    JsonPath::parse(path, EXAMPLE)?;
    Ok(Extractor::of(JsonField { path: path.into() }))
}

#[derive(Clone, Debug)]
pub struct JsonField {
    path: Box<str>,
}

impl Origin for JsonField {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some(format!("field {} of the body", self.path))
    }
}

impl Typed for JsonField {
    type Value<'a> = &'a str;

    fn value<'a>(&self, head: &Head<'a>) -> Result<&'a str, Missing> {
        let fields = head.extension::<JsonFields>();
        match fields.filter(|fields| fields.knows(&self.path)) {
            Some(fields) => fields.text(&self.path).ok_or(Missing::ByClient),
            None => Err(Missing::ByServer(NOT_READ)),
        }
    }
}

impl Keyed for JsonField {
    fn key(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

pub(crate) const NOT_READ: Diagnostic = Diagnostic::new(
    "TRL039",
    "JsonFields",
    "a policy asks for a field of the request's body, and no layer outside has read it",
    "put a `ReadJsonLayer` that names the field outside of the limits; in a file of limits: put the layer that \
     `Config::read_json` returns outside of that of the limits",
);

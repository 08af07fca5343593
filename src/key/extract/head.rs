use std::fmt;

use super::parts::SharedParts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request: everything except the body.
///
/// Extractors, costs and conditions see this view, whatever the body type. So the type of a layer
/// does not name a body.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    parts: Option<&'a SharedParts>,
}

impl<'a> Head<'a> {
    /// Returns the head of this request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            parts: None,
        }
    }

    /// Returns this head with room for what the levels of a tree read of it.
    pub(crate) fn sharing(self, parts: &'a SharedParts) -> Self {
        let parts = Some(parts);
        Self { parts, ..self }
    }

    /// Returns what the levels of a tree have read of it.
    pub(crate) fn parts(&self) -> Option<&'a SharedParts> {
        self.parts
    }

    /// Returns the method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the request target.
    ///
    /// Most HTTP/1.1 requests have no host in it. If there is one, the client has chosen it.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Returns the path of the target.
    pub fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// Returns the HTTP version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns all headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the first value of a header, or `None` if it is absent or not visible ASCII.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns all extensions.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the extension of this type, if an outer layer has put one there.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }
}

impl fmt::Debug for Head<'_> {
    /// Leaves out headers and query, because they hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", self.method)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

impl tower_ratelimit_core::__internal::Subject for Head<'static> {
    type Of<'a> = Head<'a>;
}

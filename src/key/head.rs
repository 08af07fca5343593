use std::fmt;

use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request: everything but its body.
///
/// Extractors, costs and conditions see this one view, whatever the body is, so that a layer
/// has no body type in its name.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The head of this request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The target. It has no host in most requests of HTTP/1.1; where it has one, the client has
    /// chosen it.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The path of the target.
    pub fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        self.version
    }

    /// All header fields.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The first value of a header field, if it is there and is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All extensions.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The extension of this type, if a layer outside has put one there.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }
}

impl fmt::Debug for Head<'_> {
    /// Headers and the query are left out, since they hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", self.method)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

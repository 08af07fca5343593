use super::connection::{Certificate, certificate};
use crate::diagnostics::Diagnostic;
use crate::key::extract::{Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Read, Typed};

/// The whole TLS certificate of the client, as a tonic server has verified it.
///
/// A client proves that it has the key of the certificate, and the authority that signed it decides
/// who gets one, so a client cannot choose this key. A renewed certificate of the same subject is
/// another key. To count by subject, read the subject from the certificate in
/// [`map`](Extractor::map), whose closure receives the DER encoding.
///
/// If there is no certificate, the server is not set up to ask for one: calls are refused with
/// `INTERNAL`, and the log says so once (`TRL010`). Where clients may leave it out
/// (`client_auth_optional`), use [`optional`](Extractor::optional).
///
/// The certificate is read from where tonic puts it (`TlsConnectInfo` of `TcpConnectInfo` or of
/// `UdsConnectInfo`). A certificate longer than a [`Key`] becomes a digest, which takes some
/// microseconds.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("machine", TokenBucket::per_second(50)).key(key::client_certificate());
/// ```
pub fn client_certificate() -> Extractor<ClientCertificate> {
    Extractor::of(ClientCertificate { is_optional: false })
}

#[derive(Clone, Copy, Debug)]
pub struct ClientCertificate {
    is_optional: bool,
}

impl Extractor<ClientCertificate> {
    /// Treats a connection without a certificate as one whose client has left it out. All such
    /// connections share one quota, or `or` gives them another key:
    ///
    /// ```
    /// use tower_ratelimit::{Policy, TokenBucket, key};
    ///
    /// let machine = key::client_certificate().optional();
    /// let policy = Policy::new("caller", TokenBucket::per_second(5)).key(machine.or(key::client_ip()));
    /// ```
    ///
    /// A server that does not ask for certificates is then not reported.
    pub fn optional(mut self) -> Self {
        self.source.is_optional = true;
        self
    }
}

impl ClientCertificate {
    fn of_connection<D>(
        self,
        head: &Head<'_>,
        read: impl FnOnce(&[u8]) -> D,
    ) -> Result<D, Missing> {
        match certificate(head, read) {
            Certificate::Shown(read) => Ok(read),
            Certificate::NotShown | Certificate::NoTls if self.is_optional => {
                Err(Missing::ByClient)
            }
            Certificate::NotShown => Err(Missing::ByServer(NOT_SHOWN)),
            Certificate::NoTls => Err(Missing::ByServer(NO_TLS)),
        }
    }
}

const NO_TLS: Diagnostic = not_there(
    "connection without TLS",
    "let tonic end TLS and ask for certificates: `ServerTlsConfig::new().identity(own).client_ca_root(theirs)`",
);

const NOT_SHOWN: Diagnostic = not_there(
    "client certificate",
    "ask for certificates by `ServerTlsConfig::client_ca_root(..)`, or say that some clients have none: `key::client_certificate().optional()`",
);

const fn not_there(subject: &'static str, remedy: &'static str) -> Diagnostic {
    let problem = "a connection has no certificate of its client, so clients cannot be told apart";
    Diagnostic::new("TRL010", subject, problem, remedy)
}

impl Origin for ClientCertificate {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl Typed for ClientCertificate {
    /// A copy, because the connection info of tonic cannot be borrowed.
    type Value<'a> = Vec<u8>;

    fn value(&self, head: &Head<'_>) -> Result<Vec<u8>, Missing> {
        self.of_connection(head, <[u8]>::to_vec)
    }
}

impl Read for ClientCertificate {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.of_connection(head, |certificate| certificate.into_key())
    }
}

impl KeyOf for ClientCertificate {
    /// The encoding (DER) of the certificate.
    type Value<'a> = &'a [u8];

    fn make(&self, certificate: &[u8]) -> Result<Key, Missing> {
        Ok(certificate.into_key())
    }
}

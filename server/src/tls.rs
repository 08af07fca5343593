//! TLS to the upstream, and to the server itself.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    WantsVerifier,
};

/// The certificates by which an upstream over TLS is trusted.
#[derive(Clone, Debug, Default)]
pub enum Roots {
    /// The certificates that the platform trusts.
    #[default]
    Platform,
    /// The certificates of this PEM file, and no others.
    File(PathBuf),
}

impl Roots {
    /// Returns the security of connections to an upstream.
    pub(crate) fn config(&self) -> Result<ClientConfig, String> {
        Ok(match self {
            Self::Platform => builder()?
                .with_native_roots()
                .map_err(|error| format!("the platform trusts no certificate: {error}"))?
                .with_no_client_auth(),
            Self::File(path) => {
                let wrong = |why: String| format!("--upstream-ca: {}: {why}", path.display());
                let text = fs::read(path).map_err(|error| wrong(error.to_string()))?;
                builder()?
                    .with_root_certificates(roots(&text).map_err(wrong)?)
                    .with_no_client_auth()
            }
        })
    }
}

/// Returns the certificates of a text in PEM, of which there is at least one.
pub(crate) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("it has no certificate in PEM".to_owned());
    }
    Ok(found)
}

/// Returns the authorities of a text in PEM, of which there is at least one.
pub(crate) fn roots(text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(text)? {
        let added = roots.add(certificate);
        added.map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// Returns the cryptography. It is named, since other packages of a build may bring another one.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}

/// Connects to upstreams without TLS, too.
pub(crate) fn connector(
    config: ClientConfig,
    mut tcp: HttpConnector,
    is_http2: bool,
) -> HttpsConnector<HttpConnector> {
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http();
    if is_http2 {
        builder.enable_http2().wrap_connector(tcp)
    } else {
        builder.enable_http1().wrap_connector(tcp)
    }
}

/// Returns a configuration for an upstream without TLS: it trusts no certificate, and none is needed.
pub(crate) fn unused() -> Result<ClientConfig, String> {
    let roots = RootCertStore::empty();
    Ok(builder()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Trusts any server, for a probe on its own machine, which tells it no secret: one that trusted the newest certificate alone
/// would end a server that goes on with the last good one. What the client shows is still to be said.
pub(crate) fn of_any() -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let algorithms = provider().signature_verification_algorithms;
    Ok(builder()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(algorithms))))
}

/// Trusts any certificate.
#[derive(Debug)]
struct Any(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

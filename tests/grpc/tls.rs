//! A tonic server that terminates TLS, and requests client certificates.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tower_ratelimit::key::{self, Extract};
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer};

use crate::echo::{Client, Echo, Running};

/// Signs certificates, of the server and of clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        Self {
            certificate: Certificate::from_pem(own.pem()),
            issuer: Issuer::new(params, key),
        }
    }

    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn identity(&self, name: &str) -> Identity {
        let (signed, key) = self.signed(name);
        Identity::from_pem(signed.pem(), key.serialize_pem())
    }

    /// Returns a server that counts by this key, one call a day. Another program has terminated TLS before it gets a
    /// connection.
    async fn server_behind_tls(&self, key: impl Extract) -> Running {
        let policy = Policy::new("client", FixedWindow::per_day(1)).key(key);
        let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
        let (own, key) = self.signed("localhost");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key);
        let mut tls = tls.unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        Running::start(|listener| async move {
            let incoming = TcpListenerStream::new(listener);
            let incoming = incoming.then(move |socket| {
                let acceptor = acceptor.clone();
                async move { acceptor.accept(socket?).await }
            });
            let server = Server::builder().layer(layer).add_service(Echo);
            server.serve_with_incoming(incoming).await.unwrap();
        })
        .await
    }

    /// Returns a server that counts by this key, one call a day.
    async fn server(&self, key: impl Extract) -> Running {
        let policy = Policy::new("client", FixedWindow::per_day(1)).key(key);
        let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
        let tls = ServerTlsConfig::new()
            .identity(self.identity("localhost"))
            .client_ca_root(self.certificate.clone())
            .client_auth_optional(true);
        Running::start(|listener| async move {
            let mut server = Server::builder().tls_config(tls).unwrap().layer(layer);
            let server = server.add_service(Echo);
            let incoming = TcpListenerStream::new(listener);
            server.serve_with_incoming(incoming).await.unwrap();
        })
        .await
    }

    async fn client(&self, server: &Running, identity: Option<&Identity>) -> Client {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(self.certificate.clone())
            .domain_name("localhost");
        if let Some(identity) = identity {
            tls = tls.identity(identity.clone());
        }
        let endpoint = Endpoint::try_from(format!("https://{}", server.address)).unwrap();
        let endpoint = endpoint.tls_config(tls).unwrap();
        Client::of(endpoint.connect().await.unwrap())
    }

    /// Makes a call over a connection of its own, and returns the result.
    async fn call(&self, server: &Running, identity: Option<&Identity>) -> Result<(), Code> {
        let mut client = self.client(server, identity).await;
        let said = client.say("a").await;
        said.map(drop).map_err(|status| status.code())
    }
}

#[tokio::test]
async fn a_peer_behind_tls_is_counted_by_address() {
    let authority = Authority::new();
    let server = authority.server(key::peer_ip()).await;
    assert_eq!(authority.call(&server, None).await, Ok(()));
    let again = authority.call(&server, None).await;
    assert_eq!(again, Err(Code::ResourceExhausted));
}

#[tokio::test]
async fn where_another_ends_tls_the_peer_is_found_too() {
    let authority = Authority::new();
    let server = authority.server_behind_tls(key::client_ip()).await;
    assert_eq!(authority.call(&server, None).await, Ok(()));
    let again = authority.call(&server, None).await;
    assert_eq!(again, Err(Code::ResourceExhausted));
}

#[tokio::test]
async fn clients_are_told_apart_by_their_certificates() {
    let authority = Authority::new();
    let [ann, bob] = ["ann", "bob"].map(|name| authority.identity(name));
    let server = authority.server(key::client_certificate()).await;
    assert_eq!(authority.call(&server, Some(&ann)).await, Ok(()));
    let again = authority.call(&server, Some(&ann)).await;
    assert_eq!(again, Err(Code::ResourceExhausted));
    assert_eq!(authority.call(&server, Some(&bob)).await, Ok(()));
    // The certificate is required.
    assert_eq!(authority.call(&server, None).await, Err(Code::Internal));
}

#[tokio::test]
async fn where_a_certificate_may_be_left_out_something_else_counts() {
    let authority = Authority::new();
    let ann = authority.identity("ann");
    let certificate = key::client_certificate().optional();
    let server = authority.server(certificate.or(key::peer_ip())).await;
    assert_eq!(authority.call(&server, None).await, Ok(()));
    assert_eq!(authority.call(&server, Some(&ann)).await, Ok(()));
    let again = authority.call(&server, None).await;
    assert_eq!(again, Err(Code::ResourceExhausted));
}

#[tokio::test]
async fn a_certificate_can_be_read() {
    let authority = Authority::new();
    let [ann, another] = ["ann", "ann"].map(|name| authority.identity(name));
    // Stands for the subject: whether the certificate contains the name.
    let named = |der: Vec<u8>| der.windows(3).any(|part| part == b"ann").then_some("ann");
    let server = authority.server(key::client_certificate().map(named)).await;
    assert_eq!(authority.call(&server, Some(&ann)).await, Ok(()));
    let renewed = authority.call(&server, Some(&another)).await;
    assert_eq!(renewed, Err(Code::ResourceExhausted));
}

//! An upstream over TLS: a server of HTTPS in front of one that speaks plain HTTP.

use std::fs;
use std::future::pending;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use ratelimitd::tls::Roots;
use ratelimitd::{Upstream, sample};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::process;
use super::scene::{LONG, Scene, WIDE, listener};

/// A certificate that has signed itself, and a file of it.
struct Certificate {
    config: Arc<ServerConfig>,
    file: PathBuf,
}

impl Certificate {
    fn new(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file =
            std::env::temp_dir().join(format!("ratelimitd-{}-{name}.pem", std::process::id()));
        fs::write(&file, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let mut config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        Self { config, file }
    }

    fn roots(&self) -> Roots {
        Roots::File(self.file.clone())
    }

    /// Ends TLS before a server. Returns the URL.
    async fn before(&self, server: std::net::SocketAddr) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "https://localhost:{}",
            listener.local_addr().unwrap().port()
        );
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate goes away.
                    if let Ok(mut client) = acceptor.accept(stream).await {
                        let mut server = TcpStream::connect(server).await.unwrap();
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        url
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[tokio::test]
async fn an_upstream_over_tls_answers_if_it_is_trusted_and_502_is_told_if_not() {
    let (own, other) = (Certificate::new("own"), Certificate::new("other"));
    let (listener, _) = listener().await;
    let server = listener.local_addr().unwrap();
    tokio::spawn(sample::serve(listener, |_| false));
    let url = own.before(server).await;
    for (roots, expected) in [(own.roots(), 200), (other.roots(), 502)] {
        let (scene, _serving) = Scene::trusting(&roots, pending(), &url, WIDE, LONG).await;
        let answer = scene.get("/page?q=1", &[]).await;
        assert_eq!(answer.status(), expected, "{roots:?}: {answer:?}");
        if expected == 200 {
            assert_eq!(answer.arrived()["uri"], "/page?q=1");
            assert_eq!(answer.arrived()["headers"]["host"], "example.com");
        }
    }
}

/// The variable says where the roots are, as the image and the distributions have them in a place of their own.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_the_roots_of_the_platform_are_trusted() {
    let (own, other) = (
        Certificate::new("platform"),
        Certificate::new("not-platform"),
    );
    let (listener, _) = listener().await;
    let server = listener.local_addr().unwrap();
    tokio::spawn(sample::serve(listener, |_| false));
    let url = own.before(server).await;
    for (roots, expected) in [(&own, 200), (&other, 502)] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        program.env_clear().env("SSL_CERT_FILE", &roots.file);
        let arguments = ["--listen", "127.0.0.1:0", "--upstream", &url];
        let program = process::Server::run(program, &arguments);
        let answer = process::get(&program.clients, "/", process::HOST);
        let expected = format!("HTTP/1.1 {expected} ");
        assert!(answer.starts_with(&expected), "{answer}");
    }
}

#[tokio::test]
async fn calls_of_grpc_pass_over_tls() {
    let certificate = Certificate::new("grpc");
    let (listener, _) = listener().await;
    let server = listener.local_addr().unwrap();
    let (reporter, health) = tonic_health::server::health_reporter();
    let serving = tonic_health::ServingStatus::Serving;
    reporter.set_service_status("shop", serving).await;
    let upstream = Server::builder().add_service(health);
    tokio::spawn(upstream.serve_with_incoming(TcpListenerStream::new(listener)));

    let url = certificate.before(server).await;
    let roots = certificate.roots();
    let (scene, _serving) = Scene::trusting(&roots, pending(), &url, WIDE, LONG).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", scene.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let service = "shop".to_owned();
    let response = client.check(HealthCheckRequest { service }).await.unwrap();
    assert_eq!(response.get_ref().status, 1);
}

#[tokio::test]
async fn an_upstream_that_cannot_be_is_refused_at_the_start() {
    let refused = |upstream: &str, roots: &Roots| Upstream::new(upstream, roots, LONG).unwrap_err();
    let empty = std::env::temp_dir().join(format!("ratelimitd-{}-empty.pem", std::process::id()));
    fs::write(&empty, "no certificate").unwrap();
    let error = refused("https://localhost", &Roots::File(empty.clone()));
    assert!(error.starts_with("--upstream-ca: "), "{error}");
    assert!(error.ends_with("it has no certificate in PEM"), "{error}");
    fs::remove_file(&empty).unwrap();
    let error = refused("https://localhost", &Roots::File(empty));
    assert!(error.starts_with("--upstream-ca: "), "{error}");
    for (upstream, why) in [
        ("ftp://localhost", "is neither http nor https"),
        ("localhost", "has no scheme"),
        ("https://localhost/path", "has a path"),
    ] {
        let error = refused(upstream, &Roots::default());
        assert!(error.contains(why), "{error}");
    }
}

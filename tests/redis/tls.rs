//! Connections to a server over TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use redis::aio::ConnectionLike;
use redis::{Client, Cmd, Pipeline, RedisFuture, TlsCertificates, Value};
use tower_ratelimit::error::{StoreError, StoreErrorKind};

use crate::scene::{daily, keys, limiter, patient, story, used, without_a_standby};
use crate::support::redis::{Server, free_port};

/// A server with a self-signed certificate.
struct Scene {
    server: Server,
    url: String,
    certificate: String,
    folder: PathBuf,
}

impl Scene {
    fn start(name: &str) -> Self {
        Self::with(name, &certificate_for("127.0.0.1"))
    }

    fn with(name: &str, certificate: &CertificateParams) -> Self {
        // A setting that exists already stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        let folder = std::env::temp_dir().join(format!("trl-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let cert = file("cert.pem", &certificate);
        let key = file("key.pem", &key.serialize_pem());
        let port = free_port();
        let server = Server::start(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &cert,
            "--tls-auth-clients",
            "no",
        ]);
        Self {
            server,
            url: format!("rediss://127.0.0.1:{port}/"),
            certificate,
            folder,
        }
    }

    /// Returns a client with the certificate of the server as its root.
    fn client(&self) -> Client {
        let trusted = TlsCertificates {
            client_tls: None,
            root_cert: Some(self.certificate.clone().into_bytes()),
        };
        Client::build_with_tls(&*self.url, trusted).unwrap()
    }
}

fn certificate_for(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

/// A connection that shakes hands with the server in each call.
#[derive(Clone)]
struct Anew(Client);

impl ConnectionLike for Anew {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async {
            let mut connection = self.0.get_multiplexed_async_connection().await?;
            connection.req_packed_command(command).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("no pipeline is sent")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let folder: &Path = &self.folder;
        // The result does not matter to the test.
        let _ = fs::remove_dir_all(folder);
    }
}

#[tokio::test]
async fn a_connection_with_a_root_of_ones_own_is_taken() {
    let scene = Scene::start("own");
    let client = scene.client();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let store = patient().over(connection).unwrap();
    let told = limiter(&store, [daily("a", 5)])
        .check("ann", 2)
        .await
        .unwrap();
    assert_eq!(used(&told), [2]);
    assert_eq!(keys(&scene.server).len(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_vouched_for_is_not_talked_to() {
    let scene = Scene::start("unknown");
    let error = patient().connect(&scene.url).await.map(drop).unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unavailable,
        "{}",
        story(&error)
    );
    assert_eq!(
        error.reason(),
        Some("untrusted certificate"),
        "{}",
        story(&error)
    );
    let lazy = patient().open(&scene.url).unwrap();
    assert!(
        limiter(&lazy, [daily("a", 5)])
            .check("ann", 1)
            .await
            .is_err()
    );
    assert!(keys(&scene.server).is_empty());
}

/// The certificate is a root of the client, so that nothing else is wrong with it.
async fn told_of(name: &str, certificate: &CertificateParams) -> StoreError {
    let scene = Scene::with(name, certificate);
    let store = patient().over(Anew(scene.client())).unwrap();
    let limiter = limiter(&store, [without_a_standby(daily("a", 5))]);
    let error = limiter.check("ann", 1).await.unwrap_err();
    assert!(keys(&scene.server).is_empty());
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unavailable,
        "{}",
        story(&error)
    );
    error
}

#[tokio::test]
async fn a_server_whose_certificate_is_out_of_date_is_told_as_such() {
    let mut expired = certificate_for("127.0.0.1");
    expired.not_after = date_time_ymd(2000, 1, 1);
    let mut early = certificate_for("127.0.0.1");
    early.not_before = date_time_ymd(4000, 1, 1);
    for (name, certificate, said) in [
        ("expired", &expired, "certificate expired"),
        ("early", &early, "not valid"),
    ] {
        let error = told_of(name, certificate).await;
        let story = story(&error);
        assert_eq!(error.reason(), Some("certificate out of date"), "{story}");
        assert!(story.contains(said), "{story}");
    }
}

#[tokio::test]
async fn a_server_whose_certificate_has_another_name_is_told_as_such() {
    let error = told_of("name", &certificate_for("redis.internal")).await;
    let story = story(&error);
    assert_eq!(
        error.reason(),
        Some("certificate of another name"),
        "{story}"
    );
    // Both names, of which one has to change.
    assert!(story.contains("127.0.0.1"), "{story}");
    assert!(story.contains("redis.internal"), "{story}");
}

//! Connections to a server over TLS.

use std::fs;
use std::path::{Path, PathBuf};

use redis::{Client, TlsCertificates};
use tower_ratelimit::error::StoreErrorKind;

use crate::scene::{daily, keys, limiter, patient, story, used};
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
        // A setting that exists already stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let folder = std::env::temp_dir().join(format!("trl-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let certificate = made.cert.pem();
        let cert = file("cert.pem", &certificate);
        let key = file("key.pem", &made.signing_key.serialize_pem());
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
    let trusted = TlsCertificates {
        client_tls: None,
        root_cert: Some(scene.certificate.clone().into_bytes()),
    };
    let client = Client::build_with_tls(&*scene.url, trusted).unwrap();
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

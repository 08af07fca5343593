//! TLS of a listener.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{Error, InconsistentKeys, ServerConfig};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::tls;

/// The time between two looks at the files.
const AGAIN: Duration = Duration::from_secs(10);

/// How long files have to be the same before they are read, since they may be written in pieces.
const QUIET: Duration = Duration::from_millis(150);

/// The files of a listener over TLS, in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate, and those that lead to its authority.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The authorities of clients. With this file, a client without a certificate of theirs is refused.
    pub client_ca: Option<PathBuf>,
}

/// The certificate of a listener. It is read again when its files change.
#[derive(Clone)]
pub struct Certificate {
    /// The flag of the listener.
    flag: &'static str,
    files: Arc<Files>,
    state: Arc<Mutex<CertificateState>>,
}

struct CertificateState {
    config: Arc<ServerConfig>,
    /// When the first certificate of those in force expires, in seconds since 1970.
    expiration: i64,
    /// The bytes of the newest files, whether they are in force or not.
    newest: Result<Texts, String>,
    /// Why the newest files are not in force.
    error: Option<String>,
}

/// The bytes of the files.
#[derive(PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Certificate {
    /// Reads the certificate of a listener, which this flag opens.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or has no PEM of its kind, and when the key is not that of the certificate.
    pub fn read(flag: &'static str, files: Files) -> Result<Self, String> {
        let texts = files.read(flag)?;
        let (config, expiration) = files.config(flag, &texts)?;
        warn_of_readers(&format!("{flag}-key"), &files.key);
        let state = CertificateState {
            config: Arc::new(config),
            expiration,
            newest: Ok(texts),
            error: None,
        };
        Ok(Self {
            flag,
            files: Arc::new(files),
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Looks at the files for as long as the process runs.
    pub(crate) async fn follow(self) {
        loop {
            sleep(AGAIN).await;
            let certificate = self.clone();
            let _ = tokio::task::spawn_blocking(move || certificate.look()).await;
        }
    }

    /// Reads files that have changed once they stay the same: one that is written in pieces may be valid with half of its
    /// certificates.
    pub(crate) fn look(&self) {
        let newest = self.files.read(self.flag);
        if self.lock().newest == newest {
            return;
        }
        thread::sleep(QUIET);
        if self.files.read(self.flag) == newest {
            self.put(newest);
        }
    }

    /// Puts the bytes of the files into force. With a mistake in them, what is in force stays.
    fn put(&self, newest: Result<Texts, String>) {
        let config = match &newest {
            Ok(texts) => self.files.config(self.flag, texts),
            Err(error) => Err(error.clone()),
        };
        let mut state = self.lock();
        state.newest = newest;
        match config {
            Ok((config, expiration)) => {
                tracing::info!("--{}-certificate was read again", self.flag);
                warn_of_readers(&format!("{}-key", self.flag), &self.files.key);
                state.config = Arc::new(config);
                state.expiration = expiration;
                state.error = None;
            }
            Err(error) => {
                tracing::warn!("the certificate stays as it was: {error}");
                state.error = Some(error);
            }
        }
    }

    /// Returns what speaks TLS to the next client.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.lock().config).into()
    }

    /// Returns when what is in force expires, in seconds since 1970: the certificate, or one of those that lead to its authority.
    pub(crate) fn expiration(&self) -> i64 {
        self.lock().expiration
    }

    /// Returns why the newest files are not in force.
    pub(crate) fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    fn lock(&self) -> MutexGuard<'_, CertificateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn read(&self, flag: &str) -> Result<Texts, String> {
        let read =
            |of: &str, path: &Path| fs::read(path).map_err(|error| wrong(flag, of, path, error));
        Ok(Texts {
            certificate: read("certificate", &self.certificate)?,
            key: read("key", &self.key)?,
            client_ca: self
                .client_ca
                .as_deref()
                .map(|path| read("client-ca", path))
                .transpose()?,
        })
    }

    /// Returns what speaks TLS, and when it expires.
    fn config(&self, flag: &str, texts: &Texts) -> Result<(ServerConfig, i64), String> {
        let of_certificate = |error: String| wrong(flag, "certificate", &self.certificate, error);
        let of_key = |error: String| wrong(flag, "key", &self.key, error);
        let certificates = tls::certificates(&texts.certificate).map_err(of_certificate)?;
        let expiration = expiration(&certificates).map_err(of_certificate)?;
        let key =
            PrivateKeyDer::from_pem_slice(&texts.key).map_err(|error| of_key(error.to_string()))?;
        let builder = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| of_certificate(error.to_string()))?;
        let builder = match (&texts.client_ca, &self.client_ca) {
            (Some(text), Some(path)) => {
                let of_roots = |error: String| wrong(flag, "client-ca", path, error);
                let roots = tls::roots(text).map_err(of_roots)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.into(), tls::provider())
                        .build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| of_roots(error.to_string()))?,
                )
            }
            _ => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(certificates, key);
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => of_key(format!(
                "it is not the key of {}",
                self.certificate.display()
            )),
            error => of_certificate(error.to_string()),
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((config, expiration))
    }
}

/// Leaves out the key.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

fn wrong(flag: &str, of: &str, path: &Path, error: impl fmt::Display) -> String {
    format!("--{flag}-{of}: {}: {error}", path.display())
}

/// Returns when the first of these expires, in seconds since 1970.
fn expiration(certificates: &[CertificateDer<'_>]) -> Result<i64, String> {
    let mut first = i64::MAX;
    for (index, certificate) in certificates.iter().enumerate() {
        let (_, read) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|error| format!("certificate {} of the file: {error}", index + 1))?;
        first = first.min(read.validity().not_after.timestamp());
    }
    Ok(first)
}

/// Warns if others than the owner and its group may read a secret.
pub(crate) fn warn_of_readers(flag: &str, path: &Path) {
    let mode = fs::metadata(path).map_or(0, |it| it.permissions().mode());
    if mode & 0o004 != 0 {
        tracing::warn!(
            "--{flag}: {}: other users of this machine may read it: take that right away, `chmod o-r`",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_files_are_followed_without_a_signal() {
        let folder = std::env::temp_dir();
        let path = |of| folder.join(format!("ratelimitd-{of}-{}.pem", std::process::id()));
        let files = Files {
            certificate: path("certificate"),
            key: path("key"),
            client_ca: None,
        };
        // A certificate that expires with this year.
        let write = |year: i32| {
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year + 1, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            fs::write(&files.certificate, certificate.pem()).unwrap();
            fs::write(&files.key, key.serialize_pem()).unwrap();
        };
        write(2099);
        let certificate = Certificate::read("listen", files.clone()).unwrap();
        let following = tokio::spawn(certificate.clone().follow());
        write(2199);
        // The first second of 2100, and then that of 2200.
        assert_eq!(certificate.expiration(), 4_102_444_800);
        sleep(2 * AGAIN).await;
        assert_eq!(certificate.expiration(), 7_258_118_400);
        fs::write(&files.key, "no key").unwrap();
        sleep(2 * AGAIN).await;
        assert!(certificate.error().is_some());
        assert_eq!(certificate.expiration(), 7_258_118_400);
        following.abort();
        fs::remove_file(files.certificate).unwrap();
        fs::remove_file(files.key).unwrap();
    }
}

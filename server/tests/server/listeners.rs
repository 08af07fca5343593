//! Listeners over TLS, Unix sockets and sockets of a service manager.

use std::fs;
use std::io;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::process::{HOST, Server, get_over};
use super::program::{File, failed};
use super::scene::LONG;

/// A certificate that has signed itself, with its key.
struct Certificate {
    certificate: File,
    key: File,
}

impl Certificate {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self {
            certificate: File::new("certificate.pem", &made.cert.pem()),
            key: File::new("key.pem", &made.signing_key.serialize_pem()),
        }
    }

    /// One that expires with this year.
    fn until(year: i32) -> Self {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year + 1, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: File::new("certificate.pem", &certificate.pem()),
            key: File::new("key.pem", &key.serialize_pem()),
        }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.certificate.path()).unwrap()
    }

    /// Connects to a server that has this certificate, as a client that may have one too.
    fn connect(
        &self,
        address: &str,
        own: Option<&Self>,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        self.connect_by(b"http/1.1", address, own)
    }

    fn connect_by(
        &self,
        protocol: &[u8],
        address: &str,
        own: Option<&Self>,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let builder = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_file(own.key.path()).unwrap();
                builder.with_client_auth_cert(vec![own.der()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    /// Puts another certificate, or key, in the place of this one.
    fn replace(&self, certificate: &Self, key: &Self) {
        fs::copy(certificate.certificate.path(), self.certificate.path()).unwrap();
        fs::copy(key.key.path(), self.key.path()).unwrap();
    }
}

#[test]
fn a_certificate_is_read_again_and_one_with_a_mistake_is_not() {
    let (own, next) = (Certificate::new(), Certificate::until(2199));
    let first = Certificate::until(2099);
    own.replace(&first, &first);
    let (certificate, key) = (own.certificate.path(), own.key.path());
    let arguments = [
        "--sample",
        "--listen-certificate",
        certificate,
        "--listen-key",
        key,
    ];
    let server = Server::start(&arguments);
    let ask = |known: &Certificate| {
        let stream = known.connect(&server.clients, None)?;
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        Ok::<_, io::Error>(get_over(stream, "/", HOST))
    };
    let answer = ask(&first).unwrap();
    assert!(
        answer.contains("\"x-forwarded-proto\":\"https\""),
        "{answer}"
    );
    ask(&next).unwrap_err();
    // A client that speaks no TLS gets no answer.
    let mut plain = TcpStream::connect(&server.clients).unwrap();
    let mut rest = Vec::new();
    let _ = io::Write::write_all(&mut plain, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let _ = io::Read::read_to_end(&mut plain, &mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");

    let shows = |expected: &str, gauge: &str, expires: &str| {
        server.signal("HUP");
        let lines = [
            format!("\nratelimitd_certificate_error{{listener=\"listen\"}} {gauge}\n"),
            format!(
                "\nratelimitd_certificate_expiration_timestamp_seconds{{listener=\"listen\"}} {expires}\n"
            ),
        ];
        // The signal arrives at some time.
        while !server.ops("/status", HOST).contains(expected) {
            std::thread::yield_now();
        }
        let metrics = server.ops("/metrics", HOST);
        for line in lines {
            assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
        }
    };
    // The first seconds of 2100 and of 2200.
    let (of_first, of_next) = ("4102444800", "7258118400");
    let fine = |expires| {
        format!("\"certificates\":{{\"listen\":{{\"error\":null,\"expires\":{expires}}}}}")
    };
    shows(&fine(of_first), "0", of_first);
    own.replace(&next, &first);
    shows("it is not the key of", "1", of_first);
    ask(&first).unwrap();
    own.replace(&next, &next);
    shows(&fine(of_next), "0", of_next);
    ask(&next).unwrap();
    ask(&first).unwrap_err();

    let page = include_str!("../../docs/server.md");
    let metrics = server.ops("/metrics", HOST);
    let of_the_server = metrics.split("# TYPE ratelimitd_").skip(1);
    let names: Vec<_> = of_the_server
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for name in names {
        assert!(
            page.contains(&format!("| `ratelimitd_{name}` |")),
            "{name} has no row"
        );
    }
}

#[test]
fn a_certificate_that_cannot_be_is_refused_at_the_start() {
    let (own, other) = (Certificate::new(), Certificate::new());
    let empty = File::new("empty.pem", "no certificate");
    let (certificate, key) = (own.certificate.path(), own.key.path());
    for (certificate, key, client_ca, expected) in [
        (
            certificate,
            other.key.path(),
            certificate,
            "it is not the key of",
        ),
        (
            empty.path(),
            key,
            certificate,
            "it has no certificate in PEM",
        ),
        (certificate, empty.path(), certificate, "--listen-key: "),
        (
            "no-such-file",
            key,
            certificate,
            "--listen-certificate: no-such-file: ",
        ),
        (certificate, key, empty.path(), "--listen-client-ca: "),
    ] {
        let arguments = [
            "serve",
            "--listen-certificate",
            certificate,
            "--listen-key",
            key,
            "--listen-client-ca",
            client_ca,
        ];
        let (code, error) = failed(&arguments, &[]);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let alone = ["serve", "--ops-certificate", certificate];
    let (code, error) = failed(&alone, &[]);
    assert!(code == Some(2) && error.contains("--ops-key"), "{error}");
}

#[test]
fn a_client_needs_a_certificate_of_the_authority_if_there_is_one() {
    let (own, known, unknown) = (Certificate::new(), Certificate::new(), Certificate::new());
    let server = Server::start(&[
        "--listen-certificate",
        own.certificate.path(),
        "--listen-key",
        own.key.path(),
        "--listen-client-ca",
        known.certificate.path(),
    ]);
    let ask = |client: Option<&Certificate>| {
        // With TLS 1.3 a client learns with its first bytes that it was refused.
        let mut stream = own.connect(&server.clients, client)?;
        let request = b"GET /_limit/check HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        io::Write::write_all(&mut stream, request)?;
        let mut answer = String::new();
        io::Read::read_to_string(&mut stream, &mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    assert!(ask(Some(&known)).unwrap().starts_with("HTTP/1.1 200"));
    ask(Some(&unknown)).unwrap_err();
    ask(None).unwrap_err();
}

#[test]
fn envoy_asks_over_tls_if_there_is_a_certificate() {
    let (own, known) = (Certificate::new(), Certificate::new());
    let mut server = Server::start(&[
        "--grpc",
        "127.0.0.1:0",
        "--grpc-certificate",
        own.certificate.path(),
        "--grpc-key",
        own.key.path(),
        "--grpc-client-ca",
        known.certificate.path(),
    ]);
    let line = server.line();
    let address = line.trim().strip_prefix("Envoy: https://").unwrap();
    let ask = |client: Option<&Certificate>| {
        let mut stream = own.connect_by(b"h2", address, client)?;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        io::Write::write_all(&mut stream, preface)?;
        let mut frame = [0; 9];
        io::Read::read_exact(&mut stream, &mut frame)?;
        let mut settings = vec![0; usize::from(frame[2])];
        io::Read::read_exact(&mut stream, &mut settings)?;
        // The number of calls at once.
        let streams = settings.chunks(6).find(|it| it[..2] == [0, 3]);
        let streams = streams.map(|it| u32::from_be_bytes(it[2..].try_into().unwrap()));
        Ok::<_, io::Error>((frame[3], streams))
    };
    // A frame of settings.
    assert_eq!(ask(Some(&known)).unwrap(), (4, Some(1_024)));
    ask(None).unwrap_err();
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ratelimitd-{}-{name}", std::process::id()))
}

#[test]
fn a_unix_socket_is_served_and_one_that_was_left_behind_is_replaced() {
    let path = path("clients.sock");
    drop(UnixListener::bind(&path).unwrap());
    let address = format!("unix:{}", path.display());
    let arguments = ["--sample", "--listen", &address, "--lame-duck", "0s"];
    let mut server = Server::start(&arguments);
    assert_eq!(server.clients, address);
    let answer = get_over(UnixStream::connect(&path).unwrap(), "/", HOST);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("\"x-forwarded-for\":\"127.0.0.1\""),
        "{answer}"
    );

    // A program that answers there keeps it.
    let (code, error) = failed(&["serve", "--ops", "none", "--listen", &address], &[]);
    assert_eq!(code, Some(1));
    assert!(
        error.starts_with(&format!("--listen: {address}: ")),
        "{error}"
    );

    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_proxy_on_a_unix_socket_tells_the_client_if_the_file_trusts_it() {
    let limits = "[policies.address]\nquota = \"1/hour\"\nkey = \"client_ip\"\n[proxies]\n\
        unix_socket = true\nheader = \"x-forwarded-for\"\n";
    let file = File::new("limits.toml", limits);
    let path = path("proxy.sock");
    let address = format!("unix:{}", path.display());
    let _server = Server::start(&[file.path(), "--sample", "--listen", &address]);
    for (target, client, status) in [
        ("/", "192.0.2.1", "200"),
        ("/", "192.0.2.1", "429"),
        ("/", "192.0.2.2", "200"),
        ("/_limit/check", "192.0.2.2", "429"),
        ("/_limit/check", "192.0.2.3", "200"),
    ] {
        let fields = format!("{HOST}x-forwarded-for: {client}\r\n");
        let answer = get_over(UnixStream::connect(&path).unwrap(), target, &fields);
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{target} {client} {answer}");
    }
}

#[test]
fn the_healthcheck_speaks_tls_shows_a_certificate_and_asks_unix_sockets() {
    let own = Certificate::new();
    let (certificate, key) = (own.certificate.path(), own.key.path());
    let path = path("ops.sock");
    let socket = format!("unix:{}", path.display());
    let mut server = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    server.args(["serve", "--listen", "none", "--ops", &socket]);
    server.args(["--ops-certificate", certificate, "--ops-key", key]);
    server.args(["--ops-client-ca", certificate]);
    let mut server = server.env_clear().spawn().unwrap();
    let check = |certificate: &str, shown: Option<&Certificate>| {
        let mut check = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        check.args(["healthcheck", "--ops", &socket]);
        check.args(["--ops-certificate", certificate]);
        if let Some(shown) = shown {
            check.args(["--client-certificate", shown.certificate.path()]);
            check.args(["--client-key", shown.key.path()]);
        }
        check.env_clear().status().unwrap().success()
    };
    let begun = Instant::now();
    while !check(certificate, Some(&own)) {
        assert!(server.try_wait().unwrap().is_none());
        if begun.elapsed() > LONG {
            server.kill().unwrap();
            panic!("it is not ready");
        }
    }
    // As after a renewal that the server has refused.
    let other = Certificate::new();
    assert!(check(other.certificate.path(), Some(&own)));
    assert!(!check(certificate, Some(&other)));
    assert!(!check(certificate, None));
    server.kill().unwrap();
    server.wait().unwrap();
    fs::remove_file(path).unwrap();
}

#[test]
fn the_healthcheck_ends_although_each_byte_comes_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Until the other side has gone.
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
    });
    let mut check = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    let ended = check.args(["healthcheck", "--ops", &address]).env_clear();
    let ended = ended.output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert_eq!(
        error,
        format!("--ops: {address}: it has not answered within 3s\n")
    );
}

/// Runs the program with this socket as its third file, as systemd does.
fn handing_over(socket: OwnedFd, names: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_ratelimitd")]);
    shell.env_clear();
    shell.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", names);
    shell.stdin(socket);
    shell
}

#[test]
fn sockets_of_the_service_manager_are_served_by_their_names() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let arguments = ["--sample", "--listen", "fd:clients"];
    let _server = Server::run(handing_over(tcp.into(), "clients"), &arguments);
    let answer = get_over(TcpStream::connect(address).unwrap(), "/", HOST);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let path = path("handed.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let _server = Server::run(handing_over(unix.into(), "clients"), &arguments);
    let answer = get_over(UnixStream::connect(&path).unwrap(), "/", HOST);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    fs::remove_file(path).unwrap();

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut program = handing_over(tcp.into(), "other");
    let ended = program
        .args(["serve", "--listen", "fd:clients"])
        .output()
        .unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    let expected =
        "--listen: fd:clients: no socket of this name was handed over; there are: other\n";
    assert_eq!((ended.status.code(), &*error), (Some(1), expected));
}

#[test]
fn the_service_manager_is_told_what_the_server_does() {
    let path = path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    let next = || {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut program = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    program.env_clear();
    program
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000");
    let arguments = ["--listen", "127.0.0.1:0", "--lame-duck", "0s"];
    let mut server = Server::run(program, &arguments);
    let without_the_watchdog = || {
        loop {
            let line = next();
            if line != "WATCHDOG=1\n" {
                return line;
            }
        }
    };
    assert_eq!(next(), "READY=1\n");
    assert_eq!([next(), next()], ["WATCHDOG=1\n", "WATCHDOG=1\n"]);
    server.signal("HUP");
    let line = without_the_watchdog();
    assert!(line.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{line}");
    assert_eq!(without_the_watchdog(), "READY=1\n");
    server.signal("TERM");
    assert_eq!(without_the_watchdog(), "STOPPING=1\n");
    assert_eq!(server.exit_code(), Some(0));
    fs::remove_file(path).unwrap();
}

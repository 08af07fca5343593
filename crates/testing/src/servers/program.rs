//! Any other server, such as memcached.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A running server, which is stopped when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    /// A folder of its own, with its log.
    folder: PathBuf,
}

/// Another process may take a free port before the server does.
const ATTEMPTS: usize = 5;

const PATIENCE: Duration = Duration::from_secs(120);

impl Server {
    /// Starts a memcached.
    pub fn memcached() -> Self {
        Self::start("memcached", tell_memcached)
    }

    /// Starts a memcached at the address of one that was killed.
    pub fn memcached_at(address: SocketAddr) -> Self {
        match Self::attempt("memcached", tell_memcached, address) {
            Ok(server) => server,
            Err(log) => panic!("memcached does not start again: {log}"),
        }
    }

    /// Kills it. Its address is free then.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts this program, once it has been told its port, and waits until it accepts connections. It
    /// runs in a folder of its own, which is removed with it.
    pub fn start(program: &str, tell: impl Fn(&mut Command, u16)) -> Self {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            match Self::attempt(program, &tell, free_address()) {
                Ok(server) => return server,
                Err(said) => log = said,
            }
        }
        panic!("{program} does not start: {log}");
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what it has written to its outputs.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn attempt(
        program: &str,
        tell: impl Fn(&mut Command, u16),
        address: SocketAddr,
    ) -> Result<Self, String> {
        let folder = new_folder(program);
        let log = File::create(folder.join("log")).expect("the folder is there");
        let mut command = Command::new(program);
        command.current_dir(&folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file can be shared"));
        command.stderr(log);
        tell(&mut command, address.port());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("{program} is not installed")
            }
            Err(error) => panic!("{program} cannot be run: {error}"),
        };
        let mut server = Self {
            child,
            address,
            folder,
        };
        let began = Instant::now();
        loop {
            // Another server may have taken the port: then this one has ended.
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{status}: {}", server.log()));
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{program} does not answer: {}",
                server.log()
            );
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn tell_memcached(command: &mut Command, port: u16) {
    let port = port.to_string();
    command.args([
        "-l",
        "127.0.0.1",
        "-U",
        "0",
        "-m",
        "64",
        "-u",
        "nobody",
        "-p",
        &port,
    ]);
}

fn free_address() -> SocketAddr {
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    any.local_addr().expect("it is bound")
}

fn new_folder(program: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("tower-ratelimit-{program}-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

//! A real nginx, before or behind the gateway.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::scene::LONG;

pub(crate) struct Nginx {
    process: Child,
    folder: PathBuf,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Nginx {
    /// Starts nginx with servers that listen on so many ports of this machine.
    pub(crate) fn start(ports: usize, servers: impl Fn(&[SocketAddr]) -> String) -> Self {
        let begun = Instant::now();
        loop {
            let mut nginx = Self::try_start(ports, &servers);
            if nginx.comes_up() {
                return nginx;
            }
            let log = fs::read_to_string(nginx.folder.join("log")).unwrap_or_default();
            // Another process may have taken a port.
            assert!(
                log.contains("Address already in use") && begun.elapsed() < LONG,
                "nginx does not start; `make servers` installs it: {log}"
            );
        }
    }

    fn try_start(ports: usize, servers: impl Fn(&[SocketAddr]) -> String) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gateway-nginx-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listeners: Vec<TcpListener> = (0..ports).map(|_| free()).collect();
        let addresses = listeners.iter().map(|it| it.local_addr().unwrap());
        let addresses: Vec<SocketAddr> = addresses.collect();
        drop(listeners);
        let at = folder.display();
        let servers = servers(&addresses);
        let file = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/log;\n\
             events {{}}\n\
             http {{\n\
             access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;\n\
             fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
             {servers}\n}}\n"
        );
        fs::write(folder.join("nginx.conf"), file).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let process = Command::new("nginx")
            .env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin"))
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stderr(Stdio::from(fs::File::create(folder.join("log")).unwrap()))
            .spawn()
            .expect("nginx is there; `make servers` installs it");
        Self {
            process,
            folder,
            addresses,
        }
    }

    fn comes_up(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < LONG && self.process.try_wait().unwrap().is_none() {
            // Written once nginx listens. Another program may answer at an address that nginx has not got.
            if fs::read(self.folder.join("pid")).is_ok_and(|pid| !pid.is_empty()) {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

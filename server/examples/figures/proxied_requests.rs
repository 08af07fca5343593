//! What the server costs as a reverse proxy, beside nginx and beside itself without limits; what other clients see while one is
//! hostile; and how much memory ten million clients leave. `wrk` and `h2load` ask, and nginx answers behind all of them.

use std::collections::HashSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::hostile::Hostile;
use crate::process::{Process, ratelimitd};
use crate::{Failure, median};

const ROUNDS: usize = 9;

/// How long each server is asked in a round, in seconds.
const SLICE: &str = "2";

/// How many client addresses the flood has, and how many requests of it are under way on each of its connections.
const ADDRESSES: u32 = 10_000_000;
const AT_ONCE: u32 = 64;
const CONNECTIONS: u32 = 4;

const UNLIMITED: &str =
    "[policies.all]\nkey = \"client_ip\"\nquota = \"1000000000/minute\"\nmode = \"off\"\n";
const LIMITED: &str = "[policies.all]\nkey = \"client_ip\"\nalgorithm = \"token-bucket\"\nquota = \"1000000000/minute\"\n";
/// Each address has a window of its own, which lasts longer than the flood.
const EACH: &str = "[policies.all]\nkey = \"client_ip\"\nquota = \"100/hour\"\n\
    [proxies]\nnetworks = [\"127.0.0.0/8\"]\nheader = \"x-forwarded-for\"\n";

/// The server that is compared with the others, and those.
const SERVERS: [&str; 4] = [
    "ratelimitd with a limit",
    "ratelimitd without one",
    "nginx with `limit_req`",
    "nginx without it",
];

struct Server {
    process: Process,
    /// Where it speaks HTTP/1.1, and HTTP/2.
    addresses: [SocketAddr; 2],
}

/// A folder that goes with the program.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn measure() -> Result<(), Failure> {
    let folder = Folder(env::temp_dir().join(format!("proxied-requests-{}", std::process::id())));
    fs::create_dir_all(&folder.0)?;
    let upstream = nginx(&folder.0, "upstream", |[at, _]| {
        format!("server {{ listen {at}; location / {{ return 200 \"hello\\n\"; }} }}")
    })?;
    let behind = upstream.addresses[0];
    let servers = [
        proxy(&folder.0, "limited", LIMITED, behind)?,
        proxy(&folder.0, "unlimited", UNLIMITED, behind)?,
        nginx(&folder.0, "limit_req", |at| {
            forwarding(at, behind, "limit_req zone=all burst=1000000 nodelay;")
        })?,
        nginx(&folder.0, "plain", |at| forwarding(at, behind, ""))?,
    ];
    compare(&servers)?;
    see_others(&folder.0, behind).await?;
    flood(&folder.0).await
}

/// Prints the processor time of a request, by server and by protocol.
fn compare(servers: &[Server; 4]) -> Result<(), Failure> {
    println!(
        "| a request over | {} | limit / none | beside nginx |",
        SERVERS.join(" | ")
    );
    println!("| --- | --: | --: | --: | --: | --: | --: |");
    for (place, protocol) in ["HTTP/1.1", "HTTP/2"].into_iter().enumerate() {
        let mut figures: [Vec<f64>; 4] = Default::default();
        for round in 0..ROUNDS {
            // None is always the first.
            for turn in 0..servers.len() {
                let which = (round + turn) % servers.len();
                let server = &servers[which];
                let before = server.process.cpu()?;
                let answers = match place {
                    0 => wrk(server.addresses[0], SLICE)?.answers,
                    _ => h2load(server.addresses[1])?,
                };
                let spent = server.process.cpu()?.saturating_sub(before);
                figures[which].push(spent.as_secs_f64() * 1e6 / answers);
            }
        }
        let ratio = |other: usize| {
            let pairs = figures[0].iter().zip(&figures[other]);
            median(pairs.map(|(own, other)| own / other))
        };
        let each = figures
            .iter()
            .map(|it| format!("{:.1} µs", median(it.iter().copied())));
        let each: Vec<String> = each.collect();
        println!(
            "| {protocol} | {} | {:.3} | {:.3} |",
            each.join(" | "),
            ratio(1),
            ratio(2)
        );
    }
    Ok(())
}

/// Prints the latency of others beside each kind of hostile client.
async fn see_others(folder: &Path, upstream: SocketAddr) -> Result<(), Failure> {
    println!("\n| beside | p50 of others | p99 | in a second |\n| --- | --: | --: | --: |");
    for hostile in Hostile::ALL {
        let server = proxy(folder, "hostile", LIMITED, upstream)?;
        let attack = hostile.begin(server.addresses[0]).await?;
        let seen = wrk(server.addresses[0], "5")?;
        let told = attack.end();
        println!(
            "| {hostile}{told} | {} | {} | {:.0} |",
            seen.p50,
            seen.p99,
            seen.answers / 5.0
        );
    }
    Ok(())
}

/// Prints the memory of a server before and after requests of ten million addresses, as a proxy in front of it asks about them.
async fn flood(folder: &Path) -> Result<(), Failure> {
    let server = ratelimitd_with(folder, "flood", EACH, &[])?;
    let address = server.addresses[0];
    println!("\n| client addresses | memory |\n| --: | --: |");
    let mut begun = 0;
    for until in [0, ADDRESSES / 100, ADDRESSES / 10, ADDRESSES] {
        let each = (until - begun) / CONNECTIONS;
        let parts = (0..CONNECTIONS)
            .map(|part| tokio::spawn(ask_about(address, begun + part * each, each)));
        for part in parts.collect::<Vec<_>>() {
            part.await??;
        }
        begun = until;
        println!("| {until} | {} kB |", server.process.memory()? / 1_000);
    }
    Ok(())
}

/// Asks about so many addresses from this one on, and fails unless all of them pass.
async fn ask_about(server: SocketAddr, first: u32, addresses: u32) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    let (mut next, end) = (first, first + addresses);
    while next < end {
        let mut requests = String::new();
        let these = AT_ONCE.min(end - next);
        for address in next..next + these {
            let client = Ipv4Addr::from_bits(address + (11 << 24));
            write!(
                requests,
                "GET /_limit/check HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {client}\r\n\r\n"
            )?;
        }
        next += these;
        stream.write_all(requests.as_bytes()).await?;
        read.clear();
        let mut passed = 0;
        while passed < these {
            if stream.read_buf(&mut read).await? == 0 {
                return Err("the server has closed the connection".into());
            }
            passed = count(&read, b"\r\n\r\n");
        }
        if count(&read, b"HTTP/1.1 2") != these {
            return Err(String::from_utf8_lossy(&read).into());
        }
    }
    Ok(())
}

fn count<const N: usize>(bytes: &[u8], wanted: &[u8; N]) -> u32 {
    bytes
        .windows(N)
        .map(|window| u32::from(window == wanted))
        .sum()
}

fn proxy(folder: &Path, name: &str, limits: &str, upstream: SocketAddr) -> Result<Server, Failure> {
    ratelimitd_with(
        folder,
        name,
        limits,
        &["--upstream", &format!("http://{upstream}")],
    )
}

fn ratelimitd_with(
    folder: &Path,
    name: &str,
    limits: &str,
    arguments: &[&str],
) -> Result<Server, Failure> {
    let file = folder.join(name).with_extension("toml");
    fs::write(&file, limits)?;
    let mut command = ratelimitd(&file)?;
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--connections",
        "15000",
        "--max-connection-age",
        "none",
    ]);
    let (process, line) = Process::start(command.args(arguments), "listening on http://")?;
    let address: SocketAddr = line
        .split([',', '/', ' '])
        .next()
        .unwrap_or_default()
        .parse()?;
    Ok(Server {
        process,
        addresses: [address; 2],
    })
}

/// Starts nginx with these servers, which listen on two ports.
fn nginx(
    folder: &Path,
    name: &str,
    servers: impl Fn([SocketAddr; 2]) -> String,
) -> Result<Server, Failure> {
    let at = folder.join(name);
    fs::create_dir_all(&at)?;
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let ports = [free()?, free()?];
    let addresses = [ports[0].local_addr()?, ports[1].local_addr()?];
    drop(ports);
    let (here, servers) = (at.display(), servers(addresses));
    let file = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/log; worker_rlimit_nofile 15000;\n\
         events {{ worker_connections 14000; }}\n\
         http {{\n\
         access_log off; keepalive_requests 1000000000; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;\n\
         fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;\n\
         limit_req_zone $binary_remote_addr zone=all:10m rate=1000000r/s;\n\
         {servers}\n}}\n"
    );
    fs::write(at.join("conf"), file)?;
    let path = env::var("PATH").unwrap_or_default();
    let mut command = Command::new("nginx");
    command.env("PATH", format!("{path}:/usr/sbin"));
    command
        .arg("-p")
        .arg(&at)
        .arg("-c")
        .arg(at.join("conf"))
        .stderr(Stdio::null());
    let process = Process::spawn(&mut command)?;
    let begun = Instant::now();
    while !fs::read(at.join("pid")).is_ok_and(|pid| !pid.is_empty()) {
        if begun.elapsed() > Duration::from_secs(10) {
            let log = fs::read_to_string(at.join("log")).unwrap_or_default();
            return Err(format!("nginx has not started: {log}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Server { process, addresses })
}

/// A reverse proxy that tells its upstream what ours tells.
fn forwarding([plain, http2]: [SocketAddr; 2], upstream: SocketAddr, limit: &str) -> String {
    format!(
        "upstream behind {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}\n\
         server {{ listen {plain}; listen {http2} http2; location / {{ {limit}\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;\n\
         proxy_set_header X-Forwarded-Host $host; proxy_pass http://behind; }} }}"
    )
}

/// What `wrk` has seen.
struct Seen {
    answers: f64,
    p50: String,
    p99: String,
}

fn wrk(server: SocketAddr, seconds: &str) -> Result<Seen, Failure> {
    let url = format!("http://{server}/");
    let told = output(Command::new("wrk").args(["-t1", "-c16", "--latency", "-d", seconds, &url]))?;
    if told.contains("Non-2xx") || told.contains("Socket errors") {
        return Err(told.into());
    }
    let after = |word: &str| {
        let line = told
            .lines()
            .find(|line| line.trim_start().starts_with(word));
        let rest = line.and_then(|line| line.split_whitespace().nth(1));
        rest.map(str::to_owned)
            .ok_or_else(|| format!("no {word} in {told}"))
    };
    let line = told.lines().find(|line| line.contains(" requests in "));
    let answers = line
        .and_then(|line| line.split_whitespace().next())
        .unwrap_or_default();
    Ok(Seen {
        answers: answers.parse()?,
        p50: after("50%")?,
        p99: after("99%")?,
    })
}

fn h2load(server: SocketAddr) -> Result<f64, Failure> {
    let url = format!("http://{server}/");
    let told = output(Command::new("h2load").args(["-t1", "-c2", "-m8", "-D", SLICE, &url]))?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("status codes: "));
    let codes: Vec<&str> = line
        .unwrap_or_default()
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let refused: HashSet<&str> = codes.iter().skip(2).step_by(2).copied().collect();
    if refused != HashSet::from(["0"]) {
        return Err(told.into());
    }
    Ok(codes[0].parse()?)
}

fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

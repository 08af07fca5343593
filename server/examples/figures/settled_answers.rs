//! What it costs to read the usage in answers of a model, beside the same proxy without `settle`.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::process::{Process, ratelimitd};
use crate::{Failure, median};

const ROUNDS: usize = 9;
const CLIENTS: usize = 8;

/// How long a server is measured in a round. The answers before are not measured.
const SLICE: Duration = Duration::from_millis(1_500);
const BEFORE: Duration = Duration::from_millis(200);

/// How many words a stream has, each in an event of its own.
const EVENTS: usize = 100;

const LIMIT: &str = "[policies.tokens]\nkey = \"client_ip\"\nalgorithm = \"token-bucket\"\nquota = \"1000000000/minute\"\n";
const SETTLED: &str = "estimate = 1024\nsettle = \"openai\"\n";

/// What the upstream answers.
const PATHS: [(&str, &str); 2] = [("a stream of 100 events", "/stream"), ("JSON", "/json")];

/// What ends an answer.
const END: &[u8] = b"\r\n0\r\n\r\n";

struct Measured {
    process: Process,
    address: SocketAddr,
    /// The processor time of an answer, in microseconds, by path and round.
    figures: [Vec<f64>; PATHS.len()],
}

impl Measured {
    fn start(name: &str, file: &str, upstream: SocketAddr) -> Result<Self, Failure> {
        let path = limits(name);
        fs::write(&path, file)?;
        let mut command = ratelimitd(&path)?;
        command.args(["--listen", "127.0.0.1:0", "--upstream"]);
        command.arg(format!("http://{upstream}"));
        let (process, line) = Process::start(&mut command, "listening on http://")?;
        let address = line.split([',', '/', ' ']).next().unwrap_or_default();
        Ok(Self {
            process,
            address: address.parse()?,
            figures: Default::default(),
        })
    }

    async fn measure(&mut self, place: usize) -> Result<(), Failure> {
        let path = PATHS[place].1;
        ask(self.address, path, BEFORE).await?;
        let cpu = self.process.cpu()?;
        let answers = ask(self.address, path, SLICE).await?;
        let cpu = self.process.cpu()?.saturating_sub(cpu);
        self.figures[place].push(cpu.as_secs_f64() * 1e6 / f64::from(answers));
        Ok(())
    }
}

fn limits(name: &str) -> PathBuf {
    env::temp_dir().join(format!(
        "settled-answers-{}-{name}.toml",
        std::process::id()
    ))
}

pub(crate) async fn measure() -> Result<(), Failure> {
    let upstream = upstream().await?;
    let mut without = Measured::start("without", LIMIT, upstream)?;
    let mut with = Measured::start("with", &format!("{LIMIT}{SETTLED}"), upstream)?;
    for round in 0..ROUNDS {
        for place in 0..PATHS.len() {
            // Neither is always the first.
            let (one, other) = match round % 2 {
                0 => (&mut without, &mut with),
                _ => (&mut with, &mut without),
            };
            one.measure(place).await?;
            other.measure(place).await?;
        }
    }
    for name in ["without", "with"] {
        fs::remove_file(limits(name))?;
    }
    println!(
        "| answer | CPU without `settle` | with | with / without |\n| --- | --: | --: | --: |"
    );
    for (place, (answer, _)) in PATHS.iter().enumerate() {
        let (without, with) = (&without.figures[place], &with.figures[place]);
        println!(
            "| {answer} | {:.1} µs | {:.1} µs | {:.3} |",
            median(without.iter().copied()),
            median(with.iter().copied()),
            median(
                with.iter()
                    .zip(without)
                    .map(|(with, without)| with / without)
            ),
        );
    }
    Ok(())
}

/// Asks so long, in several connections at once, and returns how many answers came.
async fn ask(server: SocketAddr, path: &'static str, time: Duration) -> Result<u32, Failure> {
    let end = Instant::now() + time;
    let clients = (0..CLIENTS).map(|_| {
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            let request = format!("GET {path} HTTP/1.1\r\nhost: model\r\n\r\n");
            let mut answers = 0;
            let mut read = Vec::new();
            while Instant::now() < end {
                stream.write_all(request.as_bytes()).await?;
                read.clear();
                while !read.ends_with(END) {
                    if stream.read_buf(&mut read).await? == 0 {
                        return Err("the server has closed the connection".into());
                    }
                }
                if !read.starts_with(b"HTTP/1.1 200 ") {
                    return Err(String::from_utf8_lossy(&read).into());
                }
                answers += 1;
            }
            Ok::<u32, Failure>(answers)
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut answers = 0;
    for client in clients {
        answers += client.await??;
    }
    Ok(answers)
}

/// Starts a service that speaks like a model. Each event is a write of its own.
async fn upstream() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A connection ends when the server closes it.
            tokio::spawn(async move { answer(stream).await.ok() });
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let word = "data: {\"id\":\"chatcmpl-9f2c4b7d\",\"object\":\"chat.completion.chunk\",\"created\":1780000000,\
         \"model\":\"large-2026-05\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],\
         \"usage\":null}\n\n";
    let usage = "{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":100,\"total_tokens\":109}}";
    let last = format!("data: {usage}\n\ndata: [DONE]\n\n");
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await? > 0 {
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let is_stream = request.starts_with(b"GET /stream ");
        request.clear();
        let kind = if is_stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut head = String::from("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n");
        write!(head, "content-type: {kind}\r\n\r\n")?;
        stream.write_all(head.as_bytes()).await?;
        if is_stream {
            for _ in 0..EVENTS {
                chunk(&mut stream, word).await?;
            }
            chunk(&mut stream, &last).await?;
        } else {
            chunk(&mut stream, usage).await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

async fn chunk(stream: &mut TcpStream, text: &str) -> Result<(), Failure> {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    Ok(stream.write_all(chunk.as_bytes()).await?)
}

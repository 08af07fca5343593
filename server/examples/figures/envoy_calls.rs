//! What a call of Envoy's rate limit service costs, beside a bare service of tonic that answers OK. A client on one connection asks as
//! fast as it is answered, in so many calls at once.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::process::{self, Process};
use crate::{Failure, median};

const ROUNDS: usize = 7;
const STREAMS: [usize; 3] = [1, 64, 1_000];

/// How long a server is measured in a round. The calls before are not measured.
const SLICE: Duration = Duration::from_millis(1_500);
const BEFORE: Duration = Duration::from_millis(200);

/// How many values there are, each with a count of its own.
const KEYS: usize = 10_000;

/// The limits of a program that has many.
const MANY: usize = 5_000;

/// Answers OK, until the input ends.
pub(crate) async fn bare() -> Result<(), Failure> {
    struct Bare;
    #[tonic::async_trait]
    impl RateLimitService for Bare {
        async fn should_rate_limit(
            &self,
            _: Request<RateLimitRequest>,
        ) -> Result<Response<RateLimitResponse>, Status> {
            Ok(Response::new(RateLimitResponse {
                overall_code: Code::Ok.into(),
                ..RateLimitResponse::default()
            }))
        }
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("Envoy: http://{}", listener.local_addr()?);
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    Server::builder()
        .max_concurrent_streams(1_024)
        .add_service(RateLimitServiceServer::new(Bare))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

/// A server that is measured.
struct Measured {
    name: &'static str,
    process: Process,
    channel: Channel,
    figures: Vec<Vec<Figures>>,
}

/// What a slice of time has shown.
#[derive(Clone, Copy)]
struct Figures {
    calls: f64,
    seconds: f64,
    /// The processor time of the server for a call, in microseconds.
    cpu: f64,
    /// In microseconds.
    slow: f64,
}

impl Measured {
    async fn start(name: &'static str, command: &mut Command) -> Result<Self, Failure> {
        let (process, address) = Process::start(command, "Envoy: ")?;
        let channel = Endpoint::from_shared(address)?
            .tcp_nodelay(true)
            .connect()
            .await?;
        Ok(Self {
            name,
            process,
            channel,
            figures: vec![Vec::new(); STREAMS.len()],
        })
    }

    async fn measure(&mut self, place: usize) -> Result<(), Failure> {
        let streams = STREAMS[place];
        self.ask(streams, BEFORE).await?;
        let (cpu, begun) = (self.process.cpu()?, Instant::now());
        let mut times = self.ask(streams, SLICE).await?;
        let (seconds, cpu) = (
            begun.elapsed().as_secs_f64(),
            self.process.cpu()?.saturating_sub(cpu),
        );
        times.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let calls = times.len() as f64;
        let slow = times[times.len() - 1 - times.len() / 1_000];
        self.figures[place].push(Figures {
            calls,
            seconds,
            cpu: cpu.as_secs_f64() * 1e6 / calls,
            slow: slow.as_secs_f64() * 1e6,
        });
        Ok(())
    }

    /// Returns how long each call took.
    async fn ask(&self, streams: usize, time: Duration) -> Result<Vec<Duration>, Failure> {
        let end = Instant::now() + time;
        let callers = (0..streams).map(|number| {
            let channel = self.channel.clone();
            tokio::spawn(async move {
                let mut client = Grpc::new(channel);
                let mut times = Vec::new();
                for key in (number * KEYS / streams..KEYS).cycle() {
                    let begun = Instant::now();
                    if begun >= end {
                        break;
                    }
                    call(&mut client, key).await?;
                    times.push(begun.elapsed());
                }
                Ok::<_, Failure>(times)
            })
        });
        let callers: Vec<_> = callers.collect();
        let mut all = Vec::new();
        for caller in callers {
            all.extend(caller.await??);
        }
        Ok(all)
    }
}

async fn call(client: &mut Grpc<Channel>, key: usize) -> Result<(), Failure> {
    const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let entry = Entry {
        key: "remote_address".to_owned(),
        value: format!("198.51.{}.{}", key / 256, key % 256).into_bytes(),
    };
    let request = RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    client.ready().await?;
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let answer = client
        .unary(
            Request::new(request),
            PathAndQuery::from_static(PATH),
            codec,
        )
        .await?;
    match answer.into_inner().overall_code() {
        Code::Ok => Ok(()),
        code => Err(format!("{code:?} in place of Ok").into()),
    }
}

/// A folder and the Redis of the measurement, which end with it.
struct Beside {
    folder: PathBuf,
    redis: Option<(Child, u16)>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some((redis, _)) = &mut self.redis {
            let _ = redis.kill();
            let _ = redis.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Beside {
    fn start() -> Result<Self, Failure> {
        let folder = env::temp_dir().join(format!("envoy-calls-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut beside = Self {
            folder,
            redis: None,
        };
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let redis = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .stdout(Stdio::piped())
            .spawn();
        // Without one, nothing is measured over it.
        let Ok(mut redis) = redis else {
            return Ok(beside);
        };
        let output = redis.stdout.take();
        beside.redis = Some((redis, port));
        let mut lines = BufReader::new(output.ok_or("it has no output")?).lines();
        while !lines
            .next()
            .ok_or("Redis has ended")??
            .contains("Ready to accept connections")
        {}
        Ok(beside)
    }

    fn file(&self, name: &str, limits: usize, store: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        let mut file = fs::File::create(&path)?;
        for number in 0..limits {
            let key = if number + 1 == limits {
                "remote_address".to_owned()
            } else {
                format!("other{number}")
            };
            writeln!(
                file,
                "[[envoy]]\ndomain = \"shop\"\nentries = [\"{key}\"]\nalgorithm = \"fixed-window\"\nquota = \"1000000000/day\"\n"
            )?;
        }
        file.write_all(store.as_bytes())?;
        Ok(path)
    }
}

fn ratelimitd(file: &Path) -> Result<Command, Failure> {
    let mut command = process::ratelimitd(file)?;
    command.args(["--listen", "none", "--grpc", "127.0.0.1:0"]);
    Ok(command)
}

pub(crate) async fn measure() -> Result<(), Failure> {
    let beside = Arc::new(Beside::start()?);
    let mut servers = vec![
        Measured::start("bare tonic", Command::new(env::current_exe()?).arg("bare")).await?,
        Measured::start(
            "in memory",
            &mut ratelimitd(&beside.file("memory.toml", 1, "")?)?,
        )
        .await?,
        Measured::start(
            "in memory, 5,000 limits",
            &mut ratelimitd(&beside.file("many.toml", MANY, "")?)?,
        )
        .await?,
    ];
    if let Some((_, port)) = &beside.redis {
        let store = format!("[store]\nredis = \"redis://127.0.0.1:{port}\"\n");
        let file = beside.file("redis.toml", 1, &store)?;
        servers.push(Measured::start("over Redis", &mut ratelimitd(&file)?).await?);
    }
    for _ in 0..ROUNDS {
        for place in 0..STREAMS.len() {
            for server in &mut servers {
                server.measure(place).await?;
            }
        }
    }
    println!(
        "| calls at once | server | calls/s | CPU of a call | bare / this | p99.9 | this / bare |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for (place, streams) in STREAMS.iter().enumerate() {
        let bare = &servers[0].figures[place];
        for server in &servers {
            let its = &server.figures[place];
            let of = |figure: fn(&Figures) -> f64| median(its.iter().map(figure));
            let pairs = || its.iter().zip(bare);
            println!(
                "| {streams} | {} | {:.0} | {:.1} µs | {:.2} | {:.0} µs | {:.2} |",
                server.name,
                of(|it| it.calls / it.seconds),
                of(|it| it.cpu),
                median(pairs().map(|(its, bare)| bare.cpu / its.cpu)),
                of(|it| it.slow),
                median(pairs().map(|(its, bare)| its.slow / bare.slow)),
            );
        }
    }
    if let Some((redis, _)) = &beside.redis {
        let over_redis = servers.last().ok_or("nothing is measured")?;
        stop(redis)?;
        // From the first call on, which finds Redis taken to be well.
        let times = over_redis.ask(STREAMS[1], SLICE).await?;
        let longest = times.iter().max().ok_or("no call has ended")?;
        println!(
            "\nRedis stands still: {} calls, the longest {:.1} ms",
            times.len(),
            longest.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

/// Makes Redis take connections and answer nothing.
fn stop(redis: &Child) -> Result<(), Failure> {
    let done = Command::new("kill")
        .args(["-STOP", &redis.id().to_string()])
        .status()?;
    if done.success() {
        Ok(())
    } else {
        Err("Redis could not be stopped".into())
    }
}

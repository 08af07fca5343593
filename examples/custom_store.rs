//! A custom store over memcached: with one atomic read-modify-write, every algorithm works.
//!
//! Run `cargo run --example custom_store --features testing -- 127.0.0.1:11211` with the address of a memcached
//! server.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tower_ratelimit::clock::{Clock, SystemClock};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::store::{Change, Changed, Items, Reply, SharedStore, Write};
use tower_ratelimit::{FixedWindow, Limiter, Policy, StoreError, TokenBucket};
use tower_ratelimit_testing::Conformance;

const CONNECTIONS: usize = 8;
/// The deadline of one update, including all its retries.
const PATIENCE: Duration = Duration::from_secs(2);

/// memcached compares and swaps one item at a time. It has no clock, so the clocks of the nodes have to agree.
/// agree.
#[derive(Clone, Debug)]
pub(crate) struct Memcached(Arc<Pool>);

impl Memcached {
    pub(crate) fn at(address: SocketAddr) -> Self {
        let connections = [const { Mutex::const_new(None) }; CONNECTIONS];
        Self(Arc::new(Pool {
            address,
            connections,
        }))
    }
}

#[derive(Debug)]
struct Pool {
    address: SocketAddr,
    connections: [Mutex<Option<Connection>>; CONNECTIONS],
}

type Connection = BufReader<TcpStream>;

impl Items for Memcached {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let pool = Arc::clone(&self.0);
        Reply::later(async move {
            let unavailable = || StoreError::new(StoreErrorKind::Unavailable);
            match timeout(PATIENCE, pool.update(&change)).await {
                Ok(Ok(changed)) => Ok(changed),
                Ok(Err(error)) => Err(unavailable().caused_by(error)),
                Err(late) => Err(unavailable().caused_by(late)),
            }
        })
    }

    fn at_once(&self) -> usize {
        1
    }
}

impl Pool {
    async fn update(&self, change: &Change) -> std::io::Result<Changed> {
        let name = &change.names()[0];
        // Requests of one key wait for each other here instead of competing in memcached.
        let mut place = self.place(name).await;
        // Taken out, so that a connection with an unread answer is never used again.
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => BufReader::new(TcpStream::connect(self.address).await?),
        };
        loop {
            let (value, unique) = match gets(&mut connection, name).await? {
                Some((value, unique)) => (Some(value), Some(unique)),
                None => (None, None),
            };
            let changed = change.apply(SystemClock::new().now(), &[value]);
            let is_done = match changed.writes() {
                [write] => swap(&mut connection, name, write, unique).await?,
                _ => true,
            };
            if is_done {
                *place = Some(connection);
                return Ok(changed);
            }
        }
    }

    async fn place(&self, name: &str) -> MutexGuard<'_, Option<Connection>> {
        let sum: usize = name.bytes().map(usize::from).sum();
        self.connections[sum % CONNECTIONS].lock().await
    }
}

/// Returns the value, and the version of the write that made it.
async fn gets(connection: &mut Connection, name: &str) -> std::io::Result<Option<(Vec<u8>, u64)>> {
    connection
        .write_all(format!("gets {name}\r\n").as_bytes())
        .await?;
    let head = line(connection).await?;
    if head == "END" {
        return Ok(None);
    }
    // VALUE <name> <flags> <bytes> <number>
    let mut words = head.split(' ').skip(3).map(str::parse::<u64>);
    let (Some(Ok(len)), Some(Ok(unique))) = (words.next(), words.next()) else {
        return Err(unexpected(&head));
    };
    let len = usize::try_from(len).map_err(|_| unexpected(&head))?;
    let mut value = vec![0; len + 2];
    connection.read_exact(&mut value).await?;
    value.truncate(len);
    match line(connection).await?.as_str() {
        "END" => Ok(Some((value, unique))),
        other => Err(unexpected(other)),
    }
}

/// Writes the item, unless another write has changed it.
async fn swap(
    connection: &mut Connection,
    name: &str,
    write: &Write,
    unique: Option<u64>,
) -> std::io::Result<bool> {
    let (expiry, len) = (expiry(write.ttl()), write.value().len());
    let mut request = match unique {
        Some(unique) => format!("cas {name} 0 {expiry} {len} {unique}\r\n"),
        None => format!("add {name} 0 {expiry} {len}\r\n"),
    }
    .into_bytes();
    request.extend_from_slice(write.value());
    request.extend_from_slice(b"\r\n");
    connection.write_all(&request).await?;
    match line(connection).await?.as_str() {
        "STORED" => Ok(true),
        "EXISTS" | "NOT_STORED" | "NOT_FOUND" => Ok(false),
        other => Err(unexpected(other)),
    }
}

/// Returns the time to live in whole seconds, as a moment if it exceeds 30 days; 0 is never. It is rounded up, and one second
/// is added for the second that has begun, so that no item expires early.
fn expiry(ttl: Duration) -> u64 {
    let seconds = ttl.as_secs() + 2;
    if seconds <= 30 * 86_400 {
        return seconds;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let moment = now.as_secs() + seconds;
    // memcached stores moments in 32 bits.
    if moment < 1 << 31 { moment } else { 0 }
}

async fn line(connection: &mut Connection) -> std::io::Result<String> {
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the first word of the line, because a name may follow.
fn unexpected(line: &str) -> std::io::Error {
    let word = line.split(' ').next().unwrap_or_default();
    std::io::Error::other(format!("memcached answered {word:?}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:11211");
    run(address.parse()?).await
}

/// A test runs this too, and starts memcached for it.
pub(crate) async fn run(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let memcached = Memcached::at(address);
    Conformance::of_items(memcached.clone()).run().await?;
    println!("the store over memcached is right");

    let limiter = Limiter::builder()
        .policy(Policy::new("burst", TokenBucket::per_second(1).burst(3)))
        .policy(Policy::new("daily", FixedWindow::per_day(100)))
        .store(SharedStore::new(memcached))
        .build()?;
    limiter.reset("ann").await?;
    for request in 1..=4 {
        let allowed = limiter.check("ann", 1).await?.is_allowed();
        println!("request {request} is allowed: {allowed}");
    }
    print!("{}", limiter.inspect("ann").await?);
    Ok(())
}

//! A proxy between a client and its server, which causes the faults of networks.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::redis::{Server, free_port};

/// A proxy that carries bytes to a server and back, on a thread of its own.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: Weather,
    arrivals: Arc<AtomicUsize>,
    /// The orders. Closing the channel ends the proxy.
    orders: Option<UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// The present treatment of connections.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// The port of the server of new connections.
    server: u16,
    delay: Duration,
    swallows: bool,
    refuses: bool,
    /// How often each of these was done to all connections of the moment.
    cuts: u32,
    ends: u32,
    losses: u32,
}

/// A change of the treatment from now on. The reply comes when new connections know it.
type Order = (Weather, Sender<()>);

/// The side to which half of a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The client gets no more answers. Its requests still arrive, and are done.
    ToClient,
    /// The server gets no more requests, and hangs up. The client notices nothing.
    ToServer,
}

impl Proxy {
    /// Starts a proxy before this server.
    pub fn start(server: &Server) -> Self {
        let weather = Weather {
            server: server.port(),
            delay: Duration::ZERO,
            swallows: false,
            refuses: false,
            cuts: 0,
            ends: 0,
            losses: 0,
        };
        let (port, (orders, ordered)) = (free_port(), unbounded_channel());
        let arrivals = Arc::default();
        let arriving = Arc::clone(&arrivals);
        let thread = spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("there is a runtime");
            runtime.block_on(listen(port, weather, ordered, arriving));
        });
        let mut proxy = Self {
            port,
            weather,
            arrivals,
            orders: Some(orders),
            thread: Some(thread),
        };
        // The proxy listens when this returns.
        proxy.turn(|_| ());
        proxy
    }

    /// Returns its address, as a store takes it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns how often something has arrived from a client: a connection, or requests on it.
    pub fn arrivals(&self) -> usize {
        self.arrivals.load(Ordering::SeqCst)
    }

    /// Delays every answer.
    pub fn delay(&mut self, delay: Duration) {
        self.turn(|weather| weather.delay = delay);
    }

    /// Drops what arrives, both ways, and keeps connections open. A connection that has lost something never
    /// carries anything again, since no network leaves out a part.
    pub fn swallow(&mut self, swallows: bool) {
        self.turn(|weather| weather.swallows = swallows);
    }

    /// Closes all connections, and accepts new ones.
    pub fn cut(&mut self) {
        self.turn(|weather| weather.cuts += 1);
    }

    /// Closes all connections, and refuses new ones.
    pub fn refuse(&mut self) {
        self.turn(|weather| (weather.refuses, weather.cuts) = (true, weather.cuts + 1));
    }

    /// Accepts connections again.
    pub fn accept(&mut self) {
        self.turn(|weather| weather.refuses = false);
    }

    /// Closes a half of all connections. New ones are whole.
    pub fn half_close(&mut self, half: Half) {
        self.turn(|weather| match half {
            Half::ToClient => weather.ends += 1,
            Half::ToServer => weather.losses += 1,
        });
    }

    /// Closes all connections, and leads new ones to this server.
    pub fn lead_to(&mut self, server: &Server) {
        let port = server.port();
        self.turn(|weather| (weather.server, weather.cuts) = (port, weather.cuts + 1));
    }

    fn turn(&mut self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.weather);
        let (known, applied) = channel();
        let orders = self.orders.as_ref().expect("it has not ended");
        orders.send((self.weather, known)).expect("it listens");
        applied.recv().expect("it applies the order");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("it was started").expect("it does not panic");
        }
    }
}

async fn listen(
    port: u16,
    weather: Weather,
    mut ordered: UnboundedReceiver<Order>,
    arrivals: Arc<AtomicUsize>,
) {
    let (changes, weather) = watch::channel(weather);
    let mut listener = Some(bind(port).await);
    loop {
        tokio::select! {
            order = ordered.recv() => {
                let Some((weather, known)) = order else {
                    return;
                };
                listener = match listener {
                    _ if weather.refuses => None,
                    Some(listener) => Some(listener),
                    None => Some(bind(port).await),
                };
                changes.send_replace(weather);
                // The receiver may have gone in a panic.
                let _ = known.send(());
            }
            Ok((client, _)) = accept(listener.as_ref()) => {
                arrivals.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(carry(client, weather.clone(), Arc::clone(&arrivals)));
            }
        }
    }
}

async fn bind(port: u16) -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    listener.expect("the port is free")
}

async fn accept(
    listener: Option<&TcpListener>,
) -> std::io::Result<(TcpStream, std::net::SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn carry(
    client: TcpStream,
    mut weather: watch::Receiver<Weather>,
    arrivals: Arc<AtomicUsize>,
) {
    let at_first = *weather.borrow_and_update();
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, at_first.server)).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut requests, mut to_client) = client.into_split();
    let (mut answers, mut to_server) = server.into_split();
    let (mut asked, mut told) = ([0; 4096], [0; 4096]);
    let (mut is_lost, mut is_answered) = (false, true);
    let (mut has_ended, mut is_deaf) = (false, false);
    let mut late = VecDeque::<(Instant, Vec<u8>)>::new();
    loop {
        let now = *weather.borrow_and_update();
        if now.cuts != at_first.cuts {
            return;
        }
        if now.ends != at_first.ends && !has_ended {
            has_ended = true;
            let _ = to_client.shutdown().await;
        }
        if now.losses != at_first.losses && !is_deaf {
            is_deaf = true;
            let _ = to_server.shutdown().await;
        }
        let due = late.front().map(|(due, _)| *due);
        tokio::select! {
            changed = weather.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            read = requests.read(&mut asked) => {
                let Ok(length @ 1..) = read else {
                    return;
                };
                arrivals.fetch_add(1, Ordering::SeqCst);
                is_lost |= weather.borrow().swallows;
                let goes = !is_lost && !is_deaf;
                if goes && to_server.write_all(&asked[..length]).await.is_err() {
                    return;
                }
            }
            read = answers.read(&mut told), if is_answered => match read {
                Ok(length @ 1..) => {
                    late.push_back((Instant::now() + now.delay, told[..length].to_vec()));
                }
                _ if is_deaf => is_answered = false,
                _ => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                is_lost |= weather.borrow().swallows;
                if let Some((_, bytes)) = late.pop_front()
                    && !is_lost
                    && !has_ended
                    && to_client.write_all(&bytes).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

//! A node of the storm, in a process of its own: it sends itself requests that end in every way, and says of each on its
//! standard output when it begins and how it has ended. Another process kills and stops it.
//!
//! Arguments: the address of Redis, that of the judge, the number of the node, how many are let go on at once, and how
//! many users and teams there are.

#[allow(dead_code, reason = "the test uses the rest")]
mod script;
#[path = "../../support/tasks.rs"]
mod tasks;
#[allow(dead_code, reason = "the test uses the rest")]
mod weather;

use std::env;
use std::io::{Read, Write, stdin};
use std::net::TcpStream;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use http::StatusCode;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::{RedisStore, key};

use self::script::{Enter, WAYS, send, service};
use self::tasks::Tasks;
use self::weather::{Dice, Drawn, layer, user};

/// How many requests are under way at a time.
const TOGETHER: u32 = 32;

/// A stopped server is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than a node is stopped.
const SLOT_LIFE: Duration = Duration::from_secs(6);

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, judge, number, at_once, users, teams] = &arguments[..] else {
        panic!("it is told six words, and not {arguments:?}");
    };
    let numbers = [number, at_once, users, teams].map(|number| number.parse().expect("a number"));
    let mut judge = TcpStream::connect(judge).expect("there is a judge");
    judge.set_nodelay(true).expect("it is TCP");
    tell(&mut judge, format_args!("{}\n", numbers[0]));
    let goes_on = Arc::new(AtomicBool::new(true));
    let until_told = Arc::clone(&goes_on);
    thread::spawn(move || {
        // The other end of the pipe is closed when the storm is over.
        let _ = stdin().read(&mut [0]);
        until_told.store(false, Ordering::SeqCst);
    });
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("there can be threads");
    runtime.block_on(storm(url, Arc::new(Mutex::new(judge)), numbers, &goes_on));
}

/// Sends a message, and waits until it has arrived.
fn tell(judge: &mut TcpStream, message: std::fmt::Arguments<'_>) {
    let sent = judge.write_fmt(message);
    if sent.and_then(|()| judge.read_exact(&mut [0])).is_err() {
        // The test has ended.
        process::exit(1);
    }
}

/// Tells the judge when a request begins and ends.
struct Guest {
    judge: Arc<Mutex<TcpStream>>,
    request: u64,
    team: u32,
}

impl Guest {
    fn tell(&self, sign: char) {
        let message = format!("{sign} {} {}\n", self.request, self.team);
        tell(
            &mut self.judge.lock().expect("no message panics"),
            format_args!("{message}"),
        );
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.tell('-');
    }
}

fn enter(judge: &Arc<Mutex<TcpStream>>, request: u64, team: u32) -> Arc<Enter> {
    let judge = Arc::clone(judge);
    Arc::new(move || {
        let guest = Guest {
            judge: Arc::clone(&judge),
            request,
            team,
        };
        guest.tell('+');
        Box::new(guest)
    })
}

async fn storm(
    url: &str,
    judge: Arc<Mutex<TcpStream>>,
    [number, at_once, users, teams]: [u32; 4],
    goes_on: &AtomicBool,
) {
    let store = RedisStore::builder().deadline(PATIENCE).slot_ttl(SLOT_LIFE);
    let store = store.open(url).expect("it is an address");
    let layer = layer(at_once, store.clone());
    // While it holds this, a task renews slots all the time.
    let team = key::header("x-team").key_of(&format!("node-{number}"));
    let asked = [("at once", team.expect("it is short"), 1)];
    let limiter = layer.limiter();
    let held = limiter.named(asked);
    let held = held.expect("there is such a policy").reserve().await;
    assert!(held.as_ref().is_ok_and(Reservation::is_allowed));
    let tasks = Tasks::beside(&store).await;

    let service = service(&layer);
    let mut dice = Dice::new(number);
    let mut request = 0_u64;
    while goes_on.load(Ordering::SeqCst) {
        let mut sent = JoinSet::new();
        for _ in 0..TOGETHER {
            request += 1;
            let drawn = Drawn::by(&mut dice, users);
            let (team, rests) = (dice.below(teams), dice.below(3));
            let name = if drawn.is_alone() {
                format!("alone-{number}-{request}")
            } else {
                format!("team-{team}")
            };
            let script = drawn.script();
            let script = script.of_team(name, rests, enter(&judge, request, team));
            let service = service.clone();
            sent.spawn(async move {
                println!("began {request} {}", numbers(&drawn));
                let status = send(&service, &user(drawn.user), drawn.estimate, &script).await;
                if status == Some(StatusCode::TOO_MANY_REQUESTS) {
                    println!("refused {request}");
                } else {
                    println!("ended {request}");
                }
            });
        }
        while let Some(ended) = sent.join_next().await {
            ended.expect("what panics is caught");
        }
        tasks.end(0).await;
        println!("settled");
    }
    println!("lost {}", layer.limiter().lost_settlements());
    drop(held);
    // That of the renewal has ended too.
    tasks.end(1).await;
}

/// The way is told by its place in the list.
fn numbers(drawn: &Drawn) -> String {
    let way = WAYS.iter().position(|way| *way == drawn.way);
    let way = way.expect("it was drawn from the list");
    format!("{} {} {} {way}", drawn.user, drawn.estimate, drawn.cost)
}

use std::fmt::Display;
use std::io::Write as _;
use std::iter::once;

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::glue::glue;
use super::link::Link;
use tower_ratelimit_core::__internal::Lua;
use tower_ratelimit_core::clock::Micros;

/// A script in Lua, and the digest by which a server knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    digest: String,
}

/// The keys and arguments of a script.
#[derive(Debug, Default)]
pub(super) struct Call {
    keys: Words,
    arguments: Words,
}

#[derive(Debug, Default)]
struct Words {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: SmallVec<[usize; 16]>,
}

impl Script {
    /// Creates a script of these rules and a driver that finds them by name.
    pub(super) fn of(rules: &[Lua], driver: &str) -> Self {
        let text = glue(rules, driver);
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    /// Runs the script until `until`. A server that does not know it, as after a restart or a failover, has
    /// executed nothing, and is sent the text.
    pub(super) async fn run(&self, link: &Link, call: &Call, until: Instant) -> RedisResult<Value> {
        let known = link
            .send(call.command("EVALSHA", &self.digest), until)
            .await;
        match known {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.send(call.command("EVAL", &self.text), until).await
            }
            answer => answer,
        }
    }
}

impl Call {
    /// Begins a call at this moment, or at that of the server's clock.
    pub(super) fn at(moment: Option<Micros>) -> Self {
        let mut call = Self::default();
        match moment {
            Some(moment) => call.argument(moment.get()),
            None => call.argument(""),
        }
        call
    }

    pub(super) fn key(&mut self, key: impl Display) {
        self.keys.add(key);
    }

    pub(super) fn argument(&mut self, argument: impl Display) {
        self.arguments.add(argument);
    }

    pub(super) fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.argument(number);
        }
    }

    /// Adds the group and the rank of a charge of which one of several is made, or nothing.
    pub(super) fn place(&mut self, place: Option<(u8, u8)>) {
        if let Some((group, rank)) = place {
            self.numbers([group, rank].map(u64::from));
        } else {
            self.argument("");
            self.argument(0);
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.ends.len());
        for word in self.keys.iter().chain(self.arguments.iter()) {
            command.arg(word);
        }
        command
    }
}

impl Words {
    fn add(&mut self, word: impl Display) {
        // Writing to a vector cannot fail.
        let _ = write!(self.bytes, "{word}");
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = once(0).chain(self.ends.iter().copied());
        begins
            .zip(&self.ends)
            .map(|(begin, &end)| &self.bytes[begin..end])
    }
}

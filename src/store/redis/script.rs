use std::fmt::Display;
use std::io::Write as _;
use std::iter::once;

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::glue::glue;
use super::link::Link;
use crate::algorithm::Lua;

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
    pub(super) fn key(&mut self, key: impl Display) {
        self.keys.add(key);
    }

    pub(super) fn argument(&mut self, argument: impl Display) {
        self.arguments.add(argument);
    }

    /// Appends the keys and the arguments of another call.
    pub(super) fn add(&mut self, other: &Self) {
        self.keys.append(&other.keys);
        self.arguments.append(&other.arguments);
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

    fn append(&mut self, other: &Self) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = once(0).chain(self.ends.iter().copied());
        begins
            .zip(&self.ends)
            .map(|(begin, &end)| &self.bytes[begin..end])
    }
}

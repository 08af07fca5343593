use std::fmt::Display;
use std::io::Write as _;

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::glue::glue;
use super::link::Link;
use crate::algorithm::Lua;

/// A text in Lua, and the digest by which a server knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    digest: String,
}

/// A script's keys and arguments.
#[derive(Debug, Default)]
pub(super) struct Call {
    keys: SmallVec<[String; 4]>,
    arguments: Vec<u8>,
    /// Where each argument ends.
    ends: SmallVec<[usize; 32]>,
}

impl Script {
    /// These rules, and a driver that finds them by name.
    pub(super) fn of(rules: &[Lua], driver: &str) -> Self {
        let text = glue(rules, driver);
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    /// Runs it. A server that does not know it, as after a restart or a failover, has done nothing, and is
    /// told the text: that is the only call which is sent again.
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
    pub(super) fn key(&mut self, key: String) {
        self.keys.push(key);
    }

    pub(super) fn argument(&mut self, argument: impl Display) {
        // To write to a vector cannot fail.
        let _ = write!(self.arguments, "{argument}");
        self.ends.push(self.arguments.len());
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        let mut from = 0;
        for &end in &self.ends {
            command.arg(&self.arguments[from..end]);
            from = end;
        }
        command
    }
}

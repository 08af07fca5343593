//! A stand-in for a server: it records the commands of a client, and answers from a script.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The reply to a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptedReply {
    Say(&'static str),
    /// Allows each request that shares the call; each has one charge.
    Allow,
    /// Sends this, and closes the connection.
    Break(&'static str),
    Silence,
}

#[derive(Debug)]
pub(crate) struct StandIn {
    port: u16,
    heard: Arc<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    scripts: Mutex<Vec<Vec<String>>>,
    connections: AtomicUsize,
}

impl StandIn {
    /// Sends these replies to scripts and to questions for a sentinel, and accepts everything else.
    pub(crate) fn start(
        answer: impl Fn(&[String]) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, answer) = (Arc::new(Heard::default()), Arc::new(answer));
        let shared = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (heard, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &heard, &*answer));
            }
        });
        Self { port, heard }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns the scripts and the questions that arrived, each word of them.
    pub(crate) fn scripts(&self) -> Vec<Vec<String>> {
        self.heard.scripts.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.heard.connections.load(Ordering::SeqCst)
    }
}

fn serve(
    stream: TcpStream,
    heard: &Heard,
    answer: &dyn Fn(&[String]) -> ScriptedReply,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let words = command(&mut reader)?;
        let answer = if words[0].starts_with("EVAL") || words[0] == "SENTINEL" {
            heard.scripts.lock().unwrap().push(words.clone());
            answer(&words)
        } else {
            ScriptedReply::Say("+OK\r\n")
        };
        match answer {
            ScriptedReply::Allow => {
                let text = vec!["1;1;0;0 0 0"; keys(&words).len()].join("\n");
                let answer = format!("${}\r\n{text}\r\n", text.len());
                writer.write_all(answer.as_bytes()).ok()?;
            }
            ScriptedReply::Say(text) => writer.write_all(text.as_bytes()).ok()?,
            ScriptedReply::Break(text) => return writer.write_all(text.as_bytes()).ok(),
            ScriptedReply::Silence => {}
        }
    }
}

/// Returns the keys of a script.
pub(crate) fn keys(words: &[String]) -> &[String] {
    let keys: usize = words[2].parse().unwrap();
    &words[3..3 + keys]
}

/// Returns the words of the next command; `None` once the client has gone.
fn command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let words = number(reader, '*')?;
    let word = |_| {
        let mut word = vec![0; number(reader, '$')? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(String::from_utf8_lossy(&word).into_owned())
    };
    (0..words).map(word).collect()
}

fn number(reader: &mut impl BufRead, sign: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(sign)?.parse().ok()
}

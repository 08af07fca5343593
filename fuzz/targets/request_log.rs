//! A log of requests, as `replay` and `suggest` read it: a log that is replayed has a request in each line, and no line is passed over.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use libfuzzer_sys::fuzz_target;
use ratelimitd::command::run;
use serde_json::Value;

const LIMITS: &str = "
[policies.key]
quota = \"3/minute\"
key = \"api_key\"
cost = [{ path = \"/export/*\", cost = 2 }]
[policies.tenant]
algorithm = \"sliding-log\"
quota = \"5/hour\"
key = { header = \"x-tenant\" }
when = { method = \"POST\" }
";

thread_local! {
    static FOLDER: PathBuf = folder();
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ratelimitd-log-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    fs::write(folder.join("limits.toml"), LIMITS).expect("the folder is there");
    folder
}

fuzz_target!(|log: &[u8]| {
    FOLDER.with(|folder| {
        let (limits, path) = (folder.join("limits.toml"), folder.join("log"));
        let replayed = |log: &[u8]| {
            fs::write(&path, log).expect("the folder is there");
            succeeds(&[
                "replay",
                "--jsonl",
                &limits.to_string_lossy(),
                &path.to_string_lossy(),
            ])
        };
        let is_read = replayed(log);
        let text = String::from_utf8_lossy(log);
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        assert!(!is_read || lines.all(is_request), "a line is no request");
        // Traffic, by the address and by a field.
        let path = path.to_string_lossy();
        let _ = succeeds(&["suggest", "--key", "client_ip", "--key", "x-tenant", &path]);
        let broken = [log, b"\n{\"t_us\":1}\n"].concat();
        assert!(!replayed(&broken), "the last line has no key");
    });
});

/// Whether a command ends well.
fn succeeds(arguments: &[&str]) -> bool {
    let arguments = ["ratelimitd"].iter().chain(arguments);
    run(arguments.map(Into::into), []) == ExitCode::SUCCESS
}

/// An object, or its members in their order.
fn is_request(line: &str) -> bool {
    let Ok(request) = serde_json::from_str::<Value>(line) else {
        return false;
    };
    let member = |name: &str, place: usize| request.get(name).or(request.get(place));
    member("t_us", 0).is_some_and(Value::is_u64) && member("key", 1).is_some_and(Value::is_string)
}

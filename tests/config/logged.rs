//! The log of reloads.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::sync::Mutex;

use tower_ratelimit_config::Config;

use crate::folder::Folder;
use crate::support::log::Log;

/// A file of limits, and three files that are wrong, two of them in the same line.
const FILES: [&str; 4] = [
    "[policies.a]\nquota = \"1/day\"\nkey = \"global\"\n",
    "[policies.a]\nquota = \"1/dya\"\nkey = \"global\"\n",
    "[policies.a]\nquota = \"1/dya\"\nkey = \"global\"\n# Another content.\n",
    "",
];

#[test]
fn a_bad_file_is_told_once_for_each_content() {
    let folder = Folder::new("logged");
    fs::write(folder.file(), FILES[0]).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let told = |file: usize| {
        fs::write(folder.file(), FILES[file]).unwrap();
        let (reloaded, lines) = Log::of(|| watched.reload());
        assert_eq!(reloaded.is_ok(), file == 0);
        assert!(lines.iter().all(|line| line.level == tracing::Level::WARN));
        let codes = lines.iter().filter_map(|line| line.fields.get("code"));
        assert!(codes.clone().all(|code| code == "TRL023"), "{lines:?}");
        codes.count()
    };
    for (file, times) in [
        (1, 1),
        (1, 0),
        (1, 0),
        (2, 1),
        (2, 0),
        (0, 0),
        (3, 1),
        // It was logged before.
        (1, 0),
    ] {
        assert_eq!(told(file), times, "file {file}");
    }
}

/// A terminal shows the lines of the mistakes and their carets. What a file brings in makes no lines of its own.
#[test]
fn a_log_shows_the_mistakes_of_a_file_as_lines() {
    let folder = Folder::new("logged-lines");
    fs::write(folder.file(), FILES[0]).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    let bad =
        "[policies.lines]\nquota = \"1/dya\"\nkey = \"global\"\n\"a\\n2026 WARN forged\" = 1\n";
    fs::write(folder.file(), bad).unwrap();
    let mut shown = fs::File::create_new(folder.path().join("log")).unwrap();
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(Mutex::new(shown.try_clone().unwrap()));
    let ((), _) = Log::of(|| ());
    tracing::subscriber::with_default(log.finish(), || watched.reload()).unwrap_err();
    let mut text = String::new();
    shown.rewind().unwrap();
    shown.read_to_string(&mut text).unwrap();
    let at = text.find("TRL023").expect("it is logged");
    let end = text[at..]
        .find("2 mistakes")
        .expect("it ends with a number")
        + at;
    let lines: Vec<_> = text[at..end].lines().collect();
    assert!(
        lines.contains(&"   2 | quota = \"1/dya\"") && lines.contains(&"     |         ^^^^^^^"),
        "{text}"
    );
    assert!(
        lines[1..].iter().all(|line| line.starts_with("  ")) && text.contains("forged"),
        "{text}"
    );
}

#[test]
fn the_log_of_a_bad_file_shows_no_secret() {
    let folder = Folder::new("logged-secret");
    let with = |secret: &str, quota: &str| {
        format!("secret = \"{secret}\"\n[policies.a]\nquota = \"{quota}\"\nkey = \"global\"\n")
    };
    fs::write(folder.file(), with("0123456789abcdef", "1/day")).unwrap();
    let watched = Config::read(folder.file()).unwrap().watch().unwrap();
    for text in [
        with("hunter2-hunter2-hunter2", "1/day"),
        with("hunter2-hunter2-hunter2", "1/dya"),
        with("hunter2", "1/day"),
    ] {
        fs::write(folder.file(), text).unwrap();
        let (reloaded, lines) = Log::of_all(|| watched.reload());
        let shown = format!("{reloaded:?}{lines:?}{}", watched.status());
        assert!(
            shown.contains("TRL023") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}

/// An operator who edits another file than the watched one finds it here.
#[test]
fn the_log_says_once_which_file_is_followed_and_where_its_links_lead() {
    let folder = Folder::new("logged-place");
    fs::write(folder.path().join("real.toml"), FILES[0]).unwrap();
    std::os::unix::fs::symlink("real.toml", folder.file()).unwrap();
    let config = Config::read(folder.file()).unwrap();
    let (watched, lines) = Log::of(|| config.watch().unwrap());
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let place = folder.path().canonicalize().unwrap().join("real.toml");
    assert_eq!(line.level, tracing::Level::INFO);
    assert_eq!(line.fields["path"], folder.file().display().to_string());
    assert_eq!(line.fields["place"], place.display().to_string());
    let (_, lines) = Log::of(|| watched.reload());
    assert!(lines.is_empty(), "{lines:?}");
}

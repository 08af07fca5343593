//! Which deep checks a change calls for: the table of `.ci/paths`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).to_owned()
}

/// The deep checks that CI runs after a change of these files.
fn called_for(changed: &[&str]) -> Vec<String> {
    let mut child = Command::new(root().join(".ci/deep"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let names = changed.join("\n");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(names.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let checks = String::from_utf8(output.stdout).unwrap();
    checks.lines().map(str::to_owned).collect()
}

/// Each row of the table: a check, and its patterns.
fn rows() -> Vec<(String, Vec<String>)> {
    let table = fs::read_to_string(root().join(".ci/paths")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut words = row.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.collect()))
    })
    .collect()
}

#[test]
fn a_change_calls_for_the_checks_of_its_files() {
    for (changed, expected) in [
        ("README.md", vec![]),
        (
            "crates/core/src/store/memory/mod.rs",
            vec!["laws", "chaos", "model", "instructions", "way"],
        ),
        (
            "crates/redis/src/lease/pair.rs",
            vec!["laws", "chaos", "simulate", "instructions"],
        ),
        (
            "src/response/mod.rs",
            vec!["interop", "loadtest", "instructions", "way"],
        ),
        ("server/src/main.rs", vec!["interop", "loadtest"]),
        (
            "benches/way/bounds.txt",
            vec!["instructions", "way", "bench-once"],
        ),
        ("tests/chaos/main.rs", vec!["chaos"]),
        ("tests/http/main.rs", vec![]),
        (".ci/passed", vec![]),
        (".ci/empty-folder", vec!["packages"]),
    ] {
        assert_eq!(called_for(&[changed]), expected, "{changed}");
    }
    let both = ["README.md", "tests/chaos/main.rs", "benches/src/lib.rs"];
    assert_eq!(
        called_for(&both),
        ["chaos", "instructions", "way", "bench-once"]
    );
    assert_eq!(called_for(&[]), [""; 0]);
}

#[test]
fn a_change_of_the_table_of_a_manifest_or_of_the_lock_calls_for_all_checks() {
    let mut all: Vec<String> = rows().into_iter().map(|(check, _)| check).collect();
    all.dedup();
    for changed in [
        ".ci/paths",
        ".ci/run",
        "Makefile",
        "Cargo.lock",
        "tests/laws/Cargo.toml",
    ] {
        assert_eq!(called_for(&["README.md", changed]), all, "{changed}");
    }
}

#[test]
fn each_check_of_the_table_is_a_target_and_make_test_deep_has_no_other() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let deep = makefile
        .lines()
        .find_map(|line| line.strip_prefix("test-deep: "));
    let deep: Vec<&str> = deep
        .unwrap()
        .split(" ##")
        .next()
        .unwrap()
        .split(' ')
        .collect();
    let rows = rows();
    for (check, _) in &rows {
        assert!(
            makefile.contains(&format!("\n{check}: ")),
            "{check} is no target of make"
        );
    }
    for target in deep {
        assert!(
            rows.iter().any(|(check, _)| check == target),
            "{target} is in no row"
        );
    }
}

#[test]
fn each_pattern_of_the_table_has_a_file() {
    for (check, patterns) in rows() {
        for pattern in patterns {
            let there = root().join(pattern.trim_end_matches("/*"));
            let is_right = if pattern.contains('*') {
                there.is_dir()
            } else {
                there.is_file()
            };
            assert!(is_right, "{check}: no file is called {pattern}");
        }
    }
}

/// Where there are no servers, these modules are left out, and `make matrix` runs them on each version.
#[test]
fn unit_tests_that_start_a_server_are_in_the_list() {
    let list = fs::read_to_string(root().join("tests/servers/unit-modules")).unwrap();
    let listed = list.lines().filter_map(|path| path.rsplit("::").nth(1));
    let mut listed: Vec<String> = listed.map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut folders = ["src", "tests/unit"]
        .map(|folder| root().join("crates/redis").join(folder))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path)
                .unwrap()
                .contains("Server::start(")
            {
                found.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    listed.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, listed);
}

#[test]
fn workflows_run_what_a_person_can_run() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets: Vec<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(": ").or_else(|| line.split_once(':')))
        .map(|(target, _)| target)
        .collect();
    let mut commands = 0;
    for entry in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let workflow = fs::read_to_string(&path).unwrap();
        for line in workflow.lines() {
            let Some((_, command)) = line.split_once("run: ") else {
                continue;
            };
            commands += 1;
            let words: Vec<&str> = command.split(' ').collect();
            let is_known = match words[..] {
                // The names of a matrix are rows of the table of deep checks.
                ["make", "${{", "matrix.check", "}}"] => matrix(&workflow)
                    .iter()
                    .all(|check| targets.contains(&check.as_str())),
                ["make", target, ..] => targets.contains(&target),
                ["rustup", ..] => true,
                [script] => root().join(script).is_file(),
                _ => false,
            };
            assert!(is_known, "{} runs `{command}`", path.display());
        }
    }
    assert!(commands > 5, "{commands} commands are read");
}

/// The checks of a workflow's matrix.
fn matrix(workflow: &str) -> Vec<String> {
    let list = workflow.lines().find_map(|line| {
        let list = line.trim().strip_prefix("check: [")?;
        list.strip_suffix(']')
    });
    list.unwrap().split(", ").map(str::to_owned).collect()
}

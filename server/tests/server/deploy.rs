//! The files of `deploy`, as far as they can be tested without other programs; `tests/interop/deploy` tests the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::descriptors::calls::post;
use super::process::{HOST, Server};
use super::program::{File, printed_with};

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).to_owned()
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The words of a text that begin so.
fn words<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let words = text.split(|it| !is_part(it));
    words.filter(|word| word.starts_with(prefix)).collect()
}

#[test]
fn each_variable_is_that_of_a_flag() {
    let help = printed_with(&["serve", "--help"], &[]);
    let known = words(&help, "RATELIMITD_");
    let mut found = 0;
    for file in files(&root().join("deploy")) {
        let text = fs::read_to_string(&file).unwrap();
        for variable in words(&text, "RATELIMITD_") {
            // Kubernetes would set it; the comment tells why it does not.
            if variable == "RATELIMITD_PORT" {
                continue;
            }
            assert!(known.contains(variable), "{}: {variable}", file.display());
            found += 1;
        }
    }
    assert!(found >= 6, "only {found}");
}

#[test]
fn each_file_of_limits_has_no_mistake() {
    let manifest = read("deploy/kubernetes/configmap.yaml");
    let (_, limits) = manifest.split_once("  limits.toml: |\n").unwrap();
    let limits: String = limits
        .lines()
        .flat_map(|line| [line.strip_prefix("    ").unwrap_or(line), "\n"])
        .collect();
    let guide = read("server/docs/from-nginx.md");
    let of_the_guide = guide.split("```toml\n").skip(1);
    let mut texts: Vec<_> = of_the_guide
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect();
    assert_eq!(texts.len(), 2);
    texts.extend([limits, read("deploy/compose/limits/limits.toml")]);
    for text in texts {
        let file = File::new("limits.toml", &text);
        let redis = [("REDIS_URL", "redis://127.0.0.1:1/")];
        let table = printed_with(&["check", file.path()], &redis);
        assert!(table.contains("policy"), "{text}\n{table}");
    }
}

#[test]
fn the_folder_of_the_limits_is_mounted_and_not_the_file() {
    for file in ["deploy/compose/docker-compose.yml", "deploy/Dockerfile"] {
        let text = read(file);
        assert!(text.contains("./limits:/etc/ratelimitd:ro"), "{file}");
        assert!(!text.contains("limits.toml:/"), "{file}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_there_are() {
    let page = read("crates/ops/docs/metrics.md");
    let mut known: BTreeSet<_> = words(&page, "ratelimit_");
    let limits = "[[envoy]]\ndomain = \"shop\"\nentries = [\"tenant\"]\nquota = \"9/minute\"\n";
    let limits = File::new("limits.toml", limits);
    let server = Server::start(&[limits.path()]);
    let question = "{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"tenant\",\"value\":\"a\"}]}]}";
    assert_eq!(post(&server.clients, "/json", question).0, 200);
    let scraped = server.ops("/metrics", HOST);
    known.extend(words(&scraped, "ratelimitd_"));
    // Of a listener over TLS alone.
    known.insert("ratelimitd_certificate_error");
    known.insert("ratelimitd_certificate_expiration_timestamp_seconds");
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/ratelimitd.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let mut queries: Vec<String> = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect();
    assert!(queries.len() > 10, "only {}", queries.len());
    queries.push(read("docs/alerts.yml"));
    queries.push(read("deploy/prometheus/server-alerts.yml"));
    for query in queries {
        for name in words(&query, "ratelimit") {
            let is_metric = name.starts_with("ratelimit_") || name.starts_with("ratelimitd_");
            assert!(!is_metric || known.contains(name), "{name} in {query}");
        }
    }
}

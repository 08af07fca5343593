//! The pages of documentation, which a reader sees in two places: as files of the repository, and as rustdoc renders them.
//!
//! So a page has nothing that only rustdoc understands: no path of Rust as the target of a link, and no hidden line in an example.
//! A link to an item or to another page leads to docs.rs, and `.ci/links` looks whether it is there.

use std::fs;

use super::root;

/// The folders of pages that rustdoc includes.
const FOLDERS: [&str; 7] = [
    "docs",
    "docs/migrating",
    "crates/adapt/docs",
    "crates/config/docs",
    "crates/ops/docs",
    "loadtest/docs",
    "server/docs",
];

/// Where a page that rustdoc renders has its pictures: rustdoc copies none, and a path leads nowhere there.
const OF_THE_REPOSITORY: &str = "https://raw.githubusercontent.com/OWNER/tower-ratelimit/main/";

/// A page, by its path below the root.
pub(super) struct Page {
    pub(super) path: String,
    pub(super) text: String,
}

pub(super) fn pages() -> Vec<Page> {
    let mut paths = vec![String::from("src/client/clients.md")];
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let page = entry.unwrap().path();
            let name = page.file_name().unwrap().display();
            // The list of all pages is a file of the repository alone.
            if page.extension().is_some_and(|extension| extension == "md")
                && name.to_string() != "README.md"
            {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    let read = |path: String| Page {
        text: fs::read_to_string(root().join(&path)).unwrap(),
        path,
    };
    paths.into_iter().map(read).collect()
}

/// Splits a page into its prose and its blocks of code, each with the language.
pub(super) fn parts(text: &str) -> (Vec<&str>, Vec<(&str, Vec<&str>)>) {
    let (mut prose, mut blocks): (_, Vec<(&str, Vec<&str>)>) = (Vec::new(), Vec::new());
    let mut is_code = false;
    for line in text.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(language) if !is_code => {
                blocks.push((language, Vec::new()));
                is_code = true;
            }
            Some(_) => is_code = false,
            None if is_code => blocks.last_mut().unwrap().1.push(line),
            None => prose.push(line),
        }
    }
    (prose, blocks)
}

/// The targets of the links in a line of prose. Code between backticks is no link, unless it is the text of one.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
    ends.filter_map(|rest| {
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth < 0
        });
        Some(&rest[..end?])
    })
    .collect()
}

/// The link to a heading, as rustdoc and the repository make it.
fn slug(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What a reader of the repository would see as it is, or could not follow.
fn of_rustdoc_alone(page: &Page) -> Vec<String> {
    let (prose, blocks) = parts(&page.text);
    let mut found = Vec::new();
    let headings: Vec<String> = prose
        .iter()
        .filter(|line| line.starts_with('#'))
        .map(|line| slug(line))
        .collect();
    for target in prose.iter().flat_map(|line| targets(line)) {
        let leads = if let Some(heading) = target.strip_prefix('#') {
            headings.iter().any(|one| one == heading)
        } else if let Some(path) = target.strip_prefix(OF_THE_REPOSITORY) {
            root().join(path).exists()
        } else {
            target.starts_with("https://") || target.starts_with("http://")
        };
        if !leads {
            found.push(format!("a link to {target}"));
        }
    }
    for line in prose {
        // `[`Name`]` without a target.
        if line
            .match_indices("`]")
            .any(|(at, _)| !line[at + 2..].starts_with('('))
        {
            found.push(format!("a link without a target: {line}"));
        }
    }
    for (language, lines) in blocks {
        if language.is_empty() {
            found.push(format!("a block without a language: {}", lines.join("\n")));
        }
        if language.starts_with("rust") {
            let hidden = lines
                .iter()
                .filter(|line| **line == "#" || line.trim_start().starts_with("# "));
            found.extend(hidden.map(|line| format!("a hidden line: {line}")));
            found.extend(
                statement(&lines).map(|line| format!("a statement outside of a function: {line}")),
            );
        }
    }
    found
}

/// Returns the first statement of an example that rustdoc puts into a `main`, and a reader's compiler refuses.
fn statement<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let is_statement = |line: &&&str| {
        let call = line.find('(').map(|at| &line[..at]);
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_.:!".contains(c);
        line.starts_with("let ")
            || call.is_some_and(|name| !name.is_empty() && name.chars().all(is_path))
    };
    lines.iter().find(is_statement).copied()
}

#[test]
fn a_page_has_nothing_that_only_rustdoc_understands() {
    let pages = pages();
    assert!(pages.len() > 30, "{}", pages.len());
    for page in pages {
        let found = of_rustdoc_alone(&page);
        assert!(found.is_empty(), "{}: {found:#?}", page.path);
    }
}

/// The files that rustdoc does not include.
const FILES: [&str; 16] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "crates/adapt/README.md",
    "crates/config/README.md",
    "crates/core/README.md",
    "crates/ops/README.md",
    "crates/redis/README.md",
    "crates/testing/README.md",
    "deploy/README.md",
    "docs/README.md",
    "examples/README.md",
    "loadtest/README.md",
    "server/README.md",
];

/// Whether a link from this file leads to a file, and to a heading of it.
fn leads(file: &str, target: &str) -> bool {
    if target.contains("://") {
        return true;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let here = root().join(file);
    let there = if path.is_empty() {
        here
    } else {
        here.with_file_name(path)
    };
    if heading.is_empty() {
        return there.exists();
    }
    fs::read_to_string(there).is_ok_and(|text| {
        let mut headings = parts(&text)
            .0
            .into_iter()
            .filter(|line| line.starts_with('#'));
        headings.any(|line| slug(line) == heading)
    })
}

#[test]
fn links_between_files_of_the_repository_lead_somewhere() {
    let mut links = 0;
    for file in FILES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        for target in parts(&text).0.into_iter().flat_map(targets) {
            assert!(leads(file, target), "{file}: {target}");
            links += 1;
        }
    }
    assert!(links > 80, "{links}");
    assert!(leads("README.md", "docs/keys.md#behind-a-proxy"));
    assert!(!leads("README.md", "docs/keys.md#before-a-proxy"));
    assert!(!leads("README.md", "docs/locks.md"));
}

#[test]
fn the_list_of_pages_has_all_of_them() {
    let list = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let listed: Vec<&str> = parts(&list).0.into_iter().flat_map(targets).collect();
    for Page { path, .. } in pages() {
        // One page leads to all of these, and the documentation of a module includes the other.
        if path.starts_with("docs/migrating/") || path == "src/client/clients.md" {
            continue;
        }
        let from_there = match path.strip_prefix("docs/") {
            Some(name) => name.to_owned(),
            None => format!("../{path}"),
        };
        assert!(listed.contains(&from_there.as_str()), "{path}");
    }
}

#[test]
fn an_example_of_the_readme_is_a_program() {
    for file in FILES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        for (language, lines) in parts(&text).1 {
            let found = statement(&lines).filter(|_| language.starts_with("rust"));
            assert_eq!(found, None, "{file}");
        }
    }
}

#[test]
fn what_only_rustdoc_understands_is_found() {
    let of = |text: &str| {
        let page = Page {
            path: String::from("docs/page.md"),
            text: text.to_owned(),
        };
        of_rustdoc_alone(&page).len()
    };
    for text in [
        "A [policy](crate::Policy).",
        "[`key::client_ip()`](crate::key::client_ip()), and more",
        "A [policy](tower_ratelimit::Policy).",
        "See [`Policy`].",
        "See [there](other.md).",
        "![what is admitted](compare.svg)",
        "![it](https://raw.githubusercontent.com/OWNER/tower-ratelimit/main/docs/no.svg)",
        "See [below](#the-other).\n\n# The one\n",
        "```\nlet a = 1;\n```",
        "```rust\n# use std::fmt;\nfn f() {}\n```",
        "```rust\nlet a = 1;\n```",
        "```rust\nassert!(limits().is_ok());\n```",
    ] {
        assert_eq!(of(text), 1, "{text}");
    }
    for text in [
        "A [policy](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.Policy.html), `[lists]`.",
        "See [below](#what-1-costs).\n\n## What `1` costs\n",
        "![what is admitted](https://raw.githubusercontent.com/OWNER/tower-ratelimit/main/docs/compare.svg)",
        "```toml\n# A comment.\nlimit = 1\n```",
        "```rust,no_run\n#[derive(Clone)]\nstruct A;\n```",
    ] {
        assert_eq!(of(text), 0, "{text}");
    }
}

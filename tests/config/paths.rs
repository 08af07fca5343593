//! Paths with several spellings: no spelling escapes a limit, and none gets an exemption.

use tower_ratelimit::config::Config;

use crate::scene::{config, get, layer, mistakes, send};

const POLICY: &str = "[policies.a]\nkey = \"global\"\nquota = \"100/day\"\n";

/// All spellings of one path. Servers differ in which of them they treat as equal.
const ADMIN: [&str; 6] = [
    "/admin/users",
    "/%61dmin/users",
    "//admin//users",
    "/x/../admin/users",
    "/./admin/users",
    "/x/%2E%2e/admin/./users",
];

/// Returns whether a policy decides a request to this path.
fn is_limited(config: &Config, path: &str) -> bool {
    send(&layer(config), get(path)).policies.is_some()
}

#[test]
fn a_limit_by_path_concerns_every_spelling_of_it() {
    let limited = config(&format!("{POLICY}when = {{ path = \"/admin/*\" }}"));
    for path in ADMIN {
        assert!(is_limited(&limited, path), "{path}");
    }
    for path in ["/", "/administrator", "/admin/../x", "/a%64min%2Fusers"] {
        let expected = path.starts_with("/admin/");
        assert_eq!(is_limited(&limited, path), expected, "{path}");
    }
}

#[test]
fn an_exemption_by_path_concerns_no_path_that_a_server_may_take_for_another_one() {
    for exempting in [
        "when = { not = { path = \"/free/*\" } }",
        "cost = [{ path = \"/free/*\", cost = 0 }]",
        "[lists]\nallow = { path = \"/free/*\" }",
        "[lists]\nexempt_paths = [\"/free/\"]",
    ] {
        let config = config(&format!("{POLICY}{exempting}"));
        let is_charged = |path: &str| {
            let limits = send(&layer(&config), get(path)).limits;
            limits.is_some_and(|limits| limits.contains("r=99"))
        };
        assert!(!is_charged("/free/"), "{exempting}");
        for path in [
            "/free/../admin",
            "/free/%2e%2e/admin",
            "/admin/../free/",
            "//free/",
        ] {
            assert!(is_charged(path), "{path}, {exempting}");
        }
    }
}

#[test]
fn an_operation_by_path_has_every_spelling_of_it() {
    let config = config(
        "[policies.a]\nkey = \"global\"\noperation = \"path\"\n\
         operations = { \"/admin\" = \"3/day\", other = \"100/day\" }",
    );
    for path in ADMIN {
        let told = send(&layer(&config), get(path)).policies.unwrap();
        assert_eq!(told, "\"a\";q=3;w=86400", "{path}");
    }
    // All spellings are one operation, with one state.
    let layer = layer(&config);
    let statuses: Vec<u16> = ADMIN
        .iter()
        .map(|path| send(&layer, get(path)).status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

#[test]
fn a_path_that_no_request_has_in_its_normal_form_is_a_mistake() {
    let operations = "[policies.a]\nkey = \"global\"\noperation = \"path\"\noperations = { \"/a/../b\" = \"3/day\", other = \"9/day\" }";
    for (text, place) in [
        (
            format!("{POLICY}when = {{ path = \"/%61dmin\" }}"),
            "write \"/admin\"",
        ),
        (
            format!("{POLICY}when = {{ path = \"//bulk/*\" }}"),
            "write \"/bulk\"",
        ),
        (operations.to_owned(), "write \"/b\""),
    ] {
        let told = mistakes(&text);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("has another normal form"), "{told:?}");
        assert!(told[0].contains(place), "{told:?}");
    }
}

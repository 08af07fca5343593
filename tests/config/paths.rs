//! Paths with several spellings: no spelling escapes a limit, and none gets an exemption.

use tower_ratelimit_config::Config;

use crate::scene::{config, get, layer, mistakes, send};

const POLICY: &str = "[policies.a]\nkey = \"global\"\nquota = \"100/day\"\n";

/// All spellings of one path. Servers differ in which of them they treat as equal.
const ADMIN: [&str; 13] = [
    "/admin/users",
    "/%61dmin/users",
    "//admin//users",
    "/x/../admin/users",
    "/./admin/users",
    "/x/%2E%2e/admin/./users",
    "/a%64min%2Fusers",
    "/x/..%2fadmin/users",
    "/x/%2e%2e%5cadmin/users",
    "/x/..;/admin;v=1/users",
    "/%2561dmin/users",
    "/x//../admin//users",
    "/admin/users%00.png",
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
    assert!(is_limited(&limited, "/admin/../x"));
    for path in ["/", "/administrator", "/x%2fadmin"] {
        assert!(!is_limited(&limited, path), "{path}");
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
        if !exempting.contains("exempt_paths") {
            assert!(!is_charged("/free/a%20b/%c3%a4"), "{exempting}");
        }
        for path in [
            "/free/../admin",
            "/free/%2e%2e/admin",
            "/admin/../free/",
            "//free/",
            "/free/..%2fadmin",
            "/free/%2e%2e%2Fadmin",
            "/free/..%5cadmin",
            "/free/..;/admin",
            "/free/%252e%252e/admin",
            "/free/x%00",
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
    for (number, path) in ADMIN.iter().enumerate() {
        let expected = if number < 3 { 200 } else { 429 };
        assert_eq!(send(&layer, get(path)).status, expected, "{path}");
    }
}

#[test]
fn of_several_readings_the_operation_with_the_lowest_limit_and_the_highest_cost_count() {
    let operations = config(
        "[policies.a]\nkey = \"global\"\noperation = \"path\"\n\
         operations = { \"/search\" = \"100/day\", \"/admin\" = \"3/day\", other = \"9/day\" }",
    );
    let costs = config(&format!(
        "{POLICY}cost = [{{ path = \"/search/*\", cost = 2 }}, {{ path = \"/admin/*\", cost = 50 }}]"
    ));
    for (path, limit, remaining) in [
        ("/search/x", 100, 98),
        ("/search/..%2fadmin", 3, 50),
        ("/search/..%2fx", 9, 98),
        ("/admin/..;/search", 3, 50),
        ("/x", 9, 99),
    ] {
        let told = send(&layer(&operations), get(path)).policies.unwrap();
        assert_eq!(told, format!("\"a\";q={limit};w=86400"), "{path}");
        let told = send(&layer(&costs), get(path)).limits.unwrap();
        assert!(told.contains(&format!("r={remaining};")), "{path}: {told}");
    }
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

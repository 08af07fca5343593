//! Paths that the upstream may read otherwise than the limits.

use super::nginx::Nginx;
use super::scene::Scene;

const PIECES: [&str; 34] = [
    "/", "/", "/", "/", "health", "health", "api", "api", "x", "..", "..", "..", ".", "%2e",
    "%2E%2e", "%2f", "%2F", "%5c", "\\", ";", ";a=b", "%3b", "%252e", "%252f", "%25", "%00", "%3f",
    "%23", "%20", "%61pi", "%68ealth", "%c3%a4", "a%70i", "%",
];

/// Paths of these pieces, the same in each run, which begin in the exempt directory in two of three cases.
fn paths(count: usize) -> impl Iterator<Item = String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % end as u64).unwrap()
    };
    (0..count).map(move |_| {
        let mut path = ["/", "/health/", "/health"][next(3)].to_owned();
        for _ in 0..next(8) {
            path.push_str(PIECES[next(PIECES.len())]);
        }
        path
    })
}

fn is_below(directory: &str, path: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What Envoy makes of a path with `normalize_path`, `merge_slashes` and `path_with_escaped_slashes_action:
/// UNESCAPE_AND_FORWARD`, by its documentation: escaped slashes first, then RFC 3986, then slashes.
fn envoy(path: &str) -> String {
    let mut path = path.to_owned();
    for (escaped, plain) in [("%2f", "/"), ("%2F", "/"), ("%5c", "/"), ("%5C", "/")] {
        path = path.replace(escaped, plain);
    }
    let path = path
        .replace('\\', "/")
        .replace("%2e", ".")
        .replace("%2E", ".");
    let path = path
        .replace("%61", "a")
        .replace("%68", "h")
        .replace("%70", "p");
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    format!("/{}", segments.join("/"))
}

#[tokio::test]
async fn what_an_upstream_serves_is_exempt_or_limited_as_it_reads_the_path() {
    let served = "location / { default_type text/plain; return 200 $uri; }";
    let nginx = Nginx::start(2, |at| {
        format!(
            "server {{ listen {}; {served} }}\nserver {{ listen {}; merge_slashes off; {served} }}",
            at[0], at[1]
        )
    });
    let policy = "[policies.a]\nkey = \"global\"\nquota = \"1000000/day\"\n";
    let exempting = format!("{policy}[lists]\nallow = {{ path = \"/health/*\" }}\n");
    let limiting = format!("{policy}when = {{ path = \"/api/*\" }}\n");
    let (mut served_limited, mut served_exempt) = (0, 0);
    for at in &nginx.addresses {
        let upstream = format!("http://{at}");
        let exempting = Scene::before(&upstream, &exempting).await;
        let limiting = Scene::before(&upstream, &limiting).await;
        let known = [
            "/health/..%2fapi",
            "/health/%2e%2e%2fapi",
            "/health/x",
            "/health/%c3%a4%20x",
            "/x/..%2fapi",
        ];
        let known = known.into_iter().map(ToOwned::to_owned);
        for path in known.chain(paths(600)) {
            let answer = exempting.get(&path, &[]).await;
            let is_exempt = answer.header("ratelimit").is_none();
            let limited = limiting.get(&path, &[]).await;
            if answer.status() != 200 {
                continue;
            }
            // nginx, hyper, which takes the path as it is, and Envoy.
            for reading in [answer.body().to_owned(), path.clone(), envoy(&path)] {
                if is_exempt {
                    assert!(is_below("/health", &reading), "{path} is {reading}");
                    served_exempt += 1;
                }
                if is_below("/api", &reading) {
                    let is_limited = limited.header("ratelimit").is_some();
                    assert!(is_limited, "{path} is {reading}");
                    served_limited += 1;
                }
            }
        }
    }
    // Both cases were there.
    assert!(served_limited > 20, "{served_limited}");
    assert!(served_exempt > 20, "{served_exempt}");
}

//! The page: one file, which loads nothing else.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha2::{Digest, Sha256};

pub(super) const PAGE: &str = include_str!("page.html");

/// The `Content-Security-Policy`: the rights of the page in a browser: to run its own script, use its own style, and connect to this service.
///
/// Script and style are named by their digests, so no other text can become either.
pub(super) static CONTENT_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let text = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        source("script"),
        source("style"),
    );
    // The text has no character that a header cannot have. Without a page nothing has to be allowed.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(NOTHING))
});

/// The `Content-Security-Policy` of responses other than the page.
pub(super) const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Returns the digest of the only element with this name.
fn source(element: &str) -> String {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let inside = PAGE
        .split_once(&begin)
        .and_then(|(_, rest)| rest.split_once(&end));
    let digest = Sha256::digest(inside.map_or("", |(inside, _)| inside));
    format!("sha256-{}", STANDARD.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_names_nothing_outside() {
        assert!(PAGE.len() <= 60_000, "{} bytes", PAGE.len());
        for outside in [
            "//cdn", "https://", "src=", "@import", "url(http", "import(",
        ] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        let elsewhere = PAGE.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://"));
    }

    #[test]
    fn the_page_makes_no_markup_of_text() {
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "srcdoc",
        ] {
            assert!(!PAGE.contains(way), "{way}");
        }
        // The policy would block these.
        assert!(!PAGE.contains(" style=\"") && !PAGE.contains(" onclick="));
    }

    #[test]
    fn the_policy_names_one_script_and_one_style() {
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert_eq!(PAGE.matches("<style").count(), 1);
        let policy = CONTENT_POLICY.to_str().unwrap();
        assert_eq!(policy.matches("sha256-").count(), 2);
        assert!(!policy.contains("unsafe"));
        let empty = format!("sha256-{}", STANDARD.encode(Sha256::digest("")));
        assert!(!policy.contains(&empty), "{policy}");
    }
}

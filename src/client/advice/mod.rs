//! Reads the limits of a server from its response.
//!
//! Each way of saying it is a file. `Retry-After` goes before the headers of a limit, and the standard header
//! before the older ones.

mod draft11;
mod grpc;
mod number;
mod retry_after;
mod x_rate_limit;

use std::time::{Duration, SystemTime};

use http::header::{AGE, DATE};
use http::{HeaderMap, Response, StatusCode};

/// The limits and the wait in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Advice {
    /// Whether the call was over a limit.
    pub(super) is_refused: bool,
    /// How many more calls there may be, under the policy that allows the fewest.
    pub(super) remaining: Option<u64>,
    /// How long the server wants no calls, if it wants none and says so.
    pub(super) wait: Option<Duration>,
}

/// How many more calls there may be, and the time to which that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    remaining: u64,
    window: Option<Duration>,
}

impl Advice {
    /// Reads a response, with the time of this machine's clock.
    pub(super) fn by<B>(response: &Response<B>, now: SystemTime) -> Self {
        let (status, headers) = (response.status(), response.headers());
        let now = server_time(headers).unwrap_or(now);
        let quota = if is_aged(headers) {
            None
        } else {
            draft11::quota(headers).or_else(|| x_rate_limit::quota(headers, now))
        };
        let remaining = quota.map(|quota| quota.remaining);
        let window = quota.and_then(|quota| quota.window.filter(|_| quota.remaining == 0));
        let retry_after = || retry_after::wait(headers, now);
        let demanded_wait = match status {
            StatusCode::TOO_MANY_REQUESTS => {
                return Self {
                    is_refused: true,
                    remaining,
                    wait: retry_after().or(window),
                };
            }
            StatusCode::SERVICE_UNAVAILABLE => retry_after(),
            _ if grpc::is_refusal(headers) => grpc::retry_info(headers).or_else(retry_after),
            _ => None,
        };
        Self {
            is_refused: demanded_wait.is_some(),
            remaining,
            wait: demanded_wait.or(window),
        }
    }
}

/// Returns the time of the server's clock.
fn server_time(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()
}

/// Returns whether the response comes from a cache, and its numbers from the past.
fn is_aged(headers: &HeaderMap) -> bool {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok());
    age.and_then(number::whole).is_some_and(|age| age > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn advice(status: u16, fields: &[(&'static str, &str)]) -> Advice {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        Advice::by(&response.body(()).unwrap(), SystemTime::UNIX_EPOCH + NOW)
    }

    fn refused(seconds: u64) -> Advice {
        Advice {
            is_refused: true,
            remaining: None,
            wait: Some(Duration::from_secs(seconds)),
        }
    }

    fn left(remaining: u64, seconds: Option<u64>) -> Advice {
        Advice {
            is_refused: false,
            remaining: Some(remaining),
            wait: seconds.map(Duration::from_secs),
        }
    }

    const UNREPORTED: Advice = Advice {
        is_refused: true,
        remaining: None,
        wait: None,
    };

    #[test]
    fn a_refusal_tells_seconds_or_a_date() {
        for status in [429, 503] {
            assert_eq!(advice(status, &[("retry-after", "7")]), refused(7));
            assert_eq!(advice(status, &[("retry-after", "0")]), refused(0));
            let date = "Fri, 15 Jan 2027 08:00:50 GMT";
            assert_eq!(advice(status, &[("retry-after", date)]), refused(50));
            // Both obsolete forms have to be read too (RFC 9110, section 5.6.7).
            let date = "Friday, 15-Jan-27 08:00:50 GMT";
            assert_eq!(advice(status, &[("retry-after", date)]), refused(50));
            let date = "Fri Jan 15 08:00:50 2027";
            assert_eq!(advice(status, &[("retry-after", date)]), refused(50));
        }
        assert_eq!(advice(200, &[("retry-after", "7")]), Advice::default());
        assert_eq!(advice(503, &[]), Advice::default());
        assert_eq!(advice(429, &[]), UNREPORTED);
    }

    #[test]
    fn a_malformed_retry_after_is_ignored() {
        for value in [
            "",
            "-1",
            "+5",
            "1.5",
            "1e3",
            "0x10",
            "5s",
            "5,",
            "5;a",
            "soon",
            "١",
            "1 2",
            "Fri, 15 Jan 2027 08:00:50",
            "Fri, 15 Jan 2027 08:00:50 UTC",
            "Fri, 99 Jan 2027 08:00:50 GMT",
            "Thu, 01 Jan 1960 00:00:00 GMT",
            "\u{fffd}",
        ] {
            assert_eq!(
                advice(429, &[("retry-after", value)]),
                UNREPORTED,
                "{value:?}"
            );
        }
    }

    #[test]
    fn the_longest_of_several_waits_counts_and_none_is_too_long_to_be_read() {
        let two = [("retry-after", "3"), ("retry-after", "30")];
        assert_eq!(advice(429, &two), refused(30));
        assert_eq!(
            advice(429, &[("retry-after", "9"), ("retry-after", "-1")]),
            refused(9)
        );
        assert_eq!(
            advice(429, &[("retry-after", "99999999999999")]),
            refused(99_999_999_999_999)
        );
        let digits = "9".repeat(5_000);
        assert_eq!(advice(429, &[("retry-after", &digits)]), refused(u64::MAX));
    }

    #[test]
    fn a_date_is_read_by_the_servers_own_clock() {
        let fields = [
            ("date", "Fri, 15 Jan 2027 07:00:00 GMT"),
            ("retry-after", "Fri, 15 Jan 2027 07:00:30 GMT"),
        ];
        assert_eq!(advice(429, &fields), refused(30));
        let past = [("retry-after", "Fri, 15 Jan 2027 07:00:00 GMT")];
        assert_eq!(advice(429, &past), refused(0));
    }

    #[test]
    fn retry_after_is_taken_before_the_fields_of_a_limit() {
        let fields = [("retry-after", "5"), ("ratelimit", "\"a\";r=0;t=50")];
        assert_eq!(
            advice(429, &fields),
            Advice {
                remaining: Some(0),
                ..refused(5)
            }
        );
        let fields = [("ratelimit", "\"a\";r=0;t=50")];
        assert_eq!(
            advice(429, &fields),
            Advice {
                remaining: Some(0),
                ..refused(50)
            }
        );
        // A window in which there is something left says nothing of a wait.
        let fields = [("ratelimit", "\"a\";r=3;t=50")];
        assert_eq!(
            advice(429, &fields),
            Advice {
                remaining: Some(3),
                ..UNREPORTED
            }
        );
    }

    #[test]
    fn the_policy_that_allows_the_fewest_counts() {
        let field = "\"burst\";r=2;t=1, \"daily\";r=900;t=3600";
        assert_eq!(advice(200, &[("ratelimit", field)]), left(2, None));
        let lines = [
            ("ratelimit", "\"a\";r=0;t=5"),
            ("ratelimit", "\"b\";r=0;t=50, \"c\";r=1;t=99"),
        ];
        assert_eq!(advice(200, &lines), left(0, Some(50)));
        assert_eq!(advice(200, &[("ratelimit", "\"a\";r=0")]), left(0, None));
        assert_eq!(
            advice(200, &[("ratelimit", "\"a\";x=tok;pk=:cHs=:;r=0; t=0")]),
            left(0, Some(0))
        );
    }

    #[test]
    fn a_field_of_draft_11_that_is_malformed_is_ignored() {
        for field in [
            "",
            ",",
            "\"a\"",
            "\"a\";r=-1",
            "\"a\";r=1.0",
            "\"a\";r=\"1\"",
            "\"a\";r",
            "a;r=0;t=1",
            "\"a\";r=0;t=-1",
            "\"a\";r=0;t=1.5",
            "\"a\" ;r=0",
            "\"a\";r=0,",
            "(\"a\");r=0",
            "5;r=0",
            "\"a\";r=1000000000000000",
            "\"a\";r=0, b;r=5",
            "limit=100, remaining=0, reset=30",
        ] {
            assert_eq!(
                advice(200, &[("ratelimit", field)]),
                Advice::default(),
                "{field}"
            );
        }
        let long = format!("\"a\";r=0;t=1{}", ", \"b\";r=1".repeat(10_000));
        assert_eq!(advice(200, &[("ratelimit", &long)]), Advice::default());
    }

    /// As in the copy of the draft that its editors work on.
    #[test]
    fn the_names_of_the_next_draft_are_read_beside_those_of_draft_11() {
        let quota = |field: &str| advice(200, &[("ratelimit", field)]);
        assert_eq!(quota("\"a\";a=0;w=50"), left(0, Some(50)));
        assert_eq!(quota("default;a=0;w=50"), left(0, Some(50)));
        assert_eq!(quota("\"a\";a=7"), left(7, None));
        assert_eq!(quota("\"a\";r=9, b;a=2;w=1"), left(2, None));
        // Draft 11 knows no `a` and no `w`.
        assert_eq!(quota("\"a\";r=0;t=5;a=9;w=90"), left(0, Some(5)));
        assert_eq!(quota("\"a\";w=90;r=0"), left(0, None));
        for malformed in ["\"a\";a=-1", "\"a\";a=0;w=1.5", "\"a\";a", "a;w=5", "5;a=0"] {
            assert_eq!(quota(malformed), Advice::default(), "{malformed}");
        }
        let fields = [
            (
                "ratelimit-policy",
                "Bytes;q=9;qu=\"content-bytes\", calls;q=9",
            ),
            ("ratelimit", "bytes;a=0;w=9, calls;a=4;w=1"),
        ];
        assert_eq!(advice(200, &fields), left(4, None));
    }

    #[test]
    fn a_parameter_that_is_unknown_is_ignored() {
        for unknown in [
            "c=2",
            "c=-1.5",
            "x",
            "pk=:cHs=:",
            "acme-burst=\"9\"",
            "u=%\"%c3%bc\"",
        ] {
            for (field, expected) in [
                (format!("\"a\";{unknown};r=0;t=7"), left(0, Some(7))),
                (format!("\"a\";r=0;t=7;{unknown}"), left(0, Some(7))),
                (format!("a;a=3;{unknown};w=7"), left(3, None)),
            ] {
                let fields = [
                    ("ratelimit", &*field),
                    ("ratelimit-partition", "\"a\";user_id;method"),
                ];
                assert_eq!(advice(200, &fields), expected, "{field}");
            }
        }
    }

    #[test]
    fn a_policy_that_does_not_count_requests_is_left_out() {
        let fields = [
            (
                "ratelimit-policy",
                "\"bytes\";q=9;qu=\"content-bytes\", \"calls\";q=9;qu=\"requests\"",
            ),
            ("ratelimit", "\"bytes\";r=0;t=9, \"calls\";r=4;t=1"),
        ];
        assert_eq!(advice(200, &fields), left(4, None));
        let fields = [
            ("ratelimit-policy", "\"a\";qu="),
            ("ratelimit", "\"a\";r=0;t=9"),
        ];
        assert_eq!(advice(200, &fields), left(0, Some(9)));
    }

    #[test]
    fn x_rate_limit_resets_after_seconds_or_at_a_moment() {
        let advice_by = |remaining, reset| {
            advice(
                200,
                &[
                    ("x-ratelimit-remaining", remaining),
                    ("x-ratelimit-reset", reset),
                ],
            )
        };
        assert_eq!(advice_by("5", "60"), left(5, None));
        assert_eq!(advice_by("0", "60"), left(0, Some(60)));
        assert_eq!(advice_by("0", "1800000060"), left(0, Some(60)));
        assert_eq!(advice_by("0", "1800000060000"), left(0, Some(60)));
        assert_eq!(advice_by("0", "1700000000"), left(0, Some(0)));
        assert_eq!(
            advice_by("0.0", "59.5").wait,
            Some(Duration::from_millis(59_500))
        );
        assert_eq!(advice_by("0", "6m0s"), left(0, None));
        assert_eq!(advice_by("0", "-5"), left(0, None));
        assert_eq!(advice_by("-1", "60"), Advice::default());
        assert_eq!(advice_by("1e9", "60"), Advice::default());
        let fields = [("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "3")];
        assert_eq!(advice(403, &fields), left(0, Some(3)));
        let fields = [("ratelimit-remaining", "0"), ("ratelimit-reset", "3")];
        assert_eq!(advice(200, &fields), left(0, Some(3)));
        let fields = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1800000060.123"),
            ("x-ratelimit-reset-after", "64.57"),
        ];
        assert_eq!(
            advice(429, &fields).wait,
            Some(Duration::from_millis(64_570))
        );
    }

    #[test]
    fn the_standard_headers_count_before_the_others() {
        let fields = [("ratelimit", "\"a\";r=7"), ("x-ratelimit-remaining", "0")];
        assert_eq!(advice(200, &fields), left(7, None));
        let fields = [("ratelimit", "bad"), ("x-ratelimit-remaining", "0")];
        assert_eq!(advice(200, &fields), left(0, None));
    }

    #[test]
    fn a_cached_response_gives_no_advice() {
        let fields = [("age", "3"), ("ratelimit", "\"a\";r=0;t=9")];
        assert_eq!(advice(200, &fields), Advice::default());
        let fields = [("age", "0"), ("ratelimit", "\"a\";r=0;t=9")];
        assert_eq!(advice(200, &fields), left(0, Some(9)));
    }

    #[test]
    fn a_status_of_grpc_is_a_refusal_if_it_tells_a_wait() {
        for code in ["8", "14"] {
            let fields = [("grpc-status", code), ("retry-after", "2")];
            assert_eq!(advice(200, &fields), refused(2));
            assert_eq!(advice(200, &[("grpc-status", code)]), Advice::default());
        }
        let fields = [("grpc-status", "5"), ("retry-after", "2")];
        assert_eq!(advice(200, &fields), Advice::default());
    }
}

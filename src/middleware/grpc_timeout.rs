use std::time::Duration;

use http::HeaderMap;

/// Returns how long the caller of a gRPC method waits for the answer, if it says so: at most 8 digits and a
/// unit, as in the specification of gRPC over HTTP/2 under `TimeoutValue` and `TimeoutUnit`. Returns `None`
/// for any other form.
pub(super) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    const MOST_DIGITS: usize = 8;
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let unit = value.chars().next_back()?;
    let digits = value.strip_suffix(unit)?;
    let well_formed = (1..=MOST_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    let amount = digits.parse().ok().filter(|_| well_formed)?;
    match unit {
        'H' => Some(Duration::from_secs(3_600 * amount)),
        'M' => Some(Duration::from_secs(60 * amount)),
        'S' => Some(Duration::from_secs(amount)),
        'm' => Some(Duration::from_millis(amount)),
        'u' => Some(Duration::from_micros(amount)),
        'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(value: &[u8]) -> Option<Duration> {
        let value = HeaderValue::from_bytes(value).unwrap();
        grpc_timeout(&HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-timeout"),
            value,
        )]))
    }

    #[test]
    fn each_unit_is_what_the_specification_says() {
        assert_eq!(of(b"1H"), Some(Duration::from_secs(3_600)));
        assert_eq!(of(b"2M"), Some(Duration::from_secs(120)));
        assert_eq!(of(b"003S"), Some(Duration::from_secs(3)));
        assert_eq!(of(b"4m"), Some(Duration::from_millis(4)));
        assert_eq!(of(b"5u"), Some(Duration::from_micros(5)));
        assert_eq!(of(b"6n"), Some(Duration::from_nanos(6)));
        assert_eq!(of(b"0S"), Some(Duration::ZERO));
        let longest = Duration::from_secs(99_999_999 * 3_600);
        assert_eq!(of(b"99999999H"), Some(longest));
        assert_eq!(grpc_timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn what_has_another_form_is_no_timeout() {
        for value in [
            &b""[..],
            b"S",
            b"1",
            b"1s",
            b"1 S",
            b"+1S",
            b"-1S",
            b"1.5S",
            b"100000000S",
            b"1SS",
            b"\xff",
            "1\u{b5}".as_bytes(),
            "١S".as_bytes(),
        ] {
            assert_eq!(of(value), None, "{value:?}");
        }
    }
}

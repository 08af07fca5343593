use redis::Value;

use super::slots::SLOTS;

/// The address of a node of a cluster: its host and its port.
pub(super) type Address = (String, u16);

/// Consecutive slots, and the address of the primary that has them.
pub(super) type Range = (u16, u16, Address);

/// Parses the answer to `CLUSTER SLOTS` of the node at this host, in the order of the slots.
/// Entries that are not understood are left out.
pub(super) fn ranges(text: &Value, host: &str) -> Vec<Range> {
    let Value::Array(text) = text else {
        return Vec::new();
    };
    let mut ranges: Vec<Range> = text.iter().filter_map(|text| range(text, host)).collect();
    ranges.sort_unstable();
    ranges
}

fn range(text: &Value, host: &str) -> Option<Range> {
    let Value::Array(text) = text else {
        return None;
    };
    // The replicas come after the primary.
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(primary),
        ..,
    ] = &text[..]
    else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let [name, Value::Int(port), ..] = &primary[..] else {
        return None;
    };
    let port = u16::try_from(*port).ok()?;
    let name = match name {
        Value::Nil => "",
        Value::BulkString(name) => str::from_utf8(name).ok()?,
        Value::SimpleString(name) => name,
        _ => return None,
    };
    (first <= last && last < SLOTS).then_some((first, last, (host_of(name, host)?, port)))
}

/// Resolves the host name in the answer of a node that answered at `host`. `?` is a node that does not know
/// its own.
fn host_of(name: &str, host: &str) -> Option<String> {
    match name {
        "?" => None,
        // The node knows no better name, so it is where it answers.
        "" | "0.0.0.0" | "::" => Some(host.to_owned()),
        name => Some(name.to_owned()),
    }
}

/// Resolves a redirection by the node at this host: `127.0.0.1:6381`, or `:6381` on its own
/// host.
pub(super) fn elsewhere(text: &str, host: &str) -> Option<Address> {
    let (name, port) = text.rsplit_once(':')?;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    Some((host_of(name, host)?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn ranges_of(answer: &str) -> Vec<Range> {
        let answer = answer.replace(' ', "\r\n");
        ranges(&parse_redis_value(answer.as_bytes()).unwrap(), "10.0.0.1")
    }

    fn at(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn a_primary_is_where_the_node_says_or_where_the_node_was_asked() {
        for (name, host) in [
            ("$8 10.0.0.2", "10.0.0.2"),
            ("$3 ::1", "::1"),
            ("$4 node", "node"),
            ("$0 ", "10.0.0.1"),
            ("$-1", "10.0.0.1"),
            ("$7 0.0.0.0", "10.0.0.1"),
        ] {
            let answer = format!("*1 *4 :0 :16383 *2 {name} :7001 *2 $1 a :7002 ");
            assert_eq!(ranges_of(&answer), [(0, 16_383, at(host, 7_001))], "{name}");
        }
    }

    #[test]
    fn unknown_ranges_are_left_out() {
        for answer in [
            "+OK ",
            "*0 ",
            "*1 :1 ",
            "*1 *2 :0 :1 ",
            "*1 *3 :0 :1 *0 ",
            "*1 *3 :0 :1 *2 $1 ? :7001 ",
            "*1 *3 :0 :1 *2 $1 a :70000 ",
            "*1 *3 :2 :1 *2 $1 a :7001 ",
            "*1 *3 :0 :16384 *2 $1 a :7001 ",
            "*1 *3 :-1 :1 *2 $1 a :7001 ",
        ] {
            assert_eq!(ranges_of(answer), [], "{answer}");
        }
    }

    #[test]
    fn a_slot_that_has_moved_is_where_the_node_says() {
        for (text, address) in [
            ("10.0.0.2:7001", Some(at("10.0.0.2", 7_001))),
            ("::1:7001", Some(at("::1", 7_001))),
            ("[::1]:7001", Some(at("::1", 7_001))),
            (":7001", Some(at("10.0.0.1", 7_001))),
            ("?:7001", None),
            ("10.0.0.2", None),
            ("10.0.0.2:", None),
        ] {
            assert_eq!(elsewhere(text, "10.0.0.1"), address, "{text}");
        }
    }
}

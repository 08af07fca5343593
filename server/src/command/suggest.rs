use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::length::length;
use super::log::{self, Request};
use crate::{BoxError, sample};

/// What `--help` says below the flags.
const HELP: &str = "\
The log is that of `replay`. For each --key, the limit is what 99.9 % of the keys stayed under in any period, times the
margin. The policies are in shadow: they count, and refuse nothing. Take `mode` out when their numbers are right.";

/// The share of the keys that a limit is to let alone, of a thousand.
const LET_ALONE: usize = 999;

/// Print limits for a log, as a file of limits in shadow
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Suggest {
    /// The log, or - for standard input
    log: PathBuf,
    /// What identifies a client: `client_ip`, which is `key` in the log, or the name of a header; again for several
    #[arg(long = "key", value_name = "FIELD", required = true)]
    keys: Vec<Field>,
    /// The period of the limits
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = length)]
    period: Duration,
    /// What the limits leave above the traffic of the log: 1.5 is half as much again
    #[arg(long, value_name = "NUMBER", default_value = "1.5")]
    margin: Margin,
}

/// What identifies a client.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    ClientIp,
    Header(HeaderName),
}

/// The traffic of each key of a kind.
struct Traffic {
    field: Field,
    period: u64,
    keys: HashMap<String, OfKey>,
    /// The requests that have no such key.
    without: u64,
}

#[derive(Default)]
struct OfKey {
    /// When the requests of the last period came, and what they cost.
    last: VecDeque<(u64, u64)>,
    cost: u64,
    /// The most that came in one period.
    most: u64,
}

impl Suggest {
    pub(crate) fn run(self) -> Result<(), BoxError> {
        let period = u64::try_from(self.period.as_micros())?;
        let new = |field: &Field| Traffic {
            field: field.clone(),
            period,
            keys: HashMap::new(),
            without: 0,
        };
        let mut traffic: Vec<_> = self.keys.iter().map(new).collect();
        let mut requests = 0_u64;
        log::each(log::open(&self.log)?, |_, request| {
            requests += 1;
            for traffic in &mut traffic {
                traffic.note(&request);
            }
            Ok(())
        })?;
        let mut file = format!(
            "# Limits for {}, which has {requests} requests: what {}.{} % of the keys stayed under in any {}, times {}.\n\
             # They are in shadow, and refuse nothing until `mode` is taken out.\n",
            self.log.display(),
            LET_ALONE / 10,
            LET_ALONE % 10,
            Period(self.period),
            self.margin,
        );
        for traffic in &traffic {
            file.push_str(&traffic.policy(Period(self.period), self.margin)?);
        }
        // What is printed is a file of limits.
        file.parse::<tower_ratelimit_config::Config>()?;
        Ok(std::io::stdout().write_all(file.as_bytes())?)
    }
}

impl Traffic {
    fn note(&mut self, request: &Request) {
        let key = match &self.field {
            Field::ClientIp => Some(&request.key),
            Field::Header(name) => {
                let mut headers = request.headers.iter();
                let found = headers.find(|(it, _)| name.as_str().eq_ignore_ascii_case(it));
                found.map(|(_, value)| value)
            }
        };
        let Some(key) = key else {
            self.without += 1;
            return;
        };
        if !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), OfKey::default());
        }
        if let Some(of_key) = self.keys.get_mut(key) {
            of_key.note(request.t_us, request.cost.unwrap_or(1).into(), self.period);
        }
    }

    fn policy(&self, period: Period, margin: Margin) -> Result<String, String> {
        let mut most: Vec<u64> = self.keys.values().map(|key| key.most).collect();
        most.sort_unstable();
        let Some(largest) = most.last() else {
            return Err(format!(
                "--key {}: no request of the log has it",
                self.field
            ));
        };
        let rank = (most.len() * LET_ALONE).div_ceil(1000) - 1;
        let stayed_under = most[rank];
        let limit = margin.above(stayed_under);
        let above = most.iter().filter(|most| **most > limit).count();
        let name = self.field.to_string().replace('-', "_");
        Ok(format!(
            "\n# {keys} keys, and {without} requests without one. In a {period} half of the keys had at most {median}, 99.9 % at most \
             {stayed_under}, and the\n# busiest {largest}. This limit would have refused requests of {above} keys.\n\
             [policies.{name}]\nmode = \"shadow\"\nalgorithm = \"sliding-window\"\nquota = \"{limit}/{period}\"\nkey = {key}\n",
            keys = most.len(),
            without = self.without,
            median = most[(most.len() - 1) / 2],
            key = self.field.key(),
        ))
    }
}

impl OfKey {
    fn note(&mut self, at: u64, cost: u64, period: u64) {
        while let Some((first, cost)) = self.last.front().copied() {
            if at.saturating_sub(first) < period {
                break;
            }
            self.last.pop_front();
            self.cost -= cost;
        }
        self.last.push_back((at, cost));
        self.cost += cost;
        self.most = self.most.max(self.cost);
    }
}

impl Field {
    /// Returns the key as a file of limits has it. A credential is hashed.
    fn key(&self) -> String {
        match self {
            Self::ClientIp => "\"client_ip\"".to_owned(),
            Self::Header(name) if sample::is_credential(name) => {
                format!("{{ api_key = \"{name}\" }}")
            }
            Self::Header(name) => format!("{{ header = \"{name}\" }}"),
        }
    }
}

impl std::str::FromStr for Field {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text == "client_ip" {
            return Ok(Self::ClientIp);
        }
        let name = text.parse().map(Self::Header);
        name.map_err(|_| "write client_ip or the name of a header")
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIp => f.write_str("client_ip"),
            Self::Header(name) => f.write_str(name.as_str()),
        }
    }
}

/// A period as a quota spells it.
#[derive(Clone, Copy)]
struct Period(Duration);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            60_000 => f.write_str("minute"),
            3_600_000 => f.write_str("hour"),
            86_400_000 => f.write_str("day"),
            millis if millis % 1000 == 0 => write!(f, "{}s", millis / 1000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

/// What a limit leaves above the traffic of the log, in hundredths of it.
#[derive(Clone, Copy, Debug)]
struct Margin(u64);

impl Margin {
    /// Returns a limit of two digits and zeros, which is easier to speak of.
    fn above(self, traffic: u64) -> u64 {
        let limit = traffic.saturating_mul(self.0).div_ceil(100).max(1);
        let mut unit = 1;
        while limit / unit >= 100 {
            unit *= 10;
        }
        limit.div_ceil(unit) * unit
    }
}

impl std::str::FromStr for Margin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let hundredths = if is_number(whole) && is_number(part) {
            let part = format!("{part:0<2}");
            format!("{whole}{}", &part[..2]).parse().ok()
        } else {
            None
        };
        let hundredths = hundredths.filter(|it| (100..=100_000).contains(it));
        hundredths
            .map(Self)
            .ok_or("write a number from 1 to 1000, such as 1.5")
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_above_the_traffic_and_has_two_digits() {
        for (margin, traffic, expected) in [
            ("1", 0, 1),
            ("1.5", 5, 8),
            ("1.25", 80, 100),
            ("1.0", 101, 110),
            ("10", 150, 1500),
            ("1.999", 100, 200),
        ] {
            let margin: Margin = margin.parse().unwrap();
            assert_eq!(margin.above(traffic), expected, "{margin}");
        }
        for wrong in ["", "0.9", "1001", "-1", "1.x", "1e3", "nan"] {
            assert!(wrong.parse::<Margin>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_most_of_a_period_is_found_wherever_the_period_begins() {
        let mut key = OfKey::default();
        for at in [0, 900, 950, 1000, 1899, 3000] {
            key.note(at, 1, 1000);
        }
        // 900, 950, 1000 and 1899 are within a thousand.
        assert_eq!(key.most, 4);
    }
}

//! The meaning of a configuration, and the lines that decide a request.

use std::fmt::{self, Write as _};

use http::Request;

use super::Config;
use super::money::shown;
use tower_ratelimit::__internal::{Explanation, LocalTime, PolicyEffect};
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::key::{Head, IntoKey, JsonFields};
use tower_ratelimit::usage::Money;

/// The effect of each policy of a configuration on a request, with the line of the file.
///
/// The `Display` form is a table. A level of a tree is indented below the level above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    rows: Vec<Row>,
}

/// The effect of a policy on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    policy: String,
    depth: usize,
    says: String,
    rule: String,
    place: String,
}

impl Row {
    fn without_rule(policy: &str, says: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            depth: 0,
            says: says.to_owned(),
            rule: String::new(),
            place: String::new(),
        }
    }

    /// Returns the name of the policy, or of a table in brackets; empty if a list decides.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns how many levels of its [tree](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/trees/) are above the
    /// policy; 0 outside a tree.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the name as the table shows it.
    fn shown_policy(&self) -> String {
        format!("{:indent$}{}", "", self.policy, indent = 2 * self.depth)
    }

    /// Returns the limit, such as `anchored-window 100/minute`, or why the policy does not count the request. A cost other than 1
    /// follows the limit, and so does what else holds: `in shadow`, or that all requests without a key are counted together.
    pub fn says(&self) -> &str {
        &self.says
    }

    /// Returns the rule that gave the limit, as [`LimitRule`] shows it; empty if no limit holds. An interval of
    /// [hours](tower_ratelimit::Hours) that changes the limit of another rule follows it, as in `plan pro, hours 22:00-06:00`.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Where the limit stands: `line 14`, or its path in JSON; empty if no limit holds. Each rule has its place:
    /// `line 14, line 20`.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl Explained {
    /// Returns a row for each policy, in the order of the file, or one for the list that decides.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Row) -> usize| self.rows.iter().map(of).max().unwrap_or(0);
        let (policy, says, rule) = (
            width(|row| row.shown_policy().chars().count()),
            width(|row| row.says.chars().count()),
            width(|row| row.rule.chars().count()),
        );
        for row in &self.rows {
            let line = format!(
                "{:policy$}  {:says$}  {:rule$}  {}",
                row.shown_policy(),
                row.says,
                row.rule,
                row.place
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl Config {
    /// Explains the policies of the file: the limit of each, and where it is. Limits of descriptors follow, with the rule
    /// `envoy`, and the groups of `first_of`, each with its policies in their order. A last row `[adapt]` says what
    /// limits follow, if the file has that table.
    pub fn understood(&self) -> Explained {
        let policies = self.settings.policies.iter();
        let rows = policies.map(|(name, algorithm)| {
            let mut says = format!("{algorithm}{}", self.in_money(name, algorithm));
            self.tell_guarantee(name, &mut says);
            self.tell_division(name, &mut says);
            self.row(name, says, &[LimitRule::Policy])
        });
        Explained {
            rows: rows
                .chain(self.of_descriptors())
                .chain(self.of_groups())
                .chain(self.followed())
                .collect(),
        }
    }

    /// Returns how many levels are above a policy in its tree.
    fn depth(&self, policy: &str) -> usize {
        self.settings.above.get(policy).map_or(0, Vec::len)
    }

    /// Says what each key of a level is guaranteed of the level above.
    fn tell_guarantee(&self, policy: &str, says: &mut String) {
        if let Some(quota) = self.settings.guarantees.get(policy) {
            let _ = write!(says, ", {quota} guaranteed");
        }
    }

    /// Says that the limit of a policy is divided.
    fn tell_division(&self, policy: &str, says: &mut String) {
        if self.settings.divided.iter().any(|name| name == policy) {
            says.push_str(", divided among tenants");
        }
    }

    /// Returns the unit of a policy that counts money.
    fn unit(&self, policy: &str) -> Option<Money> {
        let policies = self.settings.policies.iter().zip(&self.settings.counts);
        let mut of_it = policies.filter(|((name, _), _)| name == policy);
        of_it.next().and_then(|(_, counts)| counts.unit)
    }

    /// Says which amount the limit of a policy is that counts money.
    fn in_money(&self, policy: &str, limit: &Algorithm) -> String {
        match (self.unit(policy), limit.limit()) {
            (Some(unit), Some(limit)) => {
                format!(", {} in units of {unit}", shown(limit, Some(unit)))
            }
            _ => String::new(),
        }
    }

    fn of_descriptors(&self) -> impl Iterator<Item = Row> {
        let limits = self.settings.descriptors.iter();
        limits.map(|limit| {
            let row = self.row(limit.policy().name(), limit.says(), &[LimitRule::Policy]);
            Row {
                rule: "envoy".to_owned(),
                ..row
            }
        })
    }

    fn of_groups(&self) -> impl Iterator<Item = Row> {
        let groups = self.settings.groups.iter();
        groups.map(|group| Row {
            policy: format!("[first_of.{}]", group.name),
            depth: 0,
            says: format!(
                "one pays: {}{}",
                group.members.join(", else "),
                if group.spills {
                    "; what an answer costs beyond it goes to the next"
                } else {
                    ""
                }
            ),
            rule: String::new(),
            place: group.place.clone(),
        })
    }

    fn followed(&self) -> Option<Row> {
        let followed = self.settings.followed.as_ref()?;
        Some(Row {
            policy: "[adapt]".to_owned(),
            depth: 0,
            says: followed.says.clone(),
            rule: String::new(),
            place: followed.place.clone(),
        })
    }

    /// Explains which limits a request has, and which lines set them. `key` and `plan` replace those of the
    /// request, so that a request can be made up without authentication. Nothing is charged. A [resolver](tower_ratelimit::plan::Resolver) is
    /// asked for what it knows now.
    ///
    /// ```
    /// use tower_ratelimit_config::Config;
    ///
    /// let config: Config = "[policies.minute]\nquota = \"100/minute\"\nkey = \"client_ip\"".parse()?;
    /// let request = http::Request::get("/").body(())?;
    /// let explained = config.explain(&request, Some("192.0.2.1"), None);
    /// assert_eq!(explained.to_string(), "minute  anchored-window 100/minute  policy  line 2\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain<B>(
        &self,
        request: &Request<B>,
        key: Option<&str>,
        plan: Option<&str>,
    ) -> Explained {
        self.explain_when(request, key, plan, None)
    }

    /// Explains a request at a time, such as `2026-03-29T02:30`, on the clock of the zone of each policy's
    /// [hours](tower_ratelimit::Hours). A time that the clocks skip stands for the time at which they continue, and a
    /// time that they show twice for the first one. [`explain`](Self::explain) uses the present time.
    ///
    /// # Errors
    ///
    /// If the text is not a date with a time.
    pub fn explain_at<B>(
        &self,
        request: &Request<B>,
        key: Option<&str>,
        plan: Option<&str>,
        at: &str,
    ) -> Result<Explained, ConfigError> {
        let at = LocalTime::parse(at)?;
        Ok(self.explain_when(request, key, plan, Some(at)))
    }

    fn explain_when<B>(
        &self,
        request: &Request<B>,
        key: Option<&str>,
        plan: Option<&str>,
        at: Option<LocalTime>,
    ) -> Explained {
        // The layer was built when the file was read, so over the same kind of store it can be built.
        let Ok(layer) = self.settings.layer.clone().build() else {
            return Explained { rows: Vec::new() };
        };
        let key = key.map(|key| match key.parse::<std::net::IpAddr>() {
            Ok(address) => address.into_key(),
            Err(_) => key.into_key(),
        });
        let request = with_fields(request);
        let rows = match layer.explain(&Head::of(&request), plan, key) {
            Explanation::Denied => vec![Row::without_rule("", "denied by a list")],
            Explanation::Allowed => vec![Row::without_rule("", "allowed by a list")],
            Explanation::Unresolved => {
                let says = "the plan cannot be looked up: refused with 503";
                vec![Row::without_rule("", says)]
            }
            Explanation::Policies(policies) => {
                let turns = policies
                    .iter()
                    .map(|(policy, _)| self.turn(policy, &policies));
                let turns: Vec<String> = turns.collect();
                let rows = policies
                    .into_iter()
                    .zip(turns)
                    .map(|((policy, considered), turn)| {
                        let row = self.explain_policy(&policy, considered, at);
                        let says = format!("{}{turn}", row.says);
                        let depth = self.depth(&policy);
                        Row { depth, says, ..row }
                    });
                rows.collect()
            }
        };
        Explained { rows }
    }

    /// Says when a policy pays, if it is one of several of which one does.
    fn turn(&self, policy: &str, all: &[(String, PolicyEffect)]) -> String {
        let mut groups = self.settings.groups.iter();
        groups
            .find_map(|group| group.turn(policy, all))
            .unwrap_or_default()
    }

    fn explain_policy(&self, policy: &str, considered: PolicyEffect, at: Option<LocalTime>) -> Row {
        match considered {
            PolicyEffect::DoesNotApply => Row::without_rule(policy, "does not apply"),
            PolicyEffect::IsOff => Row::without_rule(policy, "is off"),
            PolicyEffect::HasNoKey(None) => Row::without_rule(policy, "the request has no key"),
            PolicyEffect::HasNoKey(Some(status)) => {
                let says = format!(
                    "the request has no key, and is refused with {}",
                    status.as_u16()
                );
                Row::without_rule(policy, &says)
            }
            PolicyEffect::CountsNothing(rule) => {
                self.row(policy, "counts nothing".to_owned(), &[rule])
            }
            PolicyEffect::Counts {
                is_shared,
                cost,
                limit,
                rule,
                is_shadow,
                ..
            } => {
                let (limit, rules) = at_an_hour(limit, rule, at);
                let mut says = format!("{limit}{}", self.in_money(policy, &limit));
                let unit = self.unit(policy);
                if cost != 1 || unit.is_some() {
                    let _ = write!(says, ", cost {}", shown(cost, unit));
                }
                self.tell_guarantee(policy, &mut says);
                self.tell_division(policy, &mut says);
                if is_shared {
                    says.push_str(", together with all requests without a key");
                }
                if is_shadow {
                    says.push_str(", in shadow");
                }
                self.row(policy, says, &rules)
            }
        }
    }

    /// Returns a limit that these rules give together, with the places of all.
    fn row(&self, policy: &str, says: String, rules: &[LimitRule]) -> Row {
        let places = rules.iter().filter_map(|rule| {
            let place = self.settings.places.get(&(policy.to_owned(), rule.clone()));
            place.cloned()
        });
        let shown = rules.iter().map(ToString::to_string);
        Row {
            policy: policy.to_owned(),
            depth: self.depth(policy),
            says,
            rule: shown.collect::<Vec<_>>().join(", "),
            place: places.collect::<Vec<_>>().join(", "),
        }
    }
}

/// Returns the head of a request, which has no field of a body if none was read.
fn with_fields<B>(request: &Request<B>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    *head.extensions_mut() = request.extensions().clone();
    let extensions = head.extensions_mut();
    if extensions.get::<JsonFields>().is_none() {
        extensions.insert(JsonFields::unknown());
    }
    head
}

/// Returns the limit in force at a time, and the rules that give it.
fn at_an_hour(
    limit: Algorithm,
    rule: LimitRule,
    at: Option<LocalTime>,
) -> (Algorithm, Vec<LimitRule>) {
    let Algorithm::ByHours(hours) = limit else {
        return (limit, vec![rule]);
    };
    hours.explain(rule, at)
}

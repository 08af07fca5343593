use std::fmt::Write as _;

use tower_ratelimit_core::__internal::Lua;

/// Joins rules, and a driver that finds them by name, into one text.
///
/// A server runs the whole text for each call, and spends more time on making functions, and tables to hold
/// them, than on calling them. So only the functions that the driver calls, or that these call, are kept, and
/// they become local functions: each has to be below the functions that it calls.
pub(super) fn glue(rules: &[Lua], driver: &str) -> String {
    let mut text = [include_str!("exact.lua"), include_str!("state.lua")].concat();
    if rules.iter().any(|rule| rule.hours.is_some()) {
        text.push_str(include_str!("hours.lua"));
    }
    if driver.contains("open(") {
        text.push_str(include_str!("open.lua"));
    }
    let called_by_drivers: Vec<String> = [&text, driver]
        .iter()
        .flat_map(|text| called(text, "rule."))
        .collect();
    let mut tables = String::new();
    for (index, rule) in rules.iter().enumerate() {
        if rules[..index].iter().any(|before| before.name == rule.name) {
            continue;
        }
        let (table, local) = (format!("{}.", rule.name), format!("{}_", rule.name));
        let functions = functions(rule, &table);
        let mut needed = called_by_drivers.clone();
        // A function below may call one above.
        for (name, body) in functions.iter().rev() {
            if needed.contains(name) {
                needed.extend(called(body, &table));
            }
        }
        // Writing to a string cannot fail.
        let _ = write!(tables, "{} = {{", rule.name);
        for (name, body) in &functions {
            if needed.contains(name) {
                let _ = write!(text, "local function {}", body.replace(&table, &local));
            }
            if called_by_drivers.contains(name) {
                let _ = write!(tables, "{name} = {local}{name}, ");
            }
        }
        tables.push_str("}, ");
    }
    let _ = writeln!(text, "local rules = {{{tables}}}");
    text.push_str(driver);
    text
}

/// Returns the functions of a rule: their names, and their texts after the word `function`.
fn functions(rule: &Lua, table: &str) -> Vec<(String, String)> {
    let texts = rule.text.split("\nfunction ").skip(1);
    let named = texts.map(|text| {
        let name = called(text, table).next().unwrap_or_default();
        (name, format!("{text}\n"))
    });
    named.collect()
}

/// Returns the names that follow this prefix.
fn called(text: &str, prefix: &str) -> impl Iterator<Item = String> {
    let behind = text.split(prefix).skip(1);
    behind.map(|rest| {
        let in_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        rest.chars().take_while(in_name).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_ratelimit_core::algorithm::{Algorithm, Gcra};

    #[test]
    fn functions_that_a_driver_does_not_call_are_left_out() {
        let rule = Algorithm::from(Gcra::per_second(5)).lua().unwrap();
        let text = glue(&[rule, rule], include_str!("charge.lua"));
        for (function, times) in [("charge", 1), ("owed", 1), ("settle", 0), ("give_back", 0)] {
            let declared = format!("local function gcra_{function}(");
            assert_eq!(text.matches(&declared).count(), times, "{function}");
        }
        assert!(!text.contains("gcra."));
    }

    /// Otherwise a call would look for it among the server's globals.
    #[test]
    fn each_function_of_a_rule_stands_below_those_that_it_calls() {
        for text in [
            "fixed-window 5/s",
            "anchored-window 5/s",
            "sliding-window 5/s",
            "sliding-log 5/s",
            "sliding-slots 5/s",
            "token-bucket 5/s",
            "token-bucket-interval 5/s",
            "gcra 5/s",
            #[cfg(feature = "calendar")]
            "calendar-day 5 zone UTC",
        ] {
            let rule = text.parse::<Algorithm>().unwrap().lua().unwrap();
            let table = format!("{}.", rule.name);
            let functions = functions(&rule, &table);
            assert!(functions.len() > 4, "{text}");
            for (index, (name, body)) in functions.iter().enumerate() {
                let is_above =
                    |name: &String| functions[..=index].iter().any(|(above, _)| above == name);
                assert!(
                    called(body, &table).all(|called| is_above(&called)),
                    "{text}: {name}"
                );
            }
        }
    }
}

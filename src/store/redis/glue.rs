use std::fmt::Write as _;

use crate::algorithm::Lua;

/// Glues rules, and a driver that finds them by name, into one text.
///
/// A server runs the whole text for each call, and spends more of its time on making functions, and tables
/// to hold them, than on calling them. So those functions of a rule alone are kept that the driver calls, or
/// that these call, and they become local ones: each has to stand below those that it calls.
pub(super) fn glue(rules: &[Lua], driver: &str) -> String {
    let mut text = [include_str!("exact.lua"), include_str!("state.lua")].concat();
    let asked: Vec<String> = [&text, driver]
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
        let mut needed = asked.clone();
        // Those below may call those above.
        for (name, body) in functions.iter().rev() {
            if needed.contains(name) {
                needed.extend(called(body, &table));
            }
        }
        // To write to a string cannot fail.
        let _ = write!(tables, "{} = {{", rule.name);
        for (name, body) in &functions {
            if needed.contains(name) {
                let _ = write!(text, "local function {}", body.replace(&table, &local));
            }
            if asked.contains(name) {
                let _ = write!(tables, "{name} = {local}{name}, ");
            }
        }
        tables.push_str("}, ");
    }
    let _ = writeln!(text, "local rules = {{{tables}}}");
    text.push_str(driver);
    text
}

/// The functions of a rule: their names, and their texts behind the word `function`.
fn functions(rule: &Lua, table: &str) -> Vec<(String, String)> {
    let texts = rule.text.split("\nfunction ").skip(1);
    let named = texts.map(|text| {
        let name = called(text, table).next().unwrap_or_default();
        (name, format!("{text}\n"))
    });
    named.collect()
}

/// The names that stand behind this prefix.
fn called(text: &str, prefix: &str) -> impl Iterator<Item = String> {
    let behind = text.split(prefix).skip(1);
    behind.map(|rest| {
        let in_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        rest.chars().take_while(in_name).collect()
    })
}

//! The items that a user can name, each with its path.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::types::Speller;

/// Walks a library from its root through what is public.
struct Walk<'a> {
    library: &'a Value,
    spell: Speller<'a>,
    /// Where an item was found first.
    found: BTreeMap<String, String>,
    /// Re-exports, which are read once all modules have been: an item stands where it is declared if a user can name that place.
    uses: Vec<(String, &'a Value)>,
    lines: BTreeSet<(String, String)>,
    /// The traits that types of this library have, with the lines that say so.
    traits: Vec<(String, (String, String))>,
}

/// Returns a line for each item, sorted by path.
pub(crate) fn lines(library: &Value) -> Vec<String> {
    let mut walk = Walk {
        library,
        spell: Speller { library },
        found: BTreeMap::new(),
        uses: Vec::new(),
        lines: BTreeSet::new(),
        traits: Vec::new(),
    };
    let root = walk.item(&library["root"]);
    let name = root["name"].as_str().unwrap_or_default();
    walk.module(name, &root["inner"]["module"]);
    while let Some((path, item)) = walk.uses.pop() {
        walk.reexport(&path, &item["inner"]["use"]);
    }
    for (id, line) in walk.traits {
        // A trait that a user cannot name is a detail.
        let is_own = library["paths"][&id]["crate_id"] == 0;
        if !is_own || walk.found.contains_key(&id) {
            walk.lines.insert(line);
        }
    }
    walk.lines.into_iter().map(|(_, line)| line).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

/// The attributes that bind a user.
fn attributes(item: &Value) -> String {
    let mut found = String::new();
    for attribute in list(&item["attrs"]) {
        for name in ["non_exhaustive", "must_use"] {
            if attribute.to_string().contains(name) {
                found.extend(["#[", name, "] "]);
            }
        }
    }
    if !item["deprecation"].is_null() {
        found += "#[deprecated] ";
    }
    found
}

impl<'a> Walk<'a> {
    fn item(&self, id: &Value) -> &'a Value {
        &self.library["index"][id.to_string()]
    }

    fn line(&mut self, path: &str, line: String) {
        self.lines.insert((path.to_owned(), line));
    }

    fn module(&mut self, path: &str, module: &'a Value) {
        for id in list(&module["items"]) {
            let item = self.item(id);
            if item["visibility"] != "public" {
                continue;
            }
            if item["inner"].get("use").is_some() {
                self.uses.push((path.to_owned(), item));
            } else {
                self.declared(path, name(item), item);
            }
        }
    }

    fn reexport(&mut self, path: &str, of: &'a Value) {
        let item = self.item(&of["id"]);
        let source = of["source"].as_str().unwrap_or_default();
        if of["is_glob"] == true {
            match item["inner"].get("module") {
                Some(module) => self.module(path, module),
                None => self.line(path, format!("pub use {path}::{{{source}::*}}")),
            }
            return;
        }
        let name = of["name"].as_str().unwrap_or_default();
        let its_path = format!("{path}::{name}");
        if item.is_null() {
            // Of another library.
            self.line(&its_path, format!("pub use {its_path} = {source}"));
        } else if let Some(place) = self.found.get(&of["id"].to_string()) {
            let line = format!("pub use {its_path} = {place}");
            self.line(&its_path, line);
        } else {
            self.declared(path, name, item);
        }
    }

    /// An item that stands in this module under this name.
    fn declared(&mut self, module: &str, name: &str, item: &'a Value) {
        let path = format!("{module}::{name}");
        self.found.insert(item["id"].to_string(), path.clone());
        let before = format!("{}pub ", attributes(item));
        let spell = self.spell;
        let Some((kind, inner)) = item["inner"]
            .as_object()
            .and_then(|inner| inner.iter().next())
        else {
            return;
        };
        let (parameters, conditions) = (
            spell.parameters(&inner["generics"]),
            spell.conditions(&inner["generics"]),
        );
        match kind.as_str() {
            "module" => {
                self.line(&path, format!("{before}mod {path}"));
                self.module(&path, inner);
            }
            "struct" => {
                let (shape, fields) = self.shape(&path, &inner["kind"]);
                self.line(
                    &path,
                    format!("{before}struct {path}{parameters}{shape}{conditions}"),
                );
                self.lines.extend(fields);
                self.implementations(&path, &inner["impls"]);
            }
            "enum" => {
                self.line(
                    &path,
                    format!("{before}enum {path}{parameters}{conditions}"),
                );
                for id in list(&inner["variants"]) {
                    let variant = self.item(id);
                    let its_path =
                        format!("{path}::{}", variant["name"].as_str().unwrap_or_default());
                    let (shape, fields) =
                        self.shape(&its_path, &variant["inner"]["variant"]["kind"]);
                    self.line(
                        &its_path,
                        format!("{}{its_path}{shape}", attributes(variant)),
                    );
                    self.lines.extend(fields);
                }
                self.implementations(&path, &inner["impls"]);
            }
            "trait" => {
                let bounds = spell.bounds(&inner["bounds"]);
                let bounds = if bounds.is_empty() {
                    bounds
                } else {
                    format!(": {bounds}")
                };
                self.line(
                    &path,
                    format!("{before}trait {path}{parameters}{bounds}{conditions}"),
                );
                for id in list(&inner["items"]) {
                    self.member(&path, "", self.item(id));
                }
            }
            "function" => {
                let function = spell.function(&path, inner);
                self.line(&path, format!("{before}{function}"));
            }
            "type_alias" => {
                let kind = spell.spell(&inner["type"]);
                self.line(
                    &path,
                    format!("{before}type {path}{parameters} = {kind}{conditions}"),
                );
            }
            "constant" | "static" => {
                let type_of = spell.spell(&inner["type"]);
                let word = if kind == "static" { "static" } else { "const" };
                self.line(&path, format!("{before}{word} {path}: {type_of}"));
            }
            "macro" => {
                let rules = inner.as_str().unwrap_or_default().split_whitespace();
                self.line(
                    &path,
                    format!(
                        "{before}macro {path}! {}",
                        rules.collect::<Vec<_>>().join(" ")
                    ),
                );
            }
            other => self.line(&path, format!("{before}{other} {path}")),
        }
    }

    /// How a struct or a variant is written, and its public fields.
    fn shape(&self, path: &str, kind: &'a Value) -> (String, Vec<(String, String)>) {
        if let Some(fields) = kind.get("tuple") {
            let fields: Vec<String> = list(fields)
                .map(|id| match self.item(id)["inner"].get("struct_field") {
                    Some(field) => self.spell.spell(field),
                    None => "_".to_owned(),
                })
                .collect();
            return (format!("({})", fields.join(", ")), Vec::new());
        }
        let Some(plain) = kind.get("plain").or_else(|| kind.get("struct")) else {
            return (String::new(), Vec::new());
        };
        let fields = list(&plain["fields"]).map(|id| {
            let field = self.item(id);
            let its_path = format!("{path}::{}", name(field));
            let line = format!(
                "pub {its_path}: {}",
                self.spell.spell(&field["inner"]["struct_field"])
            );
            (its_path, line)
        });
        let rest = if plain["has_stripped_fields"] == true {
            ".."
        } else {
            ""
        };
        (format!(" {{{rest}}}"), fields.collect())
    }

    fn implementations(&mut self, path: &str, ids: &'a Value) {
        for id in list(ids) {
            let it = &self.item(id)["inner"]["impl"];
            if it.is_null() || !it["blanket_impl"].is_null() {
                continue;
            }
            let is_lost = it["is_negative"] == true;
            let of_trait = self.spell.path(&it["trait"]);
            // Nearly every type has these: those that have not stand out.
            let stands_out = is_lost && ["Send", "Sync", "Unpin"].contains(&&*of_trait);
            if (it["is_synthetic"] == true && !stands_out) || of_trait == "StructuralPartialEq" {
                continue;
            }
            let generics = &it["generics"];
            let (parameters, conditions) = (
                self.spell.parameters(generics),
                self.spell.conditions(generics),
            );
            let of = self.spell.spell(&it["for"]);
            if it["trait"].is_null() {
                for member in list(&it["items"]) {
                    let item = self.item(member);
                    if item["visibility"] == "public" {
                        let own = format!("{parameters}{conditions}");
                        // Only some instances of the type have the method.
                        let own = if of.ends_with('>') {
                            format!("impl{own} {of}: ")
                        } else {
                            String::new()
                        };
                        self.member(path, &own, item);
                    }
                }
                continue;
            }
            let not = if is_lost { "!" } else { "" };
            let types = list(&it["items"]).filter_map(|id| {
                let item = self.item(id);
                let kind = item["inner"].get("assoc_type")?;
                Some(format!(
                    "{} = {}",
                    name(item),
                    self.spell.spell(&kind["type"])
                ))
            });
            let types: Vec<String> = types.collect();
            let types = if types.is_empty() {
                String::new()
            } else {
                format!(" {{ {} }}", types.join(", "))
            };
            let line = format!("impl{parameters} {not}{of_trait} for {of}{conditions}{types}");
            // After the type, and before what is in it.
            let line = (format!("{path} "), line);
            self.traits.push((it["trait"]["id"].to_string(), line));
        }
    }

    /// A method, a type or a constant of a type or of a trait.
    fn member(&mut self, path: &str, own: &str, item: &'a Value) {
        let its_path = format!("{path}::{}", name(item));
        let before = format!("{own}{}pub ", attributes(item));
        let spell = self.spell;
        let inner = &item["inner"];
        let line = if let Some(function) = inner.get("function") {
            let provided = if own.is_empty() && function["has_body"] == false {
                " (required)"
            } else {
                ""
            };
            format!("{before}{}{provided}", spell.function(&its_path, function))
        } else if let Some(kind) = inner.get("assoc_type") {
            let bounds = spell.bounds(&kind["bounds"]);
            let parameters = spell.parameters(&kind["generics"]);
            format!("{before}type {its_path}{parameters}: {bounds}")
        } else if let Some(constant) = inner.get("assoc_const") {
            format!(
                "{before}const {its_path}: {}",
                spell.spell(&constant["type"])
            )
        } else {
            format!("{before}{its_path}")
        };
        self.line(&its_path, line);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A library with a struct in a private module that is exported, a trait that is not, and a function.
    fn library() -> Value {
        let path = |name: &str, id: u32| json!({ "resolved_path": { "path": name, "id": id, "args": null } });
        let generics = json!({ "params": [], "where_predicates": [] });
        let function = json!({
            "sig": {
                "inputs": [["time", path("Duration", 9)], ["all", { "slice": { "primitive": "u8" } }]],
                "output": { "borrowed_ref": { "lifetime": "'static", "is_mutable": false, "type": path("Map", 8) } },
            },
            "generics": generics,
            "header": { "is_const": true, "is_async": false, "is_unsafe": false },
            "has_body": true,
        });
        let implemented = |name: &str, id: u32| {
            json!({ "impl": {
                "trait": { "path": name, "id": id, "args": null }, "for": path("A", 3), "items": [], "generics": generics,
                "is_negative": false, "is_synthetic": false, "blanket_impl": null,
            } })
        };
        let item = |id: u32, name: &str, attrs: Value, inner: Value| json!({ "id": id, "name": name, "visibility": "public", "attrs": attrs, "deprecation": null, "inner": inner });
        let exported =
            json!({ "use": { "source": "private::A", "name": "A", "id": 3, "is_glob": false } });
        let foreign =
            json!({ "use": { "source": "http::Map", "name": "Map", "id": 8, "is_glob": false } });
        let plain = json!({ "plain": { "fields": [4], "has_stripped_fields": true } });
        json!({
            "root": 0,
            "index": {
                "0": item(0, "tower_ratelimit", json!([]), json!({ "module": { "items": [1, 2, 10] } })),
                "1": item(1, "", json!([]), exported),
                "2": item(2, "run", json!([]), json!({ "function": function })),
                "3": item(3, "A", json!(["non_exhaustive"]), json!({ "struct": { "kind": plain, "generics": generics, "impls": [5, 6] } })),
                "4": item(4, "field", json!([]), json!({ "struct_field": { "primitive": "u32" } })),
                "5": item(5, "", json!([]), implemented("Clone", 11)),
                "6": item(6, "", json!([]), implemented("Sealed", 7)),
                "10": item(10, "", json!([]), foreign),
            },
            "paths": {
                "3": { "crate_id": 0, "path": ["tower_ratelimit", "private", "A"] },
                "7": { "crate_id": 0, "path": ["tower_ratelimit", "private", "Sealed"] },
                "8": { "crate_id": 2, "path": ["http", "header", "Map"] },
                "9": { "crate_id": 1, "path": ["core", "time", "Duration"] },
                "11": { "crate_id": 1, "path": ["core", "clone", "Clone"] },
            },
        })
    }

    #[test]
    fn what_a_user_can_name_is_a_line_each() {
        assert_eq!(
            lines(&library()),
            [
                "#[non_exhaustive] pub struct tower_ratelimit::A {..}",
                "impl Clone for A",
                "pub tower_ratelimit::A::field: u32",
                "pub use tower_ratelimit::Map = http::Map",
                "pub const fn tower_ratelimit::run(Duration, [u8]) -> &'static http::Map",
            ]
        );
    }
}

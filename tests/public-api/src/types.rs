//! Types, generics and signatures, as Rust spells them.
//!
//! A name of this workspace and of the standard library is short; that of another library has the library before it, so that a
//! review sees on what the API depends.

use serde_json::Value;

/// The libraries whose names stand alone.
fn is_own(library: &str) -> bool {
    ["std", "core", "alloc"].contains(&library) || library.starts_with("tower_ratelimit")
}

/// Spells the types of one library.
#[derive(Clone, Copy)]
pub(crate) struct Speller<'a> {
    pub(crate) library: &'a Value,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The only field of an object, which is how JSON has the variant of an enum; a variant without fields is its name.
fn variant(value: &Value) -> (&str, &Value) {
    let only = value.as_object().and_then(|fields| fields.iter().next());
    only.map_or((text(value), &Value::Null), |(name, value)| (name, value))
}

fn joined<T>(items: &[T], separator: &str, spell: impl Fn(&T) -> String) -> String {
    items.iter().map(spell).collect::<Vec<_>>().join(separator)
}

impl Speller<'_> {
    pub(crate) fn spell(self, kind: &Value) -> String {
        let (name, value) = variant(kind);
        match name {
            "resolved_path" => self.path(value),
            "dyn_trait" => {
                let mut bounds: Vec<String> = list(&value["traits"])
                    .iter()
                    .map(|bound| self.bound_by(&bound["generic_params"], &bound["trait"]))
                    .collect();
                bounds.extend(value["lifetime"].as_str().map(str::to_owned));
                format!("dyn {}", bounds.join(" + "))
            }
            "generic" | "primitive" => match text(value) {
                "never" => "!".to_owned(),
                name => name.to_owned(),
            },
            "function_pointer" => {
                let signature = self.signature(&value["sig"]);
                format!(
                    "{}{}fn{signature}",
                    self.for_all(&value["generic_params"]),
                    header(&value["header"])
                )
            }
            "tuple" => match list(value) {
                [only] => format!("({},)", self.spell(only)),
                all => format!("({})", joined(all, ", ", |one| self.spell(one))),
            },
            "slice" => format!("[{}]", self.spell(value)),
            "array" => format!("[{}; {}]", self.spell(&value["type"]), text(&value["len"])),
            "impl_trait" => format!("impl {}", self.bounds(value)),
            "raw_pointer" => {
                let kind = if value["is_mutable"] == true {
                    "mut"
                } else {
                    "const"
                };
                format!("*{kind} {}", self.spell(&value["type"]))
            }
            "borrowed_ref" => {
                let lifetime = value["lifetime"]
                    .as_str()
                    .map_or(String::new(), |name| format!("{name} "));
                let mutable = if value["is_mutable"] == true {
                    "mut "
                } else {
                    ""
                };
                format!("&{lifetime}{mutable}{}", self.spell(&value["type"]))
            }
            "qualified_path" => {
                let own = self.spell(&value["self_type"]);
                let name = format!("{}{}", text(&value["name"]), self.arguments(&value["args"]));
                match &value["trait"] {
                    Value::Null => format!("{own}::{name}"),
                    of if of["path"] == "" => format!("{own}::{name}"),
                    of => format!("<{own} as {}>::{name}", self.path(of)),
                }
            }
            "infer" => "_".to_owned(),
            other => format!("?{other}"),
        }
    }

    /// A path to a type or a trait.
    pub(crate) fn path(self, path: &Value) -> String {
        let name = text(&path["path"]).rsplit("::").next().unwrap_or_default();
        let summary = &self.library["paths"][path["id"].to_string()];
        let library = summary["path"][0].as_str().unwrap_or_default();
        // What is imported under another name still has its own in the library.
        let real = list(&summary["path"]).last().map_or(name, text);
        let before = if library.is_empty() || is_own(library) {
            String::new()
        } else {
            format!("{library}::")
        };
        format!("{before}{real}{}", self.arguments(&path["args"]))
    }

    fn arguments(self, arguments: &Value) -> String {
        let (name, value) = variant(arguments);
        match name {
            "angle_bracketed" => {
                let mut all: Vec<String> = list(&value["args"])
                    .iter()
                    .map(|argument| match variant(argument) {
                        ("lifetime", name) => text(name).to_owned(),
                        ("type", kind) => self.spell(kind),
                        ("const", constant) => text(&constant["expr"]).to_owned(),
                        _ => "_".to_owned(),
                    })
                    .collect();
                all.extend(list(&value["constraints"]).iter().map(|constraint| {
                    let name = format!(
                        "{}{}",
                        text(&constraint["name"]),
                        self.arguments(&constraint["args"])
                    );
                    match variant(&constraint["binding"]) {
                        ("equality", term) => match variant(term) {
                            ("type", kind) => format!("{name} = {}", self.spell(kind)),
                            (_, constant) => format!("{name} = {}", text(&constant["expr"])),
                        },
                        (_, bounds) => format!("{name}: {}", self.bounds(bounds)),
                    }
                }));
                if all.is_empty() {
                    String::new()
                } else {
                    format!("<{}>", all.join(", "))
                }
            }
            "parenthesized" => {
                let inputs = joined(list(&value["inputs"]), ", ", |kind| self.spell(kind));
                format!("({inputs}){}", self.output(&value["output"]))
            }
            _ => String::new(),
        }
    }

    fn output(self, output: &Value) -> String {
        if output.is_null() {
            String::new()
        } else {
            format!(" -> {}", self.spell(output))
        }
    }

    pub(crate) fn bounds(self, bounds: &Value) -> String {
        joined(list(bounds), " + ", |bound| match variant(bound) {
            ("trait_bound", bound) => {
                let maybe = if bound["modifier"] == "maybe" {
                    "?"
                } else {
                    ""
                };
                format!(
                    "{maybe}{}",
                    self.bound_by(&bound["generic_params"], &bound["trait"])
                )
            }
            ("outlives", lifetime) => text(lifetime).to_owned(),
            ("use", names) => {
                let name = |name: &Value| text(variant(name).1).to_owned();
                format!("use<{}>", joined(list(names), ", ", name))
            }
            (other, _) => format!("?{other}"),
        })
    }

    fn bound_by(self, parameters: &Value, path: &Value) -> String {
        format!("{}{}", self.for_all(parameters), self.path(path))
    }

    fn for_all(self, parameters: &Value) -> String {
        match list(parameters) {
            [] => String::new(),
            some => format!(
                "for<{}> ",
                joined(some, ", ", |parameter| self.parameter(parameter))
            ),
        }
    }

    fn parameter(self, parameter: &Value) -> String {
        let name = text(&parameter["name"]);
        let with = |bounds: String| {
            if bounds.is_empty() {
                name.to_owned()
            } else {
                format!("{name}: {bounds}")
            }
        };
        match variant(&parameter["kind"]) {
            ("lifetime", it) => with(joined(list(&it["outlives"]), " + ", |one| {
                text(one).to_owned()
            })),
            ("const", it) => format!("const {name}: {}", self.spell(&it["type"])),
            (_, it) if it["default"].is_null() => with(self.bounds(&it["bounds"])),
            (_, it) => format!(
                "{} = {}",
                with(self.bounds(&it["bounds"])),
                self.spell(&it["default"])
            ),
        }
    }

    /// The parameters of an item, without those that stand for an `impl Trait` among its arguments.
    pub(crate) fn parameters(self, generics: &Value) -> String {
        let named = list(&generics["params"]).iter();
        let named: Vec<&Value> = named
            .filter(|parameter| parameter["kind"]["type"]["is_synthetic"] != true)
            .collect();
        if named.is_empty() {
            return String::new();
        }
        format!(
            "<{}>",
            joined(&named, ", ", |parameter| self.parameter(parameter))
        )
    }

    pub(crate) fn conditions(self, generics: &Value) -> String {
        let conditions = list(&generics["where_predicates"]);
        if conditions.is_empty() {
            return String::new();
        }
        let condition = |condition: &Value| match variant(condition) {
            ("bound_predicate", it) => {
                let for_all = self.for_all(&it["generic_params"]);
                format!(
                    "{for_all}{}: {}",
                    self.spell(&it["type"]),
                    self.bounds(&it["bounds"])
                )
            }
            ("lifetime_predicate", it) => {
                let outlives = joined(list(&it["outlives"]), " + ", |one| text(one).to_owned());
                format!("{}: {outlives}", text(&it["lifetime"]))
            }
            (other, _) => format!("?{other}"),
        };
        format!(" where {}", joined(conditions, ", ", condition))
    }

    fn signature(self, signature: &Value) -> String {
        let input = |input: &Value| {
            let (name, kind) = (text(&input[0]), self.spell(&input[1]));
            match (name, kind.as_str()) {
                ("self", "Self") => "self".to_owned(),
                ("self", "&Self") => "&self".to_owned(),
                ("self", "&mut Self") => "&mut self".to_owned(),
                // A name of an argument is no part of the API.
                ("self", _) => format!("self: {kind}"),
                _ => kind,
            }
        };
        let inputs = joined(list(&signature["inputs"]), ", ", input);
        format!("({inputs}){}", self.output(&signature["output"]))
    }

    /// A function from its name on.
    pub(crate) fn function(self, name: &str, function: &Value) -> String {
        let generics = &function["generics"];
        format!(
            "{}fn {name}{}{}{}",
            header(&function["header"]),
            self.parameters(generics),
            self.signature(&function["sig"]),
            self.conditions(generics),
        )
    }
}

fn header(header: &Value) -> String {
    let words = [
        ("is_const", "const "),
        ("is_async", "async "),
        ("is_unsafe", "unsafe "),
    ];
    let words = words.iter().filter(|(flag, _)| header[flag] == true);
    words.map(|(_, word)| *word).collect()
}

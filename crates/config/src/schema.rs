use serde_json::{Map, Value, json};

use super::settings::{NAMED, ROOT};
use super::shape::{Fields, Shape};

/// Returns the JSON Schema of the file (draft 2020-12), for editors. It is also the file `limits.schema.json` of the package.
pub fn schema() -> String {
    let mut root = table(&ROOT);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("The limits of tower-ratelimit");
    root["anyOf"] = json!([{ "required": ["policies"] }, { "required": ["envoy"] }]);
    let named = NAMED
        .iter()
        .map(|(name, of)| ((*name).to_owned(), shape(*of)));
    root["$defs"] = Value::Object(named.collect());
    format!("{root:#}\n")
}

fn table(table: &dyn Fields) -> Value {
    let mut properties = Map::new();
    let fields = table.fields().into_iter();
    for field in fields.filter(|field| !table.is_refused(field.name)) {
        let mut property = shape(field.shape);
        property["description"] = json!(field.says);
        properties.insert(field.name.to_owned(), property);
    }
    let mut of = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !table.needed().is_empty() {
        of["required"] = json!(table.needed());
    }
    of
}

fn shape(of: Shape) -> Value {
    match of {
        Shape::Text => json!({ "type": "string" }),
        Shape::Integer => json!({ "type": "integer", "minimum": 0 }),
        Shape::Decimal => json!({ "anyOf": [
            { "type": "number", "minimum": 0 },
            { "type": "string", "pattern": "^\\s*[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?\\s*$" },
        ] }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Duration => json!({ "type": "string", "pattern": "^\\s*[0-9]*\\s*[a-zµμ]*\\s*$" }),
        Shape::Word(words) => json!({ "enum": words.words() }),
        Shape::List(of) => json!({ "type": "array", "items": shape(*of) }),
        Shape::ListOf(of, [least, most]) => {
            let mut list = shape(Shape::List(of));
            list["minItems"] = json!(least);
            list["maxItems"] = json!(most);
            list
        }
        Shape::OneOrList(of) => json!({ "anyOf": [shape(*of), shape(Shape::List(of))] }),
        Shape::Map(of) => json!({ "type": "object", "additionalProperties": shape(*of) }),
        Shape::Table(fields) => table(fields),
        Shape::Any(shapes) => {
            let shapes: Vec<Value> = shapes.iter().map(|of| shape(*of)).collect();
            json!({ "anyOf": shapes })
        }
        Shape::Secret(of) => shape(*of),
        Shape::Named(name) => json!({ "$ref": format!("#/$defs/{name}") }),
    }
}

//! Values that do not stand in the file of limits: in an environment variable, or in a file of their own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::shape::Shape;
use super::tree::{Node, Value};
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, Walk};

/// Where a secret is.
pub(super) static SECRET: Vocabulary<()> = Vocabulary(&[
    setting("env")
        .says("The environment variable that has the value.")
        .together(Shape::Text),
    setting("file")
        .says(
            "The absolute path of the file that has the value, which ends at a line break; it may begin with \
             $CREDENTIALS_DIRECTORY.",
        )
        .together(Shape::Text),
]);

/// Where a number is.
pub(super) static NUMBER: Vocabulary<()> = Vocabulary(&[setting("env")
    .says("The environment variable that has the number.")
    .together(Shape::Text)]);

/// Where systemd puts the credentials of a unit.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Reads a text, or that of an environment variable or of a file. No message shows it.
pub(super) fn secret(at: &At<'_>) -> Option<String> {
    if !at.is_table() {
        return at.text().map(str::to_owned);
    }
    let table = at.table(&SECRET)?;
    table.either("env", "file");
    let Some(file) = table.get("file") else {
        let remedy = "name an environment variable, or give `file`, the path of a file";
        return variable(table.need("env", remedy)?);
    };
    let value = path_of(file.text()?).and_then(|path| {
        let value = at.walk.content(path.clone())?;
        warn_of_readers(file, &path);
        Ok(value)
    });
    value.map_or_else(|why| file.refuse(why), Some)
}

/// Reads a number of nodes, or that of an environment variable.
pub(super) fn nodes(at: &At<'_>) -> Option<u32> {
    let (at, number) = if at.is_table() {
        let table = at.table(&NUMBER)?;
        let name = table.need("env", "name an environment variable")?;
        let value = variable(name)?;
        let number = value.trim().parse().ok().or_else(|| {
            let value: String = value.chars().take(20).collect();
            name.refuse(format!(
                "this environment variable is {value:?}; set it to a whole number"
            ))
        });
        (name.clone(), number?)
    } else {
        (at.clone(), at.integer()?)
    };
    match number {
        0 => at.refuse("0 nodes serve no request; give 1 or more"),
        number => Some(number),
    }
}

/// Reads an environment variable of this name.
fn variable(name: &At<'_>) -> Option<String> {
    let variable = name.text()?;
    let is_name = !variable.is_empty() && !variable.contains(['=', '\0']);
    // In place of a name, the secret itself may stand there.
    let is_usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let shown = if variable.contains('_') && variable.chars().all(is_usual) {
        format!("the environment variable {variable:?}")
    } else {
        "this environment variable".to_owned()
    };
    match is_name.then(|| env::var(variable)) {
        Some(Ok(value)) => Some(value),
        Some(Err(env::VarError::NotUnicode(_))) => name.refuse(format!("{shown} is not text")),
        _ => name.refuse(format!("{shown} is not set; set it, or name another")),
    }
}

/// Returns the path that this text names. No message shows it, since the secret itself may stand in its place.
fn path_of(text: &str) -> Result<PathBuf, String> {
    let credential = text.strip_prefix('$').and_then(|rest| {
        let rest = rest.strip_prefix(CREDENTIALS)?;
        rest.strip_prefix('/')
    });
    let path = match credential {
        None => PathBuf::from(text),
        Some(credential) => {
            let folder = env::var_os(CREDENTIALS).ok_or_else(|| {
                format!(
                    "${CREDENTIALS} is not set; give the unit LoadCredential= or SetCredential=, or write the whole path"
                )
            })?;
            Path::new(&folder).join(credential)
        }
    };
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!(
            "this is no absolute path; write one from the root, such as /run/secrets/redis-url, or from ${CREDENTIALS}"
        ))
    }
}

/// Warns of a secret that other users of this machine may read.
#[cfg(unix)]
fn warn_of_readers(at: &At<'_>, path: &Path) {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::metadata(path).map_or(0, |it| it.permissions().mode());
    if mode & 0o004 != 0 {
        at.warn(
            "other users of this machine may read this file; take that right away, `chmod o-r`",
        );
    }
}

#[cfg(not(unix))]
fn warn_of_readers(_: &At<'_>, _: &Path) {}

/// Returns a value as text, with what its variables and files have.
pub(super) fn resolved(at: &At<'_>) -> String {
    text_of(at.node, Some(at.walk))
}

/// Returns a value as text, with the names of its variables and files.
pub(super) fn as_written(node: &Node) -> String {
    text_of(node, None)
}

fn text_of(node: &Node, resolving: Option<&Walk<'_>>) -> String {
    match &node.value {
        Value::List(list) => {
            let list: Vec<String> = list.iter().map(|it| text_of(it, resolving)).collect();
            format!("{list:?}")
        }
        Value::Table(entries) => {
            // A value that moves from the file into the environment has not changed.
            if let Some(walk) = resolving
                && let [only] = entries.as_slice()
                && let Value::Text(text) = &only.node.value
            {
                match &*only.name {
                    "env" => return env::var(text).unwrap_or_default(),
                    "file" => {
                        let content = path_of(text).and_then(|path| walk.content(path));
                        return content.unwrap_or_default();
                    }
                    _ => {}
                }
            }
            let fields = entries.iter();
            let mut fields: Vec<(&str, String)> = fields
                .map(|entry| (&*entry.name, text_of(&entry.node, resolving)))
                .collect();
            fields.sort_unstable();
            format!("{fields:?}")
        }
        Value::Text(text) => text.clone(),
        value => value.shown(),
    }
}

//! Changes of a text in Lua, each in one place.

use std::fmt;

/// A change of one line.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Mutant {
    /// From 1.
    pub(crate) line: usize,
    /// In bytes, from 0.
    column: usize,
    length: usize,
    becomes: &'static str,
    /// The line as it is, without the space around it.
    pub(crate) text: String,
    /// The line as it becomes, likewise.
    pub(crate) changed: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, changed, .. } = self;
        if changed.is_empty() {
            write!(f, "`{text}` is left out")
        } else {
            write!(f, "`{text}` becomes `{changed}`")
        }
    }
}

/// What stands for what, longer ones first. Texts are joined as before.
const SYMBOLS: [(&str, &str); 11] = [
    ("==", "~="),
    ("~=", "=="),
    ("<=", "<"),
    (">=", ">"),
    ("..", ".."),
    ("<", "<="),
    (">", ">="),
    ("+", "-"),
    ("-", "+"),
    ("*", "/"),
    ("/", "*"),
];

const WORDS: [(&str, &str); 9] = [
    ("and", "or"),
    ("or", "and"),
    ("not", ""),
    ("true", "false"),
    ("false", "true"),
    ("math.max", "math.min"),
    ("math.min", "math.max"),
    ("math.floor", "math.ceil"),
    ("math.ceil", "math.floor"),
];

/// Returns all changes of a text, in its order.
pub(crate) fn mutants(text: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let mut found = places(line);
        if is_statement(&lines, index) {
            let start = line.len() - line.trim_start().len();
            found.push((start, line.len() - start, ""));
        }
        all.extend(found.into_iter().map(|(column, length, becomes)| {
            let changed = [&line[..column], becomes, &line[column + length..]].concat();
            Mutant {
                line: index + 1,
                column,
                length,
                becomes,
                text: line.trim().to_owned(),
                changed: changed.trim().to_owned(),
            }
        }));
    }
    all
}

/// Returns the column and the length of what may change in this line, and what it becomes.
fn places(line: &str) -> Vec<(usize, usize, &'static str)> {
    let mut found = Vec::new();
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &line[at..];
        if rest.starts_with("--") {
            break;
        }
        let length = match bytes[at] {
            quote @ (b'\'' | b'"') => length_of_text(rest, quote),
            letter if letter.is_ascii_alphabetic() || letter == b'_' => {
                let length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
                    .unwrap_or(rest.len());
                if let Some((_, becomes)) = WORDS.iter().find(|(word, _)| *word == &rest[..length])
                {
                    found.push((at, length, *becomes));
                }
                length
            }
            digit if digit.is_ascii_digit() => {
                let length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
                    .unwrap_or(rest.len());
                match &rest[..length] {
                    "0" => found.push((at, 1, "1")),
                    "1" => found.push((at, 1, "2")),
                    _ => {}
                }
                length
            }
            _ => match SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)) {
                Some((symbol, becomes)) => {
                    if symbol != becomes && (*symbol != "-" || is_between(line, at)) {
                        found.push((at, symbol.len(), *becomes));
                    }
                    symbol.len()
                }
                None => 1,
            },
        };
        at += length;
    }
    found
}

fn length_of_text(rest: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (index, byte) in rest.bytes().enumerate().skip(1) {
        if byte == quote && !escaped {
            return index + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    rest.len()
}

/// Whether an operator has a left side, as a sign has not.
fn is_between(line: &str, at: usize) -> bool {
    let before = line[..at].trim_end();
    let last = before.chars().next_back();
    last.is_some_and(|last| last.is_ascii_alphanumeric() || "_)]".contains(last))
        && !["and", "or", "not", "return"]
            .iter()
            .any(|word| before.ends_with(word))
}

/// Whether this line is a whole statement that may be left out: an assignment to what exists, or a call.
fn is_statement(lines: &[&str], index: usize) -> bool {
    const OPEN: [&str; 9] = [",", "{", "(", "=", "and", "or", "..", "+", "-"];
    let line = lines[index].trim();
    let assigns = line.split_once(" = ").is_some_and(|(names, _)| {
        !names.contains(' ') || names.contains(", ") && !names.starts_with("local ")
    });
    let calls = line.ends_with(')') && line.find('(').is_some_and(|at| !line[..at].contains(' '));
    let is_inside = lines[index].starts_with(' ') && !line.starts_with('{');
    let balance =
        |open: char, close: char| line.matches(open).count() == line.matches(close).count();
    let is_whole =
        balance('(', ')') && balance('{', '}') && balance('[', ']') && !ends_open(line, &OPEN);
    let goes_on = lines[..index]
        .last()
        .is_some_and(|before| ends_open(before.trim(), &OPEN))
        || lines.get(index + 1).is_some_and(|next| {
            let next = next.trim();
            ["and ", "or ", "..", "+ ", "- "]
                .iter()
                .any(|word| next.starts_with(word))
        });
    let has_block = [
        "function", "then", "do", "end", "if", "for", "while", "return", "local", "--",
    ]
    .iter()
    .any(|word| line.split(' ').any(|part| part == *word));
    is_inside && (assigns || calls) && is_whole && !goes_on && !has_block
}

fn ends_open(line: &str, open: &[&str]) -> bool {
    open.iter().any(|end| line.ends_with(end))
}

impl Mutant {
    /// Returns the changed text, of the same length: a shorter line ends with spaces, and for a longer one an indentation shrinks, as
    /// far as there are any. `None` if there are not.
    pub(crate) fn apply(&self, text: &str) -> Option<String> {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let line = &mut lines[self.line - 1];
        line.replace_range(self.column..self.column + self.length, self.becomes);
        if self.becomes.len() < self.length {
            line.extend(std::iter::repeat_n(' ', self.length - self.becomes.len()));
        }
        let mut longer = self.becomes.len().saturating_sub(self.length);
        for line in lines.iter_mut().skip(self.line - 1) {
            let indentation = line.len() - line.trim_start().len();
            // Functions are found by their beginning of a line, so one space is left.
            let taken = longer.min(indentation.saturating_sub(1));
            line.drain(..taken);
            longer -= taken;
        }
        (longer == 0).then(|| lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(line: &str) -> Vec<String> {
        let text = format!("function f()\n  {line}\nend\n");
        let all = mutants(&text);
        all.into_iter().map(|mutant| mutant.changed).collect()
    }

    #[test]
    fn each_place_changes_once() {
        assert_eq!(
            changed("return a + 1 <= math.max(b, -c)"),
            [
                "return a - 1 <= math.max(b, -c)",
                "return a + 2 <= math.max(b, -c)",
                "return a + 1 < math.max(b, -c)",
                "return a + 1 <= math.min(b, -c)",
            ]
        );
        assert_eq!(
            changed("if not a or b ~= 'x <= y' then"),
            [
                "if  a or b ~= 'x <= y' then",
                "if not a and b ~= 'x <= y' then",
                "if not a or b == 'x <= y' then",
            ]
        );
    }

    #[test]
    fn texts_and_comments_stay() {
        assert_eq!(
            changed("local a = 'it\\'s - 1' .. b -- a + b"),
            [] as [&str; 0]
        );
    }

    #[test]
    fn a_statement_is_left_out_if_it_is_whole() {
        assert_eq!(changed("state[2], a = b, c"), [""]);
        assert_eq!(changed("redis.call('DEL', key)"), [""]);
        for kept in [
            "local a = b",
            "a = b and",
            "{a = b}",
            "return f(b)",
            "a = {",
            "if f(a) then",
        ] {
            assert_eq!(
                changed(kept).iter().filter(|line| line.is_empty()).count(),
                0,
                "{kept}"
            );
        }
    }

    #[test]
    fn a_changed_text_has_the_length_of_the_text() {
        let text = "function f()\n  if a and b or c < d then\n    e = 1\n  end\nend\n";
        let all = mutants(text);
        assert_eq!(all.len(), 5);
        for mutant in all {
            let changed = mutant.apply(text).unwrap();
            assert_eq!(changed.len(), text.len());
            let line = changed.lines().nth(mutant.line - 1).unwrap();
            assert_eq!(line.trim(), mutant.changed);
        }
    }
}

//! The format of a file.

use std::fs;

use tower_ratelimit_config::{Config, Format};

use crate::folder::Folder;

const TOML: &str = "[policies.a]\nkey = \"global\"\nquota = \"1/day\"\n";
const JSON: &str = r#"{ "policies": { "a": { "key": "global", "quota": "1/day" } } }"#;

#[test]
fn the_extension_says_json_and_all_others_are_toml() {
    let folder = Folder::new("formats");
    for (name, text, other) in [
        ("limits.toml", TOML, JSON),
        ("limits.conf", TOML, JSON),
        ("limits.yaml", TOML, JSON),
        ("limits", TOML, JSON),
        (".json", TOML, JSON),
        ("limits.json", JSON, TOML),
        ("limits.JSON", JSON, TOML),
        ("limits.toml.json", JSON, TOML),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        assert!(Config::read(&path).is_ok(), "{name}");
        fs::write(&path, other).unwrap();
        assert!(Config::read(&path).is_err(), "{name}");
    }
}

/// It has no byte on the disk. Reading it would take minutes and a terabyte.
#[test]
fn a_file_that_is_too_large_is_not_read() {
    let folder = Folder::new("large");
    let file = fs::File::create(folder.file()).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = Config::read(folder.file()).unwrap_err().to_string();
    assert!(error.contains("larger than 1048576 bytes"), "{error}");
    let builder = Config::builder().max_bytes(TOML.len());
    assert!(builder.parse(TOML, Format::Toml).is_ok());
    let error = builder
        .parse(&format!("{TOML}#"), Format::Toml)
        .unwrap_err();
    assert!(
        error.to_string().contains("larger than 44 bytes"),
        "{error}"
    );
}

/// Editors of Windows write both.
#[test]
fn a_byte_order_mark_and_the_line_ends_of_windows_change_no_meaning_and_no_place() {
    let windows = format!("\u{feff}{}", TOML.replace('\n', "\r\n"));
    assert!(windows.parse::<Config>().is_ok());
    let json = format!("\u{feff}{}", JSON.replace(' ', "\r\n"));
    assert!(Config::builder().parse(&json, Format::Json).is_ok());
    let wrong = format!(
        "\u{feff}kye = 5\r\n{}",
        TOML.replace('\n', "\r\n").replace("day", "dya")
    );
    let error = wrong.parse::<Config>().unwrap_err();
    let places: Vec<_> = error
        .mistakes()
        .iter()
        .map(|mistake| (mistake.line().unwrap(), mistake.column().unwrap()))
        .collect();
    assert_eq!(places, [(1, 1), (4, 9)]);
    let shown = error.to_string();
    assert!(
        shown.contains(" 4 | quota = \"1/dya\"\n   |         ^^^^^^^\n"),
        "{shown:?}"
    );
}

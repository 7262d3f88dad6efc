//! `orrery config show`.

use crate::support::{fail, orrery, succeed};

fn row<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find(|line| line.split_whitespace().next() == Some(name))
        .unwrap_or_else(|| panic!("no {name}: {text}"))
}

#[test]
fn every_setting_is_shown_with_its_value_and_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orrery.toml");
    std::fs::write(&file, "partitions = 3\nport = 1\n").unwrap();
    let mut command = orrery(&["config", "show", "--config", file.to_str().unwrap(), "--port", "7"]);
    let output = command.env("ORRERY_CONSISTENCY", "Strong").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = |name| row(&text, name).split_whitespace().take(3).collect::<Vec<_>>();
    assert_eq!(fields("port"), ["port", "7", "--port"]);
    assert_eq!(fields("consistency"), ["consistency", "Strong", "ORRERY_CONSISTENCY"]);
    assert_eq!(fields("partitions"), ["partitions", "3", file.to_str().unwrap()]);
    assert_eq!(fields("account"), ["account", "orrery", "default"]);
}

#[test]
fn a_key_of_ones_own_is_not_shown() {
    let key = "bXkgb3duIHNlY3JldCBrZXksIGxvbmcgZW5vdWdo";
    let text = succeed(&["config", "show", "--key", key]);
    assert!(!text.contains(key), "{text}");
    assert!(row(&text, "key").contains("(hidden)"), "{text}");
}

#[test]
fn a_setting_nobody_knows_is_one_line_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orrery.toml");
    std::fs::write(&file, "prot = 1\n").unwrap();
    let error = fail(&["config", "show", "--config", file.to_str().unwrap()]);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("'prot'"), "{error}");
}

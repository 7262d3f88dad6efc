//! Every built-in function has a test of its own in `cases/`, and COMPATIBILITY.md says which.
//!
//! `ORRERY_UPDATE_TABLE=1 cargo test -p orrery-query --test coverage` writes the table anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orrery_query::function_names;

const BEGIN: &str = "<!-- functions:begin -->\n";
const END: &str = "<!-- functions:end -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// The files in which each name is called, by upper-case name.
fn calls() -> BTreeMap<String, Vec<String>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut calls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.starts_with(['#', 't'])) {
            for called in called_in(line) {
                let files = calls.entry(called).or_default();
                if files.last() != Some(&name) {
                    files.push(name.clone());
                }
            }
        }
    }
    calls
}

/// The names that stand before a parenthesis, in upper case.
fn called_in(line: &str) -> Vec<String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    line.match_indices('(')
        .map(|(at, _)| {
            let head = line[..at].trim_end();
            let start = head.rfind(|character| !is_name(character)).map_or(0, |at| at + 1);
            head[start..].to_ascii_uppercase()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

fn table() -> String {
    let calls = calls();
    let names = function_names();
    let mut table = String::from("| Function | Also called | Tests |\n|---|---|---|\n");
    for function in names.iter().filter(|function| function.alias_of.is_none()) {
        let aliases: Vec<&str> = names
            .iter()
            .filter(|other| other.alias_of == Some(function.name))
            .map(|other| other.name)
            .collect();
        let files = calls
            .get(function.name)
            .unwrap_or_else(|| panic!("{} is called in no case file", function.name));
        for alias in &aliases {
            assert!(calls.contains_key(*alias), "{alias} is called in no case file");
        }
        let quoted = |names: &[&str]| -> Vec<String> { names.iter().map(|name| format!("`{name}`")).collect() };
        let files: Vec<&str> = files.iter().map(|file| file.trim_end_matches(".sqltest")).collect();
        table += &format!(
            "| `{}` | {} | {} |\n",
            function.name,
            quoted(&aliases).join(", "),
            quoted(&files).join(", ")
        );
    }
    table
}

#[test]
fn every_function_is_tested_and_the_table_says_where() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../COMPATIBILITY.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the table begins");
    let (written, tail) = rest.split_once(END).expect("the table ends");
    let table = table();
    if std::env::var_os("ORRERY_UPDATE_TABLE").is_some() {
        std::fs::write(&path, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(written, table, "ORRERY_UPDATE_TABLE=1 writes the table anew");
}

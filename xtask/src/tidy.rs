//! Checks what people are bad at: forbidden arrows between crates, files that ate their module, modules without a reason,
//! decisions nobody lists, unfinished work.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// What each crate may depend on, of our own crates and of what makes a crate impure. Downward only.
const ARROWS: [(&str, &[&str]); 11] = [
    ("orrery-model", &[]),
    ("orrery-query", &["orrery-model"]),
    ("orrery-partition", &["orrery-model", "orrery-query"]),
    (
        "orrery-storage",
        &["orrery-model", "orrery-partition", "tokio", "async-nats"],
    ),
    // Processes for tests; uses nothing of Orrery.
    ("orrery-nats-server", &[]),
    (
        "orrery-node",
        &["orrery-model", "orrery-query", "orrery-partition", "tokio"],
    ),
    ("orrery-gateway", &["orrery-model", "orrery-node", "tokio"]),
    (
        "orrery",
        &[
            "orrery-model",
            "orrery-query",
            "orrery-partition",
            "orrery-storage",
            "orrery-node",
            "orrery-gateway",
            "orrery-platform",
            "orrery-processor",
            "orrery-publishing",
            "tokio",
        ],
    ),
    // Clients like any other: no arrow into the server.
    ("orrery-processor", &["tokio"]),
    ("orrery-publishing", &["orrery-processor", "tokio"]),
    ("orrery-platform", &["orrery-publishing", "tokio"]),
];

/// A file longer than this has more than one concern.
const LINES_MAX: usize = 700;

pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the repository has a root")?;
    let mut problems = Vec::new();
    arrows(root, &mut problems)?;
    sources(root, &mut problems)?;
    decisions(root, &mut problems)?;
    problems.iter().for_each(|problem| eprintln!("tidy: {problem}"));
    ensure!(problems.is_empty(), "{} problems", problems.len());
    println!("tidy: clean");
    Ok(())
}

fn arrows(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    for (name, allowed) in ARROWS {
        let manifest: toml::Table = fs::read_to_string(root.join("crates").join(name).join("Cargo.toml"))?.parse()?;
        let Some(dependencies) = manifest.get("dependencies").and_then(toml::Value::as_table) else {
            continue;
        };
        for dependency in dependencies.keys() {
            let watched = dependency.starts_with("orrery") || dependency == "tokio" || dependency == "async-nats";
            if watched && !allowed.contains(&dependency.as_str()) {
                problems.push(format!("crates/{name} must not depend on {dependency}"));
            }
        }
    }
    Ok(())
}

fn sources(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let mut files = Vec::new();
    for part in ["crates", "fuzz", "sim", "bench", "xtask", "conformance"] {
        collect(&root.join(part), &mut files)?;
    }
    for path in files {
        let text = fs::read_to_string(&path)?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        let n_lines = text.lines().count();
        if n_lines > LINES_MAX {
            problems.push(format!("{shown} has {n_lines} lines; which second concern moved in?"));
        }
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        if !is_test && path.extension().is_some_and(|end| end == "rs") && !text.starts_with("//!") {
            problems.push(format!("{shown} does not say what it is for"));
        }
        for unfinished in [
            concat!("TO", "DO:"),
            concat!("TO", "DO "),
            concat!("FIX", "ME"),
            concat!("todo", "!("),
            concat!("unimplemented", "!("),
            concat!("#[ig", "nore"),
        ] {
            if text.contains(unfinished) {
                problems.push(format!("{shown} contains {unfinished}"));
            }
        }
    }
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !matches!(name, "target" | "node_modules" | "results" | ".venv" | "__pycache__") {
                collect(&path, files)?;
            }
        } else if [".rs", ".py", ".js", ".ts", ".go", ".java"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            files.push(path);
        }
    }
    Ok(())
}

/// Every decision record is listed in the index.
fn decisions(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let folder = root.join("docs/adr");
    let index = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "README.md" && !index.contains(&name) {
            problems.push(format!("docs/adr/README.md does not list {name}"));
        }
    }
    Ok(())
}

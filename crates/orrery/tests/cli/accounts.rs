//! Several accounts in one process, from a settings file, and `orrery topology`.

use std::path::Path;

use serde_json::Value;

use crate::support::{Server, exported, fail, succeed, until};

/// Writes the settings `orrery topology generate` gives to a file in the directory.
pub fn generate(directory: &Path, extra: &[&str]) -> String {
    let file = directory.join("orrery.toml");
    let settings = succeed(&[&["topology", "generate"], extra].concat());
    std::fs::write(&file, settings).unwrap();
    file.to_str().unwrap().to_owned()
}

pub fn account<'a>(server: &'a Server, id: &str) -> &'a Value {
    let accounts = server.ready["accounts"].as_array().unwrap();
    accounts.iter().find(|account| account["id"] == id).unwrap()
}

/// The region of an account's endpoint, and its key.
pub fn region_of<'a>(account: &'a Value, name: &str) -> (&'a str, &'a str) {
    let regions = account["regions"].as_array().unwrap();
    let region = regions.iter().find(|region| region["name"] == name).unwrap();
    (region["endpoint"].as_str().unwrap(), account["key"].as_str().unwrap())
}

pub fn import_into(account: &Value, ids: std::ops::Range<usize>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.ndjson");
    let lines: String = ids.map(|n| format!("{{\"id\":\"{n}\",\"pk\":\"p\"}}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    let (endpoint, key) = (account["endpoint"].as_str().unwrap(), account["key"].as_str().unwrap());
    let file = file.to_str().unwrap();
    let create = [
        "--create",
        "--partition-key",
        "/pk",
        "--endpoint",
        endpoint,
        "--key",
        key,
    ];
    succeed(&[&["import", "db", "c", file], &create[..]].concat());
}

pub fn count_at((endpoint, key): (&str, &str)) -> usize {
    exported(&["--endpoint", endpoint, "--key", key]).map_or(0, |lines| lines.len())
}

#[test]
fn every_account_has_its_own_name_key_write_region_and_endpoints() {
    let directory = tempfile::tempdir().unwrap();
    let config = generate(directory.path(), &["--regions", "3", "--keys"]);
    let server = Server::spawn(&["emulator", "--memory", "--port", "0", "--config", &config]);
    let mut endpoints = std::collections::HashSet::new();
    for (id, writer) in [
        ("contentpubdatabase-usa", "West US"),
        ("contentpubdatabase-europe", "North Europe"),
        ("contentpubdatabase-asia", "Southeast Asia"),
    ] {
        let account = account(&server, id);
        assert!(endpoints.insert(account["endpoint"].as_str().unwrap().to_owned()));
        for region in account["regions"].as_array().unwrap() {
            assert_eq!(region["role"] == "write", region["name"] == writer, "{account}");
            assert!(endpoints.insert(region["endpoint"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(endpoints.len(), 12);
    let (usa, asia) = (
        account(&server, "contentpubdatabase-usa"),
        account(&server, "contentpubdatabase-asia"),
    );
    import_into(usa, 0..10);
    import_into(asia, 0..3);
    for name in ["West US", "North Europe", "Southeast Asia"] {
        assert!(until(|| count_at(region_of(usa, name)) == 10), "{name}");
        assert!(until(|| count_at(region_of(asia, name)) == 3), "{name}");
    }
    let (endpoint, _) = region_of(usa, "West US");
    let (_, other_key) = region_of(asia, "West US");
    assert_eq!(count_at((endpoint, other_key)), 0, "one account's key opens no other");
}

#[test]
fn a_failover_concerns_one_account_and_accounts_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = generate(directory.path(), &["--regions", "2"]);
    let data = directory.path().join("data");
    let arguments = [
        "emulator",
        "--port",
        "0",
        "--config",
        &config,
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let server = Server::spawn(&arguments);
    let ids = ["contentpubdatabase-usa", "contentpubdatabase-europe"];
    import_into(account(&server, ids[0]), 0..5);
    import_into(account(&server, ids[1]), 0..7);
    let europe = account(&server, ids[1])["endpoint"].as_str().unwrap();
    succeed(&["region", "failover", "West US", "--endpoint", europe]);
    assert!(server.terminate().0.success());

    let server = Server::spawn(&arguments);
    for (id, n_items) in [(ids[0], 5), (ids[1], 7)] {
        let account = account(&server, id);
        for region in account["regions"].as_array().unwrap() {
            assert_eq!(region["role"] == "write", region["name"] == "West US", "{account}");
        }
        assert!(
            until(|| count_at(region_of(account, "North Europe")) == n_items),
            "{id}"
        );
    }
    drop(server);
    let single = ["emulator", "--port", "0", "--data-dir", data.to_str().unwrap()];
    let refusal = fail(&single);
    assert!(refusal.contains(ids[0]), "{refusal}");
}

#[test]
fn links_of_the_file_are_in_force_from_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let config = generate(directory.path(), &["--regions", "West US,North Europe", "--links"]);
    let server = Server::spawn(&["emulator", "--memory", "--port", "0", "--config", &config]);
    for account in server.ready["accounts"].as_array().unwrap() {
        let endpoint = account["endpoint"].as_str().unwrap();
        let links = succeed(&["region", "link", "--json", "--endpoint", endpoint]);
        let links: Value = serde_json::from_str(&links).unwrap();
        for link in links["links"].as_array().unwrap() {
            assert!(link["latencyMs"].as_f64().unwrap() > 50.0, "{link}");
        }
    }
}

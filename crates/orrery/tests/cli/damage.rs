//! What a region's files hold is damaged: bits flip, ends are torn, files go away. Real processes on real directories.
//!
//! Whatever is damaged, nobody is served anything but what was written, and in the end every region has every write that was
//! acknowledged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::accounts;
use crate::regions::{endpoint, lines, region};
use crate::support::{Server, exported, import, orrery, run, sorted, until};

const NAMES: &str = "West US,North Europe,Southeast Asia";
const WEST: &str = "West US";
const NORTH: &str = "North Europe";
const ASIA: &str = "Southeast Asia";
const N_ITEMS: usize = 300;

/// A data directory with an account of three regions and some items in all of them, as a server leaves it that was told to stop.
fn stopped() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &["--regions", NAMES]);
    import(&server, &lines(0..N_ITEMS));
    wait_for_all(&server, N_ITEMS);
    assert!(server.terminate().0.success());
    directory
}

/// The same, as a server leaves it that was killed: everything is in the logs, and the views have little of it.
fn killed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &["--regions", NAMES]);
    import(&server, &lines(0..N_ITEMS));
    wait_for_all(&server, N_ITEMS);
    drop(server);
    directory
}

/// All items a region serves, without what the server adds; `None` when it does not answer.
fn served(endpoint: &str) -> Option<Vec<(String, String)>> {
    let lines = exported(&["--endpoint", endpoint])?;
    let items = sorted(lines.iter().map(|line| serde_json::from_str(line).unwrap()));
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    Some(items.iter().map(|item| (text(item, "id"), text(item, "pk"))).collect())
}

fn written(n_items: usize) -> Vec<(String, String)> {
    (0..n_items).map(|n| (format!("{n:03}"), format!("key-{n}"))).collect()
}

/// Every region serves exactly what was written, in the end; on the way, a part of it or nothing.
fn wait_for_all(server: &Server, n_items: usize) {
    let wanted = written(n_items);
    for name in NAMES.split(',') {
        let is_whole = until(|| {
            let Some(found) = served(endpoint(server, name)) else {
                return false;
            };
            assert!(
                found.iter().all(|item| wanted.contains(item)),
                "{name} serves {found:?}"
            );
            found == wanted
        });
        assert!(is_whole, "{name}: {}", region(server, &["list"]));
    }
}

fn state(server: &Server, name: &str) -> (String, Value) {
    let list = region(server, &["list"]);
    let regions = list["regions"].as_array().unwrap();
    let region = regions.iter().find(|region| region["name"] == name).unwrap();
    (region["state"].as_str().unwrap().to_owned(), region["outage"].clone())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Every file of a region's store that holds something.
fn files(root: &Path, region: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root.join("regions").join(region)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => directories.push(entry.path()),
                false if entry.metadata().unwrap().len() > 0 => found.push(entry.path()),
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

fn set_aside(root: &Path, region: &str) -> usize {
    let prefix = format!("{region}.damaged-");
    let entries = fs::read_dir(root.join("regions")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&prefix)).count()
}

/// How many places of each file are damaged, one after the other.
fn n_places() -> usize {
    match std::env::var_os("ORRERY_SOAK") {
        Some(_) => 40,
        None => 2,
    }
}

#[test]
fn a_region_for_reading_with_one_flipped_bit_anywhere_is_made_anew_and_serves_what_was_written() {
    let whole = stopped();
    let (mut n_repaired, names) = (0, files(whole.path(), "northeurope"));
    assert!(
        names.iter().any(|file| file.parent().unwrap().ends_with("tables")),
        "{names:?}"
    );
    for file in names {
        let size = fs::metadata(&file).unwrap().len() as usize;
        for place in 0..n_places() {
            let directory = tempfile::tempdir().unwrap();
            copy(whole.path(), directory.path());
            let damaged = directory.path().join(file.strip_prefix(whole.path()).unwrap());
            flip(&damaged, size * (2 * place + 1) / (2 * n_places()));
            let server = Server::durable(directory.path(), &[]);
            wait_for_all(&server, N_ITEMS);
            // What was damaged may be met only when it is read, so the region may be made anew just now.
            assert!(
                until(|| state(&server, NORTH) == ("online".to_owned(), Value::Null)),
                "{}",
                damaged.display()
            );
            wait_for_all(&server, N_ITEMS);
            assert_eq!(state(&server, WEST).0, "online");
            n_repaired += set_aside(directory.path(), "northeurope");
            assert_eq!(set_aside(directory.path(), "westus"), 0, "damage stays where it is");
        }
    }
    assert!(n_repaired >= 3, "{n_repaired} were noticed");
}

#[test]
fn a_write_region_that_has_lost_the_end_of_its_log_gets_it_back_before_it_writes() {
    let whole = killed();
    let log: Vec<PathBuf> = files(whole.path(), "westus")
        .into_iter()
        .filter(|file| file.extension().is_some_and(|suffix| suffix == "log"))
        .collect();
    let last = log.last().unwrap();
    let size = fs::metadata(last).unwrap().len() as usize;
    // A torn last record, a flipped bit in it, and half of the file.
    for damage in ["torn", "flipped", "half"] {
        let directory = tempfile::tempdir().unwrap();
        copy(whole.path(), directory.path());
        let damaged = directory.path().join(last.strip_prefix(whole.path()).unwrap());
        match damage {
            "flipped" => flip(&damaged, size - 3),
            "torn" => fs::write(&damaged, &fs::read(last).unwrap()[..size - 1]).unwrap(),
            _ => fs::write(&damaged, &fs::read(last).unwrap()[..size / 2]).unwrap(),
        }
        let server = Server::durable(directory.path(), &[]);
        assert_eq!(served(endpoint(&server, WEST)), Some(written(N_ITEMS)), "{damage}");
        import(&server, &lines(N_ITEMS..N_ITEMS + 10));
        wait_for_all(&server, N_ITEMS + 10);
    }
}

#[test]
fn a_write_region_that_is_damaged_writes_nothing_until_another_has_taken_over_and_then_comes_back() {
    let directory = stopped();
    let log = files(directory.path(), "westus");
    let log = log
        .iter()
        .find(|file| file.extension().is_some_and(|suffix| suffix == "log"));
    flip(log.unwrap(), 60);
    for _ in 0..2 {
        // Also after a restart: what stands in for it has what others have, and must not begin to write.
        let server = Server::durable(directory.path(), &[]);
        assert_eq!(state(&server, WEST), ("online".to_owned(), Value::from("damaged")));
        assert_eq!(served(endpoint(&server, WEST)), None, "it serves nobody");
        assert_eq!(served(endpoint(&server, NORTH)), Some(written(N_ITEMS)));
        let refused = run(&["region", "failover", NORTH, "--endpoint", server.endpoint()]);
        assert!(
            !refused.status.success(),
            "a planned change needs a region that is well"
        );
        let refused = run(&["region", "start", WEST, "--endpoint", server.endpoint()]);
        let message = String::from_utf8(refused.stderr).unwrap();
        assert!(message.contains("damaged"), "{message}");
        assert_eq!(set_aside(directory.path(), "westus"), 1);
    }
    let server = Server::durable(directory.path(), &[]);
    let loss = region(&server, &["offline", WEST]);
    assert!(
        loss.to_string().contains("unknown") || loss["lostTransactions"].is_null(),
        "{loss}"
    );
    import(&server, &lines(N_ITEMS..N_ITEMS + 10));
    assert!(until(|| state(&server, WEST) == ("online".to_owned(), Value::Null)));
    wait_for_all(&server, N_ITEMS + 10);
    assert_eq!(region(&server, &["list"])["regions"][0]["name"], NORTH);
}

#[test]
fn a_write_region_whose_data_is_gone_does_not_begin_as_an_empty_one() {
    let directory = stopped();
    fs::remove_dir_all(directory.path().join("regions/westus")).unwrap();
    let server = Server::durable(directory.path(), &[]);
    assert_eq!(state(&server, WEST).1, "damaged");
    region(&server, &["offline", WEST]);
    wait_for_all(&server, N_ITEMS);
}

/// Damages whatever the tables of a region's view hold.
fn damage_tables(root: &Path, region: &str) {
    let all = files(root, region).into_iter();
    let tables: Vec<PathBuf> = all.filter(|file| file.parent().unwrap().ends_with("tables")).collect();
    assert!(!tables.is_empty());
    for table in tables {
        let mut bytes = fs::read(&table).unwrap();
        // Its end says where what is.
        let n_damaged = bytes.len() * 3 / 4;
        bytes[..n_damaged].iter_mut().step_by(64).for_each(|byte| *byte ^= 0x20);
        fs::write(&table, bytes).unwrap();
    }
}

#[test]
fn a_write_region_that_meets_damage_at_work_stops_and_nothing_is_lost_when_another_takes_over() {
    let directory = stopped();
    let server = Server::durable(directory.path(), &[]);
    import(&server, &lines(N_ITEMS..N_ITEMS + 10));
    damage_tables(directory.path(), "westus");
    let met = until(|| served(endpoint(&server, WEST)).is_none() && state(&server, WEST).1 == "damaged");
    assert!(met, "{}", region(&server, &["list"]));
    assert_eq!(served(endpoint(&server, NORTH)), Some(written(N_ITEMS + 10)));
    let loss = region(&server, &["offline", WEST]);
    assert_eq!(loss["lostTransactions"], 0, "{loss}");
    import(&server, &lines(N_ITEMS + 10..N_ITEMS + 20));
    assert!(until(|| state(&server, WEST) == ("online".to_owned(), Value::Null)));
    wait_for_all(&server, N_ITEMS + 20);
    assert_eq!(set_aside(directory.path(), "westus"), 1);
}

#[test]
fn an_account_that_may_fail_over_by_itself_does_so_from_a_damaged_write_region() {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<String> = NAMES.split(',').map(|name| format!("{name:?}")).collect();
    let settings = format!(
        "[[accounts]]\nid = \"managed\"\nregions = [{}]\nfailover-after-ms = 500\n",
        names.join(", ")
    );
    let (config, data) = (directory.path().join("orrery.toml"), directory.path().join("data"));
    fs::write(&config, settings).unwrap();
    let (config, data_dir) = (config.to_str().unwrap(), data.to_str().unwrap());
    let arguments = ["emulator", "--port", "0", "--config", config, "--data-dir", data_dir];
    let server = Server::spawn(&arguments);
    import(&server, &lines(0..N_ITEMS));
    wait_for_all(&server, N_ITEMS);
    assert!(server.terminate().0.success());

    // At the start: the log cannot be read from its beginning.
    let log = files(&data, "westus");
    let log = log
        .iter()
        .find(|file| file.extension().is_some_and(|suffix| suffix == "log"));
    flip(log.unwrap(), 60);
    let server = Server::spawn(&arguments);
    let writer = |server: &Server| region(server, &["list"])["regions"][0]["name"].clone();
    assert!(until(|| writer(&server) == NORTH), "{}", region(&server, &["list"]));
    import(&server, &lines(N_ITEMS..N_ITEMS + 10));
    assert!(until(|| state(&server, WEST) == ("online".to_owned(), Value::Null)));
    wait_for_all(&server, N_ITEMS + 10);
    assert_eq!(set_aside(&data, "westus"), 1);
    assert!(server.terminate().0.success());

    // And at work, from the one that has taken over and has read nothing yet.
    let server = Server::spawn(&arguments);
    assert_eq!(writer(&server), NORTH);
    damage_tables(&data, "northeurope");
    let is_taken_over = until(|| {
        served(endpoint(&server, NORTH));
        writer(&server) == ASIA
    });
    assert!(is_taken_over, "{}", region(&server, &["list"]));
    import(&server, &lines(N_ITEMS + 10..N_ITEMS + 20));
    assert!(until(|| state(&server, NORTH) == ("online".to_owned(), Value::Null)));
    wait_for_all(&server, N_ITEMS + 20);
    assert_eq!(set_aside(&data, "northeurope"), 1);
}

#[test]
fn accounts_that_share_a_damaged_store_are_made_anew_together_once_nobody_writes_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = accounts::generate(directory.path(), &["--regions", "3"]);
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
    let ids = [
        "contentpubdatabase-usa",
        "contentpubdatabase-europe",
        "contentpubdatabase-asia",
    ];
    let count = |server: &Server, id: &str, region: &str| {
        accounts::count_at(accounts::region_of(accounts::account(server, id), region))
    };
    let all_have = |server: &Server, n_items: usize| {
        for id in ids {
            for region in NAMES.split(',') {
                assert!(until(|| count(server, id, region) == n_items), "{id} in {region}");
            }
        }
    };
    let server = Server::spawn(&arguments);
    for id in ids {
        accounts::import_into(accounts::account(&server, id), 0..50);
    }
    all_have(&server, 50);
    assert!(server.terminate().0.success());

    let server = Server::spawn(&arguments);
    damage_tables(&data, "northeurope");
    let regions = |id: &str, command: &[&str]| {
        let account = accounts::account(&server, id);
        let (endpoint, key) = (account["endpoint"].as_str().unwrap(), account["key"].as_str().unwrap());
        let to = ["--json", "--endpoint", endpoint, "--key", key];
        let answer = run(&[&["region"], command, &to[..]].concat());
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        serde_json::from_slice::<Value>(&answer.stdout).unwrap()
    };
    let outage = |id: &str| {
        let list = regions(id, &["list"]);
        let regions = list["regions"].as_array().unwrap();
        let north = regions.iter().find(|region| region["name"] == NORTH).unwrap();
        (north["state"].clone(), north["outage"].clone())
    };
    assert!(until(|| {
        count(&server, ids[0], NORTH);
        outage(ids[0]).1 == "damaged"
    }));
    // What one of them reads is told to all.
    assert!(until(|| ids.iter().all(|id| outage(id).1 == "damaged")));
    assert_eq!(
        outage(ids[1]).0,
        "online",
        "it keeps its place until another takes over"
    );
    regions(ids[1], &["offline", NORTH]);
    for id in ids {
        assert!(until(|| outage(id) == ("online".into(), Value::Null)), "{id}");
        accounts::import_into(accounts::account(&server, id), 50..60);
    }
    all_have(&server, 60);
    assert_eq!(set_aside(&data, "northeurope"), 1);
}

#[test]
fn a_region_that_meets_damage_at_work_answers_nothing_of_it_and_is_made_anew() {
    let directory = stopped();
    let server = Server::durable(directory.path(), &[]);
    damage_tables(directory.path(), "northeurope");
    wait_for_all(&server, N_ITEMS);
    assert!(until(|| state(&server, NORTH) == ("online".to_owned(), Value::Null)));
    assert!(until(|| set_aside(directory.path(), "northeurope") == 1));
    import(&server, &lines(N_ITEMS..N_ITEMS + 10));
    wait_for_all(&server, N_ITEMS + 10);
    assert_eq!(state(&server, WEST), ("online".to_owned(), Value::Null));
}

#[test]
fn a_damaged_register_is_read_from_its_copy() {
    let directory = stopped();
    let register = directory.path().join("accounts.json");
    let size = fs::metadata(&register).unwrap().len() as usize;
    for at in [size / 3, size / 2, size - 20] {
        flip(&register, at);
        let server = Server::durable(directory.path(), &[]);
        assert_eq!(served(endpoint(&server, NORTH)), Some(written(N_ITEMS)), "at {at}");
        assert!(server.terminate().0.success());
        fs::copy(directory.path().join("accounts.copy.json"), &register).unwrap();
    }
}

#[test]
fn a_single_region_that_is_damaged_is_not_served_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &[]);
    import(&server, &lines(0..10));
    assert!(server.terminate().0.success());
    let regions = directory.path().join("regions");
    let name = fs::read_dir(&regions).unwrap().next().unwrap().unwrap().file_name();
    let name = name.to_str().unwrap();
    let log = files(directory.path(), name);
    flip(
        log.iter()
            .find(|file| file.extension().is_some_and(|suffix| suffix == "log"))
            .unwrap(),
        60,
    );
    let data_dir = directory.path().to_str().unwrap();
    let mut command = orrery(&["emulator", "--port", "0", "--data-dir", data_dir]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("cannot open the data") && message.contains("corrupt"),
        "{message}"
    );
    assert_eq!(set_aside(directory.path(), name), 0);
}

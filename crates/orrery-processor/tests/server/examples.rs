//! The examples of the guides, run as a reader would run them.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;

use crate::process::{Process, Server, beside, until};

fn example(name: &str, server: &Server) -> Process {
    let mut command = Command::new(beside().join("examples").join(name));
    Process::start(command.env("ENDPOINT", &server.endpoint))
}

/// Runs an example to its end.
async fn run(name: &str, server: &Server) -> Process {
    let mut process = example(name, server);
    until("the example ends", || process.has_ended()).await;
    process
}

#[tokio::test]
async fn the_first_processor_prints_what_changes() {
    let server = Server::start(1);
    let mut first = example("first", &server);
    until("the order is printed", || first.printed("customer: \"ada\"")).await;
    first.signal("INT");
    until("it ends", || first.has_ended()).await;
}

#[tokio::test]
async fn dead_letters_are_set_aside_mended_and_replayed() {
    let server = Server::start(2);
    let process = run("dead_letters", &server).await;
    for line in [
        "set aside 2: a total below zero",
        "parked 3: an earlier change of this key is a dead letter",
        "invoiced \"4\" of \"bob\"",
        "replayed 2, failed 0",
    ] {
        assert_eq!(
            process.n_printed(line),
            1,
            "{line}: {:?}",
            process.output.lock().unwrap()
        );
    }
    let output = process.output.lock().unwrap().clone();
    let waiting: Vec<&String> = output.iter().filter(|line| line.starts_with("waiting")).collect();
    assert_eq!(waiting, ["waiting: 2", "waiting: 0"]);
    let place = |text: &str| output.iter().position(|line| line.starts_with(text)).unwrap();
    assert!(
        place("invoiced \"2\"") < place("invoiced \"3\""),
        "replayed in order: {output:?}"
    );
}

#[tokio::test]
async fn instances_that_come_and_go_share_the_leases() {
    let server = Server::start(4);
    let mut first = example("scaling_out", &server);
    until("the first one has all leases", || first.n_printed("acquired") == 8).await;
    let second = example("scaling_out", &server);
    until("the second one has its share", || second.n_printed("acquired") == 4).await;
    until("the first one gave them", || first.n_printed("released") == 4).await;
    let client = server.client().await;
    let database = client.database_client("scaling-example");
    let events = database.container_client("events", None).await.unwrap();
    for number in 0..64 {
        let (id, key) = (number.to_string(), format!("key {number}"));
        let event = json!({"id": id, "key": key});
        events.upsert_item(key, &id, &event, None).await.unwrap();
    }
    let handled = || {
        let count = |process: &Process| -> usize {
            let output = process.output.lock().unwrap();
            let counts = output.iter().filter_map(|line| line.strip_prefix("handled "));
            counts
                .map(|rest| rest.split(' ').next().unwrap().parse::<usize>().unwrap())
                .sum()
        };
        (count(&first), count(&second))
    };
    until("both worked", || handled().0 + handled().1 == 64).await;
    assert!(handled().0 > 0 && handled().1 > 0, "{:?}", handled());
    first.signal("INT");
    until("the first one stops", || first.has_ended()).await;
    assert!(first.printed("stopped, 0 leases left behind"));
    until("the second one has all leases", || second.n_printed("acquired") == 8).await;
}

#[tokio::test]
async fn leases_of_dotnet_go_on_where_they_stand_and_are_imported() {
    let server = Server::start(2);
    let process = run("import_leases", &server).await;
    let output = process.output.lock().unwrap().clone();
    let orders = |unit: &str| -> BTreeSet<String> {
        let lines = output
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("{unit}: order ")));
        lines.map(str::to_owned).collect()
    };
    let expected = |numbers: std::ops::Range<u32>| numbers.map(|number| number.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(orders("billing"), expected(20..25), "{output:?}");
    assert_eq!(orders("shipping"), expected(25..28), "{output:?}");
    assert_eq!(
        process.n_printed("billing: lease 0 of version 0 covers -1FFF"),
        1,
        "{output:?}"
    );
    assert_eq!(process.n_printed("imported 2 of 2"), 1, "{output:?}");
    assert_eq!(process.n_printed("of version 1 covers"), 2, "{output:?}");
    assert!(!process.printed("covers ?"), "{output:?}");
}

/// Lines without their indentation.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_block_of_the_guide_stands_in_an_example() {
    let guide = include_str!("../../../../docs/guides/change-feed-processor.md");
    let examples = [
        include_str!("../../examples/first.rs"),
        include_str!("../../examples/dead_letters.rs"),
        include_str!("../../examples/scaling_out.rs"),
        include_str!("../../examples/import_leases.rs"),
    ];
    let blocks: Vec<&str> = guide
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(blocks.len() >= 5, "{}", blocks.len());
    for block in blocks {
        let wanted = lines(block);
        let stands = |example: &&str| lines(example).windows(wanted.len()).any(|some| some == wanted);
        assert!(examples.iter().any(stands), "{block}");
    }
    assert!(examples[0].lines().count() <= 40, "the first processor has forty lines");
}

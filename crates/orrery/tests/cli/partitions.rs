//! `orrery partition`.

use serde_json::{Value, json};

use crate::support::{Server, export, fail, import, succeed};

fn partitions(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let all = [&["partition"], arguments, &["--json", "--endpoint", server.endpoint()]].concat();
    let answer: Value = serde_json::from_str(&succeed(&all)).unwrap();
    answer["partitions"].as_array().unwrap().clone()
}

fn numbers(partitions: &[Value]) -> Vec<u64> {
    partitions
        .iter()
        .map(|partition| partition["partition"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_partition_is_split_and_its_halves_are_merged_again_with_all_items() {
    let server = Server::start(&["--partitions", "2"]);
    let lines: String = (0..200)
        .map(|n| format!("{{\"id\":\"{n:03}\",\"pk\":\"key-{n}\",\"n\":{n}}}\n"))
        .collect();
    import(&server, &lines);
    let before = export(&server, "db", "c");
    assert_eq!(before.len(), 200);

    assert_eq!(numbers(&partitions(&server, &["list", "db", "c"])), [0, 1]);
    let halves = numbers(&partitions(&server, &["split", "db", "c", "0"]));
    assert_eq!(halves.len(), 2, "{halves:?}");
    let after = partitions(&server, &["list", "db", "c"]);
    assert_eq!(after.len(), 3);
    assert!(!numbers(&after).contains(&0), "the partition that was split is gone");
    let n_items: u64 = after.iter().map(|partition| partition["items"].as_u64().unwrap()).sum();
    assert_eq!(n_items, 200);
    assert_eq!(export(&server, "db", "c"), before);

    let [first, second] = [halves[0].to_string(), halves[1].to_string()];
    partitions(&server, &["merge", "db", "c", &first, &second]);
    let merged = partitions(&server, &["list", "db", "c"]);
    assert_eq!(merged.len(), 2);
    let parents = json!(halves);
    assert!(
        merged
            .iter()
            .any(|partition| contains_all(&partition["parents"], &parents)),
        "{merged:?}"
    );
    assert_eq!(export(&server, "db", "c"), before);
}

fn contains_all(found: &Value, expected: &Value) -> bool {
    let found = found.as_array().unwrap();
    expected.as_array().unwrap().iter().all(|number| found.contains(number))
}

#[test]
fn the_list_is_a_table_with_a_line_per_partition() {
    let server = Server::start(&["--partitions", "3"]);
    import(&server, "{\"id\":\"1\",\"pk\":\"a\"}\n");
    let text = succeed(&["partition", "list", "--endpoint", server.endpoint()]);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.starts_with("database") && text.contains("maxExclusive") && text.contains("FF"),
        "{text}"
    );
}

#[test]
fn a_refusal_is_one_line_with_the_servers_reason() {
    let server = Server::start(&[]);
    import(&server, "{\"id\":\"1\",\"pk\":\"a\"}\n");
    let error = fail(&["partition", "split", "db", "c", "99", "--endpoint", server.endpoint()]);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("orrery: 4"), "{error}");
    let other = "bm90IHRoZSBrZXkgb2YgdGhpcyBhY2NvdW50";
    let error = fail(&["partition", "list", "--key", other, "--endpoint", server.endpoint()]);
    assert!(error.starts_with("orrery: 401"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_one_line_that_names_the_address() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = fail(&["partition", "list", "--endpoint", &format!("http://{free}")]);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(&free.to_string()), "{error}");
}

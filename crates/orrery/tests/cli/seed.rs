//! `orrery emulator --seed`.

use serde_json::json;

use crate::support::{Server, export, fail};

#[test]
fn seeded_items_are_there_when_the_server_is_ready_and_the_last_entry_wins() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seed.ndjson");
    let lines = [
        json!({"database": "shop", "container": "orders", "partitionKey": "/customer", "item": {"id": "1", "customer": "a", "n": 1}}),
        json!({"database": "shop", "container": "orders", "item": {"id": "1", "customer": "a", "n": 2}}),
        json!({"database": "shop", "container": "orders", "item": {"id": "2", "customer": "b"}}),
        json!({"database": "shop", "container": "plain", "item": {"id": "x", "big": 9_007_199_254_740_993_i64}}),
        json!({"database": "other", "container": "deep", "partitionKey": ["/a", "/b"], "item": {"id": "y", "a": 1, "b": true}}),
    ];
    std::fs::write(&file, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let data = directory.path().join("data");
    let seed = ["--seed", file.to_str().unwrap()];
    for round in ["fresh", "again"] {
        let server = Server::durable(&data, &seed);
        let orders = [
            json!({"id": "1", "customer": "a", "n": 2}),
            json!({"id": "2", "customer": "b"}),
        ];
        assert_eq!(export(&server, "shop", "orders"), orders, "{round}");
        let plain = [json!({"id": "x", "big": 9_007_199_254_740_993_i64})];
        assert_eq!(export(&server, "shop", "plain"), plain, "{round}");
        assert_eq!(
            export(&server, "other", "deep"),
            [json!({"id": "y", "a": 1, "b": true})],
            "{round}"
        );
        assert!(server.terminate().0.success());
    }
}

#[test]
fn a_bad_entry_is_one_line_that_numbers_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("seed.ndjson");
    let good = json!({"database": "d", "container": "c", "item": {"id": "1"}});
    for (bad, reason) in [
        (json!({"database": "d", "container": "c", "item": {"no": "id"}}), "id"),
        (json!({"database": "d", "item": {"id": "1"}}), "container"),
        (
            json!({"database": "d/e", "container": "c", "item": {"id": "1"}}),
            "create",
        ),
    ] {
        std::fs::write(&file, format!("{good}\n{bad}\n")).unwrap();
        let error = fail(&["emulator", "--memory", "--port", "0", "--seed", file.to_str().unwrap()]);
        let last = error.lines().last().unwrap();
        assert!(
            last.starts_with("orrery: ") && last.contains("entry 2") && last.contains(reason),
            "{error}"
        );
    }
}

//! `orrery import` and `orrery export`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{Server, export, fail, import, orrery, run, signal, sorted, succeed, until, wait};

const N_ITEMS: usize = 10_000;

fn items() -> Vec<Value> {
    let item = |n: usize| {
        json!({
            "id": format!("{n:05}"),
            "pk": format!("key-{}", n % 997),
            "n": n,
            "big": i64::MAX - n as i64,
            "text": format!("Grüße \"{n}\" {{[\\ {}", "x".repeat(n % 50)),
            "list": [n, {"deep": [null, true, 0.1]}],
        })
    };
    (0..N_ITEMS).map(item).collect()
}

fn lines(items: &[Value]) -> String {
    items.iter().map(|item| format!("{item}\n")).collect()
}

fn position(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn ten_thousand_items_go_in_and_come_out_as_they_were_in_both_formats() {
    let server = Server::start(&["--partitions", "4"]);
    let directory = tempfile::tempdir().unwrap();
    let items = items();
    import(&server, &lines(&items));
    assert_eq!(export(&server, "db", "c"), items);

    let array = directory.path().join("items.json");
    let to = ["--format", "json", "--output", path_text(&array), "--page-size", "700"];
    succeed(&[&["export", "db", "c", "--endpoint", server.endpoint()], &to[..]].concat());
    let exported: Vec<Value> = serde_json::from_slice(&std::fs::read(&array).unwrap()).unwrap();
    assert_eq!(sorted(exported.into_iter()), items);

    let create = ["--create", "--partition-key", "/pk", "--endpoint", server.endpoint()];
    succeed(&[&["import", "db", "copy", path_text(&array)], &create[..]].concat());
    assert_eq!(export(&server, "db", "copy"), items);
}

/// An import that is fed through a pipe, so that the test decides how far it gets.
fn piped_import(server: &Server, resume: &Path) -> Child {
    let fixed = [
        "import",
        "db",
        "c",
        "--create",
        "--partition-key",
        "/pk",
        "--concurrency",
        "8",
    ];
    let variable = ["--resume", path_text(resume), "--endpoint", server.endpoint()];
    let mut command = orrery(&[&fixed[..], &variable[..]].concat());
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_interrupted_import_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["--partitions", "4"]);
    let (resume, file) = (directory.path().join("position"), directory.path().join("items.ndjson"));
    let items = items();
    let text = lines(&items);
    std::fs::write(&file, &text).unwrap();

    // A quarter arrives and more is promised: killed, then told to stop, each time with work behind it.
    for (name, n_items) in [("KILL", N_ITEMS / 4), ("TERM", N_ITEMS / 2)] {
        let mut import = piped_import(&server, &resume);
        let mut input = import.stdin.take().unwrap();
        let feeder = {
            let part = lines(&items[..n_items]);
            std::thread::spawn(move || input.write_all(part.as_bytes()).map(|()| input))
        };
        let half = n_items as u64 / 2;
        assert!(
            until(|| position(&resume)["items"].as_u64().is_some_and(|found| found > half)),
            "no position was saved"
        );
        signal(name, import.id());
        assert!(!wait(&mut import).success());
        drop(feeder.join());
    }
    let before = position(&resume)["items"].as_u64().unwrap();
    assert!(before > N_ITEMS as u64 / 4 && before < N_ITEMS as u64, "{before}");

    let from = [
        "import",
        "db",
        "c",
        path_text(&file),
        "--resume",
        path_text(&resume),
        "--endpoint",
        server.endpoint(),
    ];
    let output = run(&from);
    let report = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{report}");
    let n_left = N_ITEMS as u64 - before;
    assert!(
        report.contains(&format!("imported {n_left} items")),
        "{n_left} were left: {report}"
    );
    assert_eq!(
        position(&resume),
        json!({"import": "db/c", "bytes": last_end(&text), "items": N_ITEMS})
    );
    assert_eq!(export(&server, "db", "c"), items);
    assert!(run(&from).status.success(), "an import that is over has nothing to do");
}

/// Where the last object ends: before the final line feed.
fn last_end(text: &str) -> usize {
    text.len() - 1
}

#[test]
fn an_interrupted_export_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["--partitions", "4"]);
    let items = items();
    import(&server, &lines(&items));
    for format in ["ndjson", "json"] {
        let (resume, output) = (
            directory.path().join(format!("{format}.position")),
            directory.path().join(format),
        );
        let to = [
            "--format",
            format,
            "--output",
            path_text(&output),
            "--resume",
            path_text(&resume),
        ];
        let small = [
            "export",
            "db",
            "c",
            "--endpoint",
            server.endpoint(),
            "--page-size",
            "10",
            "--concurrency",
            "2",
        ];
        let mut export = orrery(&[&small[..], &to[..]].concat())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(
            until(|| position(&resume)["items"].as_u64().is_some_and(|found| found > 0)),
            "no position was saved"
        );
        signal("KILL", export.id());
        wait(&mut export);
        // What a killed export wrote beyond its position does not count, and a split in between does no harm.
        let mut file = std::fs::OpenOptions::new().append(true).open(&output).unwrap();
        file.write_all(b"{\"id\":\"half an it").unwrap();
        let before = position(&resume)["items"].as_u64().unwrap();
        let list = succeed(&[
            "partition",
            "list",
            "db",
            "c",
            "--json",
            "--endpoint",
            server.endpoint(),
        ]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let first = list["partitions"][0]["partition"].to_string();
        succeed(&["partition", "split", "db", "c", &first, "--endpoint", server.endpoint()]);

        succeed(&[&["export", "db", "c", "--endpoint", server.endpoint()], &to[..]].concat());
        let text = std::fs::read_to_string(&output).unwrap();
        let exported: Vec<Value> = match format {
            "json" => serde_json::from_str(&text).unwrap(),
            _ => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        };
        assert_eq!(
            sorted(exported.into_iter()),
            items,
            "{format}, interrupted after {before}"
        );
        let after = position(&resume);
        assert_eq!((&after["items"], &after["complete"]), (&json!(N_ITEMS), &json!(true)));
        succeed(&[&["export", "db", "c", "--endpoint", server.endpoint()], &to[..]].concat());
        assert_eq!(
            std::fs::read_to_string(&output).unwrap(),
            text,
            "an export that is over has nothing to do"
        );
    }
}

#[test]
fn items_that_are_there_are_replaced_skipped_or_refused_as_asked() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.ndjson");
    import(&server, "{\"id\":\"1\",\"pk\":\"a\",\"n\":1}\n");
    std::fs::write(&file, "{\"id\":\"1\",\"pk\":\"a\",\"n\":2}\n").unwrap();
    let again = |what: &str| {
        let fixed = ["import", "db", "c", path_text(&file), "--endpoint", server.endpoint()];
        run(&[&fixed[..], &["--if-exists", what]].concat())
    };
    assert!(again("skip").status.success());
    assert_eq!(export(&server, "db", "c")[0]["n"], 1);
    let refused = again("fail");
    assert!(!refused.status.success());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("409"));
    assert!(again("replace").status.success());
    assert_eq!(export(&server, "db", "c")[0]["n"], 2);
}

#[test]
fn an_item_that_is_refused_stops_the_import_with_one_line_that_says_where() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.ndjson");
    let good = "{\"id\":\"1\",\"pk\":\"a\"}";
    std::fs::write(&file, format!("{good}\n{{\"pk\":\"no id\"}}\n")).unwrap();
    let fixed = [
        "import",
        "db",
        "c",
        path_text(&file),
        "--endpoint",
        server.endpoint(),
        "--concurrency",
        "1",
    ];
    let error = fail(&[&fixed[..], &["--create", "--partition-key", "/pk"]].concat());
    assert_eq!(error.lines().count(), 1, "{error}");
    let (end_of_good, end_of_bad) = (good.len(), good.len() + 1 + "{\"pk\":\"no id\"}".len());
    assert!(
        error.contains(&format!("1 items are in db/c, up to byte {end_of_good} ")),
        "{error}"
    );
    assert!(
        error.contains(&format!("ends at byte {end_of_bad} ")) && error.contains("400"),
        "{error}"
    );
}

#[test]
fn a_throttled_import_waits_as_told_and_loses_nothing() {
    let server = Server::start(&["--enforce-throughput"]);
    let lines: String = (0..300)
        .map(|n| format!("{{\"id\":\"{n:03}\",\"pk\":\"a\"}}\n"))
        .collect();
    import(&server, &lines);
    let metrics = metrics(&server);
    let throttled =
        |line: &str| line.contains("upsert_item") && line.contains("status=\"429\"") && !line.ends_with(" 0");
    assert!(metrics.lines().any(throttled), "nothing was throttled: {metrics}");
    let items = export(&server, "db", "c");
    assert_eq!(items.len(), 300);
}

fn metrics(server: &Server) -> String {
    let address = server.endpoint().trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn everything_works_over_tls_with_the_servers_authority() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::durable(&data, &[]);
    let file = directory.path().join("items.ndjson");
    std::fs::write(&file, "{\"id\":\"1\",\"pk\":\"a\"}\n").unwrap();
    let endpoint = server.endpoint().replace("http://", "https://");
    let authority = data.join("tls/ca.pem");
    let secure = ["--endpoint", &endpoint, "--ca", path_text(&authority)];
    succeed(
        &[
            &[
                "import",
                "db",
                "c",
                path_text(&file),
                "--create",
                "--partition-key",
                "/pk",
            ],
            &secure[..],
        ]
        .concat(),
    );
    let text = succeed(&[&["export", "db", "c"], &secure[..]].concat());
    assert_eq!(text, "{\"id\":\"1\",\"pk\":\"a\"}\n");
    let other = directory.path().join("other.pem");
    std::fs::write(&other, "").unwrap();
    let error = fail(&["export", "db", "c", "--endpoint", &endpoint, "--ca", path_text(&other)]);
    assert!(error.contains("no certificate"), "{error}");
}

#[test]
fn system_properties_are_kept_when_asked_for() {
    let server = Server::start(&[]);
    import(&server, "{\"id\":\"1\",\"pk\":\"a\"}\n");
    let text = succeed(&[
        "export",
        "db",
        "c",
        "--system-properties",
        "--endpoint",
        server.endpoint(),
    ]);
    let item: Value = serde_json::from_str(&text).unwrap();
    assert!(item["_etag"].is_string() && item["_ts"].is_u64(), "{item}");
    let error = fail(&["export", "db", "missing", "--endpoint", server.endpoint()]);
    assert!(error.contains("404") && error.lines().count() == 1, "{error}");
}

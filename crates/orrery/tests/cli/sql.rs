//! The query shell, as a process and at a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Server, fail, import, orrery, succeed};

const ITEMS: &str =
    "{\"id\":\"1\",\"pk\":\"a\",\"n\":1}\n{\"id\":\"2\",\"pk\":\"b\",\"n\":2.5}\n{\"id\":\"3\",\"pk\":\"b\",\"n\":3}\n";

fn filled() -> Server {
    let server = Server::start(&["--partitions", "2"]);
    import(&server, ITEMS);
    server
}

fn sql(server: &Server, extra: &[&str]) -> String {
    succeed(&[&["sql", "db/c", "--endpoint", server.endpoint()], extra].concat())
}

#[test]
fn a_query_on_the_command_line_prints_its_rows_in_the_wished_format() {
    let server = filled();
    let query = "SELECT c.id, c.n FROM c ORDER BY c.n";
    assert_eq!(
        sql(&server, &["-c", query]),
        "id | n\n---+----\n1  | 1\n2  | 2.5\n3  | 3\n"
    );
    let rows: Value = serde_json::from_str(&sql(&server, &["-c", query, "--format", "json"])).unwrap();
    assert_eq!(
        rows,
        json!([{"id": "1", "n": 1}, {"id": "2", "n": 2.5}, {"id": "3", "n": 3}])
    );
    // Page after page, as one output.
    let lines = sql(&server, &["-c", query, "--format", "ndjson", "--page-size", "1"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert_eq!(
        sql(&server, &["-c", "SELECT * FROM c WHERE false", "--format", "json"]),
        "[]\n"
    );
}

#[test]
fn statements_and_commands_come_from_a_file_or_from_standard_input() {
    let server = filled();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("queries.sql");
    let text = "\\d\n-- all of them;\nSELECT VALUE COUNT(1)\nFROM c;\n\\key [\"b\"]\n\\format ndjson\nSELECT VALUE c.id FROM c ORDER BY c.id";
    std::fs::write(&file, text).unwrap();
    let expected = "db/c\nvalue\n-----\n3\n\"2\"\n\"3\"\n";
    assert_eq!(sql(&server, &["--file", file.to_str().unwrap()]), expected);

    let mut child = orrery(&["sql", "db/c", "--endpoint", server.endpoint()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn what_goes_wrong_is_one_line_and_ends_with_a_failure() {
    let server = filled();
    let endpoint = ["--endpoint", server.endpoint()];
    let failure = |arguments: &[&str]| fail(&[&["sql"], arguments, &endpoint].concat());
    let error = failure(&["db/c", "-c", "SELECT FROM"]);
    assert!(
        error.starts_with("orrery: 400") && error.lines().count() == 1,
        "{error}"
    );
    let error = failure(&["db/nowhere", "-c", "SELECT 1"]);
    assert!(error.starts_with("orrery: 404"), "{error}");
    assert!(failure(&["-c", "SELECT 1"]).contains("\\use"));
    assert!(failure(&["nonsense", "-c", "SELECT 1"]).contains("database/container"));
    assert!(failure(&["db/c", "-c", "\\nonsense"]).contains("\\?"));
}

#[test]
fn at_a_terminal_there_is_a_prompt_pages_and_a_history() {
    let server = filled();
    let directory = tempfile::tempdir().unwrap();
    let command = format!(
        "{} sql --endpoint {} --page-size 2",
        env!("CARGO_BIN_EXE_orrery"),
        server.endpoint()
    );
    // `script` gives the shell a terminal.
    let spawned = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("XDG_STATE_HOME", directory.path())
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: there is no `script` to make a terminal with");
        return;
    };
    let typed = "\\use db/c\nSELECT VALUE c.id\nFROM c ORDER BY c.id;\n\nSELECT nonsense FROM;\n\\q\n";
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["db/c=>", "db/c->", "-- more", "3 rows in 2 pages", "400"] {
        assert!(text.contains(part), "{part} missing in {text}");
    }
    let history = std::fs::read_to_string(directory.path().join("orrery/sql-history")).unwrap();
    assert!(history.contains("ORDER BY c.id"), "{history}");
}

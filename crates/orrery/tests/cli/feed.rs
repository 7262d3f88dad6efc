//! `orrery feed tail`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Server, fail, import, orrery, signal, wait};

struct Tail {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Tail {
    fn start(server: &Server, arguments: &[&str]) -> Tail {
        let all = [&["feed", "tail", "db", "c", "--endpoint", server.endpoint()], arguments].concat();
        let mut command = orrery(&all);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Tail { child, lines }
    }

    fn next(&mut self) -> String {
        self.lines.next().expect("the tail goes on").unwrap()
    }

    /// Interrupts it; gives the token it prints.
    fn stop(mut self) -> String {
        signal("INT", self.child.id());
        assert!(wait(&mut self.child).success());
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        let token = text.lines().find_map(|line| line.strip_prefix("resume with --from "));
        token.expect("a token").to_owned()
    }
}

#[test]
fn a_tail_shows_changes_and_goes_on_where_it_was_interrupted() {
    let server = Server::start(&["--partitions", "2"]);
    import(&server, "{\"id\":\"1\",\"pk\":\"a\"}\n{\"id\":\"2\",\"pk\":\"b\"}\n");
    let mut tail = Tail::start(&server, &["--from", "beginning", "--json"]);
    let mut ids: Vec<String> = (0..2)
        .map(|_| {
            let change: Value = serde_json::from_str(&tail.next()).unwrap();
            change["current"]["id"].as_str().unwrap().to_owned()
        })
        .collect();
    ids.sort();
    assert_eq!(ids, ["1", "2"]);
    let token = tail.stop();
    import(
        &server,
        "{\"id\":\"3\",\"pk\":\"a\",\"n\":7}\n{\"id\":\"4\",\"pk\":\"a\"}\n",
    );
    let mut resumed = Tail::start(&server, &["--from", &token, "--filter", "c.current.n = 7"]);
    let line = resumed.next();
    assert!(line.contains("write") && line.contains("\"id\":\"3\""), "{line}");
    resumed.stop();
}

#[test]
fn a_feed_that_cannot_be_is_an_error_in_one_line() {
    let server = Server::start(&[]);
    let endpoint = ["--endpoint", server.endpoint()];
    let missing = fail(&[&["feed", "tail", "db", "c"], &endpoint[..]].concat());
    assert!(missing.contains("orrery: "), "{missing}");
    let start = "2026-01-31T12:00:00Z";
    let since = fail(&[&["feed", "tail", "db", "c", "--from", start], &endpoint[..]].concat());
    let resume = format!("resume with --from {start}");
    assert!(since.contains(&resume), "what is printed can be given: {since}");
    let unknown = fail(&[&["feed", "tail", "db", "c", "--from", "yesterday"], &endpoint[..]].concat());
    assert!(unknown.contains("yesterday"), "{unknown}");
}

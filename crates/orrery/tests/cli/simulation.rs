//! How regions fail, and how far clients are from them: `orrery region stop`, `clients` and what else is simulated.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::regions::{count_at, endpoint, lines, region, status_at};
use crate::support::{Server, export, fail, import, succeed, until};

const NAMES: &str = "West US,North Europe";
const NORTH: &str = "North Europe";

fn authority(endpoint: &str) -> &str {
    endpoint.trim_start_matches("http://").trim_end_matches('/')
}

/// How long a request without a signature takes that a client of this name sends.
fn round_trip(endpoint: &str, client: &str) -> Duration {
    let authority = authority(endpoint);
    let started = Instant::now();
    let mut stream = TcpStream::connect(authority).unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: {authority}\r\nx-orrery-client: {client}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    started.elapsed()
}

#[test]
fn a_region_that_refuses_takes_no_connection_and_keeps_none() {
    let server = Server::start(&["--regions", NAMES]);
    import(&server, &lines(0..3));
    let north = endpoint(&server, NORTH);
    assert!(until(|| count_at(north) == 3));
    let mut open = TcpStream::connect(authority(north)).unwrap();
    let ask = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", authority(north));
    open.write_all(ask.as_bytes()).unwrap();
    let mut first = [0; 12];
    open.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
    region(&server, &["stop", NORTH, "--mode", "refuse"]);
    let mut rest = Vec::new();
    // Reset or ended: either way there is no more.
    let _ = open.read_to_end(&mut rest);
    assert!(until(|| TcpStream::connect(authority(north)).is_err()));
    assert_eq!(region(&server, &["list"])["regions"][1]["outage"], "refuse");
    import(&server, &lines(3..5));
    region(&server, &["start", NORTH]);
    assert!(until(|| TcpStream::connect(authority(north)).is_ok()));
    assert_eq!(status_at(north), 401);
    assert!(until(|| count_at(north) == 5), "replication went on");
}

#[test]
fn a_slow_region_and_a_far_client_take_their_time() {
    let server = Server::start(&["--regions", NAMES]);
    let north = endpoint(&server, NORTH);
    region(&server, &["stop", NORTH, "--mode", "slow", "--delay-ms", "300"]);
    assert!(round_trip(north, "anybody") >= Duration::from_millis(300));
    let list = region(&server, &["list"]);
    assert_eq!(
        (&list["regions"][1]["outage"], &list["regions"][1]["outageDelayMs"]),
        (&"slow".into(), &300.0.into())
    );
    region(&server, &["start", NORTH]);
    region(
        &server,
        &["clients", NORTH, "--client", "tokyo", "--round-trip-ms", "400"],
    );
    assert!(round_trip(north, "tokyo") >= Duration::from_millis(400));
    assert!(round_trip(north, "paris") < Duration::from_millis(400));
    let refusal = fail(&[
        "region",
        "stop",
        NORTH,
        "--mode",
        "hang",
        "--delay-ms",
        "5",
        "--endpoint",
        server.endpoint(),
    ]);
    assert!(refusal.contains("Only a region that is slow"), "{refusal}");
}

#[test]
fn a_region_that_is_killed_lives_again_with_what_its_disk_has() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &["--regions", NAMES]);
    import(&server, &lines(0..20));
    let north = endpoint(&server, NORTH);
    assert!(until(|| count_at(north) == 20));
    region(&server, &["stop", NORTH, "--mode", "kill"]);
    assert!(until(|| TcpStream::connect(authority(north)).is_err()));
    import(&server, &lines(20..30));
    region(&server, &["start", NORTH]);
    assert!(until(|| TcpStream::connect(authority(north)).is_ok()));
    assert!(until(|| count_at(north) == 30));

    // The region that takes writes, too.
    region(&server, &["stop", "West US", "--mode", "kill"]);
    assert_eq!(count_at(north), 30, "reads go on elsewhere");
    region(&server, &["start", "West US"]);
    import(&server, &lines(30..40));
    assert_eq!(export(&server, "db", "c").len(), 40);
    assert!(server.terminate().0.success());
    let server = Server::durable(directory.path(), &[]);
    assert_eq!(export(&server, "db", "c").len(), 40);
}

#[test]
fn a_region_in_memory_is_not_killed() {
    let server = Server::start(&["--regions", NAMES]);
    let refusal = fail(&[
        "region",
        "stop",
        NORTH,
        "--mode",
        "kill",
        "--endpoint",
        server.endpoint(),
    ]);
    assert!(refusal.contains("in memory only"), "{refusal}");
    assert_eq!(status_at(endpoint(&server, NORTH)), 401);
}

#[test]
fn a_paused_link_is_stepped_and_single_partitions_are_paused() {
    let server = Server::start(&["--regions", NAMES, "--partitions", "1"]);
    import(&server, &lines(0..1));
    let north = endpoint(&server, NORTH);
    assert!(until(|| count_at(north) == 1));
    region(&server, &["pause", "West US", NORTH]);
    for n in 1..4 {
        import(&server, &lines(n..n + 1));
    }
    region(&server, &["step", "West US", NORTH, "-n", "2"]);
    assert!(until(|| count_at(north) == 3));
    region(&server, &["resume", "West US", NORTH]);
    assert!(until(|| count_at(north) == 4));
    let one = ["--database", "db", "--container", "c", "--partition", "0"];
    let paused = region(&server, &[&["pause", "West US", NORTH], &one[..]].concat());
    assert_eq!(paused["links"][0]["pausedPartitions"][0]["container"], "c", "{paused}");
    import(&server, &lines(4..6));
    region(&server, &[&["step", "West US", NORTH], &one[..]].concat());
    assert!(until(|| count_at(north) >= 5));
    region(&server, &[&["resume", "West US", NORTH], &one[..]].concat());
    assert!(until(|| count_at(north) == 6));
}

#[test]
fn a_scenario_is_played_and_judged() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(&directory.path().join("data"), &["--regions", NAMES]);
    let file = directory.path().join("scenario.toml");
    let text = r#"
name = "a region dies and lives again, and the writes move"
seed = 7

[load]
database = "db"
container = "c"
for-ms = 1500
writes-per-second = 40
reads-per-second = 20

[[steps]]
at-ms = 100
do = "link"
from = "West US"
to = "North Europe"
latency-ms = 5
distribution = "pareto"

[[steps]]
at-ms = 300
do = "stop"
region = "North Europe"
mode = "kill"

[[steps]]
at-ms = 700
do = "start"
region = "North Europe"

[[steps]]
at-ms = 3000
do = "failover"
region = "North Europe"

[[assert]]
that = "lost-writes"

[[assert]]
that = "regions-equal"
within-ms = 20000

[[assert]]
that = "writer"
region = "North Europe"
"#;
    std::fs::write(&file, text).unwrap();
    let arguments = [
        "sim",
        "run",
        file.to_str().unwrap(),
        "--json",
        "--endpoint",
        server.endpoint(),
    ];
    let report: serde_json::Value = serde_json::from_str(&succeed(&arguments)).unwrap();
    let asserts = report["asserts"].as_array().unwrap();
    assert!(asserts.iter().all(|verdict| verdict["holds"] == true), "{report}");
    assert!(report["load"]["writesAcknowledged"].as_u64().unwrap() > 0, "{report}");

    // The same demands something else of what there is now.
    let text = "name = \"wrong\"\n[[assert]]\nthat = \"writer\"\nregion = \"West US\"\n";
    std::fs::write(&file, text).unwrap();
    let refusal = fail(&["sim", "run", file.to_str().unwrap(), "--endpoint", server.endpoint()]);
    assert!(refusal.contains("does not hold"), "{refusal}");
    let shown = succeed(&["sim", "show", "--endpoint", server.endpoint()]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["links"][0]["distribution"], "pareto", "{shown}");
}

#[test]
fn a_split_is_led_by_hand() {
    let server = Server::start(&[]);
    import(&server, &lines(0..20));
    let partition = |arguments: &[&str]| {
        let all = [&["partition"], arguments, &["--endpoint", server.endpoint()]].concat();
        succeed(&all).trim().to_owned()
    };
    assert_eq!(partition(&["split", "db", "c", "0", "--manual"]), "begun");
    for phase in ["copied", "sealed", "done"] {
        assert_eq!(partition(&["advance", "db", "c", "0"]), phase);
    }
    assert_eq!(partition(&["list", "db", "c"]).lines().count(), 3);
    assert_eq!(export(&server, "db", "c").len(), 20);
}

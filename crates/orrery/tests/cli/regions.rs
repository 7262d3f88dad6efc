//! An account with several regions: its endpoints, and `orrery region`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::{Server, export, fail, import, run, succeed, until};

const NAMES: &str = "West US,North Europe,Southeast Asia";

/// The endpoint of a region, as the ready line gives it.
pub fn endpoint<'a>(server: &'a Server, name: &str) -> &'a str {
    let regions = server.ready["accounts"][0]["regions"].as_array().unwrap();
    let region = regions.iter().find(|region| region["name"] == name).unwrap();
    region["endpoint"].as_str().unwrap()
}

pub fn region(server: &Server, arguments: &[&str]) -> Value {
    let all = [&["region"], arguments, &["--json", "--endpoint", server.endpoint()]].concat();
    serde_json::from_str(&succeed(&all)).unwrap()
}

/// The region that takes writes.
fn writer(server: &Server) -> String {
    let list = region(server, &["list"]);
    let regions = list["regions"].as_array().unwrap();
    let writer = regions.iter().find(|region| region["role"] == "write").unwrap();
    writer["name"].as_str().unwrap().to_owned()
}

pub fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers
        .map(|n| format!("{{\"id\":\"{n:03}\",\"pk\":\"key-{n}\"}}\n"))
        .collect()
}

pub fn count_at(endpoint: &str) -> usize {
    let output = run(&["export", "db", "c", "--endpoint", endpoint]);
    String::from_utf8(output.stdout).unwrap().lines().count()
}

/// What the endpoint answers to a request without a signature: 401 when it serves.
pub fn status_at(endpoint: &str) -> u16 {
    refusal_at(endpoint, "GET").0
}

/// Status and sub-status of a request without a signature.
fn refusal_at(endpoint: &str, method: &str) -> (u16, Option<u16>) {
    refusal_of(endpoint, authority(endpoint), method)
}

fn authority(endpoint: &str) -> &str {
    endpoint.trim_start_matches("http://").trim_end_matches('/')
}

/// The same for whoever has this name there.
fn refusal_of(endpoint: &str, host: &str, method: &str) -> (u16, Option<u16>) {
    let mut stream = TcpStream::connect(authority(endpoint)).unwrap();
    write!(
        stream,
        "{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let sub_status = answer.lines().find_map(|line| line.strip_prefix("x-ms-substatus: "));
    (
        answer.split(' ').nth(1).unwrap().parse().unwrap(),
        sub_status.map(|text| text.parse().unwrap()),
    )
}

#[test]
fn every_region_has_an_endpoint_and_what_is_written_at_the_global_one_is_read_at_all() {
    let server = Server::start(&["--regions", NAMES]);
    import(&server, &lines(0..50));
    for name in NAMES.split(',') {
        assert_ne!(endpoint(&server, name), server.endpoint());
        assert!(until(|| count_at(endpoint(&server, name)) == 50), "{name}");
    }
    assert_eq!(writer(&server), "West US");
}

#[test]
fn a_failover_moves_the_writes_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &["--regions", NAMES]);
    import(&server, &lines(0..20));
    region(&server, &["failover", "North Europe"]);
    assert_eq!(writer(&server), "North Europe");
    import(&server, &lines(20..40));
    assert_eq!(export(&server, "db", "c").len(), 40);
    let (status, _) = server.terminate();
    assert!(status.success());

    // The account has the regions it has, also when nobody names them.
    let server = Server::durable(directory.path(), &[]);
    assert_eq!(writer(&server), "North Europe");
    assert!(until(|| count_at(endpoint(&server, "West US")) == 40));
}

#[test]
fn a_region_that_is_cut_off_lags_and_is_taken_over_from() {
    let server = Server::start(&["--regions", NAMES]);
    import(&server, &lines(0..10));
    assert!(until(|| count_at(endpoint(&server, "North Europe")) == 10));
    for to in ["North Europe", "Southeast Asia"] {
        region(&server, &["link", "West US", to, "--cut"]);
    }
    import(&server, &lines(10..15));
    let list = region(&server, &["list"]);
    assert!(list["regions"][1]["lagTransactions"].as_u64().unwrap() > 0, "{list}");
    let loss = region(&server, &["offline", "West US"]);
    assert_eq!(loss["lostTransactions"], 5, "{loss}");
    let partitions = loss["partitions"].as_array().unwrap();
    assert!(
        partitions
            .iter()
            .all(|lost| lost["database"] == "db" && lost["container"] == "c"),
        "{loss}"
    );
    assert_eq!(writer(&server), "North Europe");
    let gone = endpoint(&server, "West US");
    assert_eq!(refusal_at(gone, "GET"), (403, Some(1008)), "reads go elsewhere");
    assert_eq!(refusal_at(gone, "PUT"), (403, Some(3)), "so do writes");
    for to in ["North Europe", "Southeast Asia"] {
        region(&server, &["resume", "West US", to]);
    }
    region(&server, &["online", "West US"]);
    assert!(until(|| count_at(endpoint(&server, "West US")) == 10));
    let table = succeed(&["region", "list", "--endpoint", server.endpoint()]);
    assert_eq!(table.lines().count(), 4, "{table}");
}

#[test]
fn regions_answer_to_their_names_at_every_port_as_they_come_stop_and_go() {
    let server = Server::start(&["--regions", "West US,North Europe", "--host-suffix", "orrery.test"]);
    let at = |host: &str| refusal_of(server.endpoint(), &format!("{host}.orrery.test"), "GET");
    const SERVES: (u16, Option<u16>) = (401, Some(0));
    const NOT_HERE: (u16, Option<u16>) = (403, Some(1008));
    assert_eq!(at("orrery"), SERVES);
    assert_eq!(at("orrery-westus"), SERVES);
    assert_eq!(at("orrery-NorthEurope"), SERVES);
    assert_eq!(at("orrery-southeastasia"), NOT_HERE);
    region(&server, &["add", "Southeast Asia"]);
    assert_eq!(at("orrery-southeastasia"), SERVES);
    region(&server, &["stop", "North Europe"]);
    assert_eq!(at("orrery-northeurope").0, 503);
    assert_eq!(at("orrery"), SERVES);
    region(&server, &["start", "North Europe"]);
    region(&server, &["remove", "Southeast Asia", "--drain-ms", "0"]);
    assert!(until(|| at("orrery-southeastasia") == NOT_HERE));
}

#[test]
fn a_region_that_is_stopped_answers_503_until_it_is_started() {
    let server = Server::start(&["--regions", NAMES]);
    import(&server, &lines(0..3));
    let asia = endpoint(&server, "Southeast Asia");
    assert!(until(|| count_at(asia) == 3));
    region(&server, &["stop", "Southeast Asia"]);
    assert_eq!(status_at(asia), 503);
    let list = region(&server, &["list"]);
    assert_eq!(list["regions"][2]["outage"], "unavailable", "{list}");
    region(&server, &["start", "Southeast Asia"]);
    assert_eq!(status_at(asia), 401);
    assert_eq!(count_at(asia), 3);
}

/// One thing about the link between two regions.
fn of_link(answer: &Value, from: &str, to: &str, name: &str) -> Value {
    let links = answer["links"].as_array().unwrap();
    let link = links.iter().find(|link| link["from"] == from && link["to"] == to);
    link.unwrap()[name].clone()
}

#[test]
fn a_link_keeps_what_nobody_changes() {
    let server = Server::start(&["--regions", "A,B"]);
    region(
        &server,
        &["link", "A", "B", "--latency-ms", "80", "--bytes-per-second", "100000"],
    );
    let cut = region(&server, &["link", "A", "B", "--cut"]);
    assert_eq!(of_link(&cut, "A", "B", "cut"), true);
    assert_eq!(of_link(&cut, "A", "B", "latencyMs"), 80.0, "{cut}");
    let resumed = region(&server, &["resume", "A", "B"]);
    assert_eq!(of_link(&resumed, "A", "B", "cut"), false);
    assert_eq!(of_link(&resumed, "A", "B", "bytesPerSecond"), 100_000, "{resumed}");
    let reset = region(&server, &["link", "A", "B", "--reset", "--jitter-ms", "5"]);
    assert_eq!(of_link(&reset, "A", "B", "latencyMs"), 0.0, "{reset}");
    assert_eq!(of_link(&reset, "A", "B", "jitterMs"), 5.0, "{reset}");
}

#[test]
fn the_order_of_failover_is_set() {
    let server = Server::start(&["--regions", NAMES]);
    let list = region(&server, &["priority", "West US", "Southeast Asia", "North Europe"]);
    let names: Vec<&str> = list["regions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|region| region["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["West US", "Southeast Asia", "North Europe"]);
    let refusal = fail(&["region", "priority", "North Europe", "--endpoint", server.endpoint()]);
    assert!(refusal.contains("order of failover"), "{refusal}");
}

#[test]
fn unknown_regions_and_links_are_refused() {
    let server = Server::start(&["--regions", "A,B"]);
    for arguments in [
        &["failover", "Nowhere"][..],
        &["link", "A", "A"],
        &["offline", "Nowhere"],
    ] {
        let all = [&["region"], arguments, &["--endpoint", server.endpoint()]].concat();
        fail(&all);
    }
    let single = Server::start(&[]);
    assert_eq!(writer(&single), "West US");
    let refusal = fail(&["region", "failover", "North Europe", "--endpoint", single.endpoint()]);
    assert!(refusal.contains("no region"), "{refusal}");
}

#[test]
fn a_region_comes_with_an_endpoint_of_its_own_and_goes_without_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &["--regions", "West US"]);
    import(&server, &lines(0..30));
    region(&server, &["add", "North Europe"]);
    let list = region(&server, &["list"]);
    assert_eq!(list["regions"][1]["state"], "online", "{list}");
    let table = succeed(&["region", "list", "--partitions", "--endpoint", server.endpoint()]);
    assert!(table.contains("North Europe  db"), "{table}");
    region(&server, &["failover", "North Europe"]);
    import(&server, &lines(30..40));
    assert!(server.terminate().0.success());

    // It is there again after a restart, whatever was named at the first start.
    let server = Server::durable(directory.path(), &["--regions", "West US"]);
    let north = endpoint(&server, "North Europe").to_owned();
    assert_eq!(writer(&server), "North Europe");
    assert!(until(|| count_at(endpoint(&server, "West US")) == 40));
    region(&server, &["failover", "West US"]);
    region(&server, &["remove", "North Europe"]);
    let authority = north.trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert!(
        until(|| TcpStream::connect(&authority).is_err()),
        "its endpoint is closed"
    );
    assert_eq!(region(&server, &["list"])["regions"].as_array().unwrap().len(), 1);
    region(&server, &["add", "North Europe"]);
    assert_eq!(export(&server, "db", "c").len(), 40);
    let skewed = region(&server, &["clock", "North Europe", "--skew-ms", "-5000"]);
    assert_eq!(skewed["regions"][1]["clockSkewMs"], -5000, "{skewed}");
}

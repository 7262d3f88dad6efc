//! The administration of a server, signed by hand: the test kit has no client for it, and needs only a few lines of one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::scene::{KEY, Scene};

impl Scene {
    /// One request to the administration; its answer.
    pub fn administer(&self, verb: &str, path: &str, body: &Value) -> Value {
        let link = path.split('?').next().unwrap().trim_matches('/');
        let (head, answer) = self.request(verb, path, ("", link), "", &body.to_string());
        assert!(head.starts_with("HTTP/1.1 2"), "{path}: {head} {answer}");
        serde_json::from_str(&answer).unwrap_or(Value::Null)
    }

    /// A signed request about a resource (its type and link), with more header lines; head and body of the answer.
    pub fn request(&self, verb: &str, path: &str, about: (&str, &str), headers: &str, body: &str) -> (String, String) {
        let format =
            format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
        let now: OffsetDateTime = std::time::UNIX_EPOCH
            .elapsed()
            .map(|age| OffsetDateTime::UNIX_EPOCH + age)
            .unwrap();
        let date = now.format(format).unwrap();
        let (kind, link) = about;
        let text = format!("{}\n{kind}\n{link}\n{}\n\n", verb.to_lowercase(), date.to_lowercase());
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
        let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nx-ms-version: 2020-07-15\r\n\
             authorization: type%3Dmaster%26ver%3D1.0%26sig%3D{signature}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{headers}connection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// The partitions of the monitored container, from left to right.
    pub fn partitions(&self) -> Vec<u64> {
        let path = "/_orrery/v1/partitions?database=shop&container=orders";
        let mut found = self.administer("GET", path, &json!({}))["partitions"]
            .as_array()
            .unwrap()
            .clone();
        found.sort_by_key(|partition| partition["minInclusive"].as_str().unwrap().to_owned());
        found
            .iter()
            .map(|partition| partition["partition"].as_u64().unwrap())
            .collect()
    }

    pub fn split(&self, partition: u64) {
        let form = json!({"database": "shop", "container": "orders", "partition": partition});
        self.administer("POST", "/_orrery/v1/partitions/split", &form);
    }

    pub fn merge(&self, one: u64, other: u64) {
        let form = json!({"database": "shop", "container": "orders", "partitions": [one, other]});
        self.administer("POST", "/_orrery/v1/partitions/merge", &form);
    }

    pub fn add_fault(&self, rule: &Value) {
        self.administer("POST", "/_orrery/v1/faults", rule);
    }

    /// Whether every rule has been applied as often as it says.
    pub fn faults_are_used_up(&self) -> bool {
        let answer = self.administer("GET", "/_orrery/v1/faults", &json!({}));
        let rules = answer["faults"].as_array().unwrap();
        rules.iter().all(|rule| rule["nApplied"] == rule["count"])
    }

    pub fn clear_faults(&self) {
        self.administer("DELETE", "/_orrery/v1/faults", &json!({}));
    }
}

impl Scene {
    /// The server's metrics.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port)).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// How many requests of this kind the server has answered, whatever the answer was.
    pub fn requests(&self, operation: &str) -> u64 {
        let label = format!("orrery_requests_total{{operation=\"{operation}\"");
        let metrics = self.metrics();
        let lines = metrics.lines().filter(|line| line.starts_with(&label));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

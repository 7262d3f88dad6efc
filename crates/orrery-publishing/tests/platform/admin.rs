//! The administration of a server, signed by hand: links, faults, regions and metrics.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};

use crate::world::{KEY, REGIONS, Server};

impl Server {
    pub fn administer(&self, verb: &str, path: &str, body: &Value) -> Value {
        administer(self.port, verb, path, body)
    }
}

/// One request to the administration of an endpoint: the account's, or one of a region.
pub fn administer(port: u16, verb: &str, path: &str, body: &Value) -> Value {
    let now = SystemTime::UNIX_EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let date = httpdate::fmt_http_date(now);
    let text = format!(
        "{}\n\n{}\n{}\n\n",
        verb.to_lowercase(),
        path.trim_matches('/'),
        date.to_lowercase()
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap());
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let body = body.to_string();
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nx-ms-version: 2020-07-15\r\n\
             authorization: type%3Dmaster%26ver%3D1.0%26sig%3D{signature}\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(port, &request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    serde_json::from_str(body).unwrap_or(Value::Null)
}

fn exchange(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Server {
    /// Every link between two regions takes this long, one way.
    pub fn slow_links(&self, latency_ms: u64) {
        for from in REGIONS {
            for to in REGIONS.iter().filter(|to| **to != from) {
                let link = json!({"from": from, "to": to, "latencyMs": latency_ms});
                self.administer("PUT", "/_orrery/v1/links", &link);
            }
        }
    }

    /// Nothing gets from one region to the others any more.
    pub fn cut(&self, region: &str, is_cut: bool) {
        for to in REGIONS.iter().filter(|to| **to != region) {
            let link = json!({"from": region, "to": to, "cut": is_cut});
            self.administer("PUT", "/_orrery/v1/links", &link);
        }
    }

    /// A fault of the region that takes the writes.
    pub fn add_fault(&self, rule: &Value) {
        administer(self.region_ports[0], "POST", "/_orrery/v1/faults", rule);
    }

    pub fn clear_faults(&self) {
        administer(self.region_ports[0], "DELETE", "/_orrery/v1/faults", &json!({}));
    }

    /// Requests of an operation so far, over all regions of the account.
    pub fn n_requests(&self, operation: &str) -> u64 {
        let wanted = format!("operation=\"{operation}\"");
        let counts = self
            .region_ports
            .iter()
            .map(|port| n_requests_at(*port, |line| line.contains(&wanted)));
        counts.sum()
    }

    /// Requests of these operations so far that went to other regions of the account than this one.
    pub fn n_requests_outside(&self, region: &str, operations: &[&str]) -> u64 {
        let wanted: Vec<String> = operations.iter().map(|name| format!("operation=\"{name}\"")).collect();
        let others = self
            .region_names
            .iter()
            .zip(&self.region_ports)
            .filter(|(name, _)| *name != region);
        let is_wanted = |line: &str| wanted.iter().any(|wanted| line.contains(wanted));
        others.map(|(_, port)| n_requests_at(*port, is_wanted)).sum()
    }
}

fn n_requests_at(port: u16, is_wanted: impl Fn(&str) -> bool) -> u64 {
    let answer = exchange(
        port,
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    let lines = answer
        .lines()
        .filter(|line| line.starts_with("orrery_requests_total") && is_wanted(line));
    let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64);
    counts.sum()
}

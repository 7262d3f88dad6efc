//! HTTP/1.1 over a socket, just enough of it: signed requests, one at a time, on one connection.

#![allow(dead_code, reason = "each kind of test needs another part of the client")]

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_node::{Clock as _, SystemClock};
use ring::hmac;
use serde_json::Value;

/// The well-known key of emulators.
const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Of a request that creates or replaces.
const UPSERT: &str = "x-ms-documentdb-is-upsert: True\r\n";

pub struct Client {
    stream: BufReader<TcpStream>,
    key: hmac::Key,
    /// The container that requests about items are about, in the database `db`.
    pub container: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// What a request is about, for its path and for its signature.
struct Target<'a> {
    verb: &'a str,
    path: &'a str,
    kind: &'a str,
    link: &'a str,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        // Longer than a server may stand still.
        Client::reach(port, Duration::from_secs(120)).expect("a server that is ready takes connections")
    }

    /// Connects to a server that may be gone, and gives up on an answer after `patience`.
    pub fn reach(port: u16, patience: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Client {
            stream: BufReader::new(stream),
            key: hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY).unwrap()),
            container: "c".to_owned(),
        })
    }

    /// The same for another container than `c`.
    pub fn connect_to(port: u16, container: &str) -> Client {
        Client {
            container: container.to_owned(),
            ..Client::connect(port)
        }
    }

    fn link(&self) -> String {
        format!("dbs/db/colls/{}", self.container)
    }

    /// Asks for something beside the data: partitions, snapshots.
    pub fn administer(&mut self, path: &str, body: &str) -> io::Result<Answer> {
        let link = format!("_orrery/v1/{path}");
        self.post(&format!("/{link}"), "", &link, None, body)
    }

    pub fn get(&mut self, path: &str, kind: &str, link: &str) -> io::Result<Answer> {
        let verb = "GET";
        self.send(&Target { verb, path, kind, link }, "", "")
    }

    pub fn remove(&mut self, kind: &str, link: &str) -> io::Result<Answer> {
        let path = format!("/{link}");
        let verb = "DELETE";
        self.send(
            &Target {
                verb,
                path: &path,
                kind,
                link,
            },
            "",
            "",
        )
    }

    /// A query over all partitions, in one page.
    pub fn query(&mut self, sql: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "POST",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let headers = "content-type: application/query+json\r\nx-ms-documentdb-isquery: True\r\n\
                       x-ms-documentdb-query-enablecrosspartition: True\r\nx-ms-max-item-count: 10000\r\n";
        let body = serde_json::json!({"query": sql, "parameters": []}).to_string();
        self.send(&target, headers, &body)
    }

    /// Operations each with a key of its own, not bound to a physical partition.
    pub fn bulk(&mut self, operations: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "POST",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let mut headers = key_header(Some("any"));
        headers.push_str(
            "x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: False\r\n\
             x-ms-cosmos-batch-continue-on-error: True\r\n",
        );
        self.send(&target, &headers, operations)
    }

    pub fn post(&mut self, path: &str, kind: &str, link: &str, key: Option<&str>, body: &str) -> io::Result<Answer> {
        self.send(
            &Target {
                verb: "POST",
                path,
                kind,
                link,
            },
            &key_header(key),
            body,
        )
    }

    pub fn create(&mut self, key: &str, body: &str) -> io::Result<Answer> {
        let link = self.link();
        self.post(&format!("/{link}/docs"), "docs", &link, Some(key), body)
    }

    /// All operations or none.
    pub fn batch(&mut self, key: &str, operations: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "POST",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let mut headers = key_header(Some(key));
        headers.push_str("x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n");
        self.send(&target, &headers, operations)
    }

    /// Creates or replaces, whatever is there.
    pub fn upsert(&mut self, key: &str, body: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "POST",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let headers = format!("{}{UPSERT}", key_header(Some(key)));
        self.send(&target, &headers, body)
    }

    /// The same for a function of the container.
    pub fn upsert_function(&mut self, body: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "POST",
            path: &format!("/{link}/udfs"),
            kind: "udfs",
            link: &link,
        };
        self.send(&target, UPSERT, body)
    }

    pub fn read_function(&mut self, id: &str) -> io::Result<Answer> {
        let link = format!("{}/udfs/{id}", self.link());
        self.get(&format!("/{link}"), "udfs", &link)
    }

    pub fn replace(&mut self, key: &str, id: &str, body: &str) -> io::Result<Answer> {
        self.on_item("PUT", key, id, "", body)
    }

    /// Only in the place of the version with this etag.
    pub fn replace_over(&mut self, key: &str, id: &str, etag: &str, body: &str) -> io::Result<Answer> {
        self.on_item("PUT", key, id, &format!("if-match: {etag}\r\n"), body)
    }

    pub fn read(&mut self, key: &str, id: &str) -> io::Result<Answer> {
        self.on_item("GET", key, id, "", "")
    }

    /// The same with headers of the caller's choice.
    pub fn read_with(&mut self, key: &str, id: &str, headers: &str) -> io::Result<Answer> {
        self.on_item("GET", key, id, headers, "")
    }

    /// Every item with this key, in one page, with headers of the caller's choice.
    pub fn read_key(&mut self, key: &str, headers: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "GET",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let headers = format!("{}x-ms-max-item-count: 100\r\n{headers}", key_header(Some(key)));
        self.send(&target, &headers, "")
    }

    /// What the server counts under this name.
    pub fn metric(&mut self, name: &str) -> Option<u64> {
        let target = Target {
            verb: "GET",
            path: "/metrics",
            kind: "",
            link: "metrics",
        };
        let text = String::from_utf8(self.send(&target, "", "").ok()?.body).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value?.parse().ok()
    }

    pub fn delete(&mut self, key: &str, id: &str) -> io::Result<Answer> {
        self.on_item("DELETE", key, id, "", "")
    }

    fn on_item(&mut self, verb: &str, key: &str, id: &str, headers: &str, body: &str) -> io::Result<Answer> {
        let link = format!("{}/docs/{id}", self.link());
        let path = format!("/{link}");
        self.send(
            &Target {
                verb,
                path: &path,
                kind: "docs",
                link: &link,
            },
            &format!("{}{headers}", key_header(Some(key))),
            body,
        )
    }

    /// A page of all changes after a token.
    pub fn changes(&mut self, token: &str) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "GET",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let headers = format!(
            "a-im: Full-Fidelity Feed\r\nx-ms-cosmos-changefeed-wire-format-version: 2021-09-15\r\n\
             x-ms-max-item-count: 50\r\nif-none-match: {token}\r\n"
        );
        self.send(&target, &headers, "")
    }

    fn page(&mut self, continuation: Option<&str>) -> io::Result<Answer> {
        let link = self.link();
        let target = Target {
            verb: "GET",
            path: &format!("/{link}/docs"),
            kind: "docs",
            link: &link,
        };
        let continuation = continuation
            .map(|token| format!("x-ms-continuation: {token}\r\n"))
            .unwrap_or_default();
        self.send(&target, &format!("x-ms-max-item-count: 1000\r\n{continuation}"), "")
    }

    fn send(&mut self, target: &Target<'_>, headers: &str, body: &str) -> io::Result<Answer> {
        let Target { verb, path, kind, link } = target;
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(SystemClock::default().now().seconds()));
        let payload = format!("{}\n{kind}\n{link}\n{}\n\n", verb.to_lowercase(), date.to_lowercase());
        let signature = STANDARD.encode(hmac::sign(&self.key, payload.as_bytes()));
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-version: 2018-12-31\r\nx-ms-date: {date}\r\n\
             authorization: type=master&ver=1.0&sig={signature}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.receive()
    }

    fn receive(&mut self) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut headers = HashMap::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Answer {
            status: status.ok_or_else(|| io::Error::other(format!("not HTTP: {status_line}")))?,
            headers,
            body,
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

fn key_header(key: Option<&str>) -> String {
    key.map(|key| format!("x-ms-documentdb-partitionkey: [\"{key}\"]\r\n"))
        .unwrap_or_default()
}

/// Every item of the container: partition key, id and version. Finding one twice is a failure.
pub fn read_all(client: &mut Client) -> HashMap<(String, String), u64> {
    let mut found = HashMap::new();
    let mut continuation: Option<String> = None;
    loop {
        let page = client.page(continuation.as_deref()).unwrap();
        assert_eq!(page.status, 200, "{page:?}");
        for item in page.json()["Documents"].as_array().expect("documents") {
            let text = |name: &str| item[name].as_str().expect("a string").to_owned();
            let (key, id) = (text("pk"), text("id"));
            let before = found.insert((key.clone(), id.clone()), item["n"].as_u64().expect("a number"));
            assert_eq!(before, None, "{key}/{id} is there twice");
        }
        continuation = page.headers.get("x-ms-continuation").cloned();
        if continuation.is_none() {
            return found;
        }
    }
}

//! The publishing platform's services as a client of theirs sees them: one request per connection, JSON both ways.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{PATIENCE, Server, until};

pub const REGIONS: [&str; 3] = ["West US", "North Europe", "Southeast Asia"];

/// A platform on free ports whose links take no time.
pub fn up(extra: &[&str]) -> Server {
    Server::spawn(&[&["up", "--port", "0", "--fast-links"], extra].concat())
}

/// The service of a region.
pub fn url(server: &Server, region: &str) -> String {
    let regions = server.ready["platform"]["regions"].as_array().unwrap();
    let known = regions.iter().find(|known| known["name"] == region).unwrap();
    known["url"].as_str().unwrap().to_owned()
}

/// A request to a service.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// Empty for strangers.
    pub token: &'a str,
    /// Beside those that every request has, each with its line end.
    pub headers: &'a str,
    pub body: Option<&'a Value>,
}

/// Sends a request; gives the status and the body.
pub fn send(url: &str, call: Call<'_>) -> io::Result<(u16, String)> {
    let authority = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(authority)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = call.body.map_or_else(String::new, Value::to_string);
    // Without a token no header: an empty one would be refused.
    let authorization = match call.token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    let request = format!(
        "{} {} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n{authorization}{}content-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        call.method,
        call.path,
        call.headers,
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let parsed = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    });
    parsed.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the answer has no end"))
}

/// A request with an optional token and body that is answered; gives the status and the body.
pub fn ask(url: &str, method: &str, path: &str, token: &str, body: Option<&Value>) -> (u16, String) {
    let call = Call {
        method,
        path,
        token,
        headers: "",
        body,
    };
    send(url, call).unwrap()
}

/// A request that must succeed. Whoever asks often is told to come back later, and does.
pub fn json_of(url: &str, method: &str, path: &str, token: &str, body: Option<&Value>) -> Value {
    const TOO_MANY_REQUESTS: u16 = 429;
    let (mut status, mut text) = (0, String::new());
    until(|| {
        (status, text) = ask(url, method, path, token, body);
        status != TOO_MANY_REQUESTS
    });
    assert!((200..300).contains(&status), "{method} {path}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

pub fn token(url: &str, user: &str) -> String {
    let given = json_of(url, "POST", "/v1/dev/tokens", "", Some(&json!({"user": user})));
    given["token"].as_str().unwrap().to_owned()
}

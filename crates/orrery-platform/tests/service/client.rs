//! A small HTTP client: one connection per request, JSON both ways, and a reader of server-sent events.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

/// A user of one region's service.
#[derive(Clone)]
pub struct Client {
    pub port: u16,
    pub token: Option<String>,
}

impl Client {
    pub fn stranger(port: u16) -> Client {
        Client { port, token: None }
    }

    pub async fn named(port: u16, user: &str) -> Client {
        let reply = Client::stranger(port)
            .post("/v1/dev/tokens", &serde_json::json!({"user": user}))
            .await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
        Client {
            port,
            token: Some(reply.body["token"].as_str().unwrap().to_owned()),
        }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().into_bytes()).await
    }

    pub async fn put(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        self.send("PUT", path, headers, body.to_string().into_bytes()).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], Vec::new()).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
        let answer = self.open(method, path, headers, body).await;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        Reply {
            status,
            headers,
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> http::Response<Incoming> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender
            .send_request(request.body(Full::new(Bytes::from(body))).unwrap())
            .await
            .unwrap()
    }

    /// Whether the stream of notifications is opened to this user now; it is left at once.
    pub async fn is_let_in(&self) -> bool {
        let answer = self.open("GET", "/v1/notifications/stream", &[], Vec::new()).await;
        answer.status() == StatusCode::OK
    }

    /// Opens the stream of notifications, with the token in the address as `EventSource` must.
    pub async fn listen(&self) -> Events {
        let path = format!(
            "/v1/notifications/stream?access_token={}",
            self.token.as_deref().unwrap_or_default()
        );
        let answer = Client::stranger(self.port).open("GET", &path, &[], Vec::new()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let mut events = Events {
            body: answer.into_body(),
            text: String::new(),
        };
        assert_eq!(events.next().await, ": listening");
        events
    }
}

/// Server-sent events as blocks of text.
pub struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    pub async fn next(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return block;
            }
            let frame = self.body.frame().await.unwrap().unwrap();
            self.text
                .push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// Waits until the stream ends, whatever it still brings.
    pub async fn ended(mut self) {
        while let Some(frame) = self.body.frame().await {
            frame.unwrap();
        }
    }

    /// The data of the next event of a kind.
    pub async fn event(&mut self, kind: &str) -> Value {
        loop {
            let block = self.next().await;
            if let Some(data) = block.strip_prefix(&format!("event: {kind}\ndata: ")) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

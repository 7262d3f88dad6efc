//! Every limit and timeout of the server, in one place. Plain data: whoever builds the gateway has validated it.

use std::time::Duration;

use orrery_model::limits::REQUEST_BYTES_MAX;

#[derive(Clone, Debug)]
pub struct Settings {
    /// A new connection must send something within this time.
    pub first_byte_timeout: Duration,
    pub tls_handshake_timeout: Duration,
    /// From the first byte of a request's head to its last.
    pub head_timeout: Duration,
    /// From the head of a request to the last byte of its body.
    pub body_timeout: Duration,
    /// A connection without requests is kept this long. Long, because a client that reuses a connection at the moment it
    /// is closed cannot know whether its write happened.
    pub idle_timeout: Duration,
    /// A client that takes no byte of its answer for this long is gone.
    pub write_timeout: Duration,
    /// How long requests that are under way may take once the server has been told to stop.
    pub shutdown_deadline: Duration,
    pub head_bytes_max: usize,
    pub body_bytes_max: usize,
    /// What the bodies of all requests that are under way may hold together. What is made of a body can be some times its size.
    pub bodies_bytes_max: usize,
    /// How long a body waits for room among the others before its request is sent away.
    pub bodies_wait: Duration,
    pub connections_max: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// Is plain HTTP spoken beside TLS?
    pub plain_http: bool,
    /// Do administration requests that only make sense in development, such as moving the clock, work?
    pub development: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            first_byte_timeout: Duration::from_secs(60),
            tls_handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
            write_timeout: Duration::from_secs(60),
            shutdown_deadline: Duration::from_secs(10),
            head_bytes_max: 64 * 1024,
            body_bytes_max: REQUEST_BYTES_MAX,
            bodies_bytes_max: 64 * 1024 * 1024,
            bodies_wait: Duration::from_secs(5),
            connections_max: 16_384,
            streams_max: 256,
            plain_http: true,
            development: false,
        }
    }
}

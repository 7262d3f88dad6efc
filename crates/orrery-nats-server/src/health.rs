//! Waiting until a server serves, by asking its monitoring port.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A server that is not ready by then will not be.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until the server says that it is healthy: connections are taken, streams and their peers are there.
pub(crate) fn wait(port: u16) -> io::Result<()> {
    let begun = Instant::now();
    while !is_healthy(port) {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no healthy nats-server on port {port}"),
            ));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn is_healthy(port: u16) -> bool {
    ask(port, "/healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200"))
}

fn ask(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

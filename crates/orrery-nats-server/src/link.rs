//! A TCP way to a server on this machine that can be cut and healed.
//!
//! Invariant: while it is cut nothing passes, and whoever is connected is told so at once, as when a route is withdrawn.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A port that leads to another one.
#[derive(Debug)]
pub struct Link {
    port: u16,
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    is_over: bool,
    /// Both ends of every connection that was made.
    ends: Vec<TcpStream>,
}

impl State {
    fn break_all(&mut self) {
        for end in self.ends.drain(..) {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Link {
    /// A free port that leads to `target`.
    pub(crate) fn to(target: u16) -> io::Result<Link> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Mutex::new(State::default()));
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, target, &accepting));
        Ok(Link { port, shared })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Breaks every connection, and every new one, until it is healed.
    pub fn cut(&self) {
        let mut state = lock(&self.shared);
        state.is_cut = true;
        state.break_all();
    }

    /// Lets connections through again.
    pub fn heal(&self) {
        lock(&self.shared).is_cut = false;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.is_over = true;
        state.break_all();
        drop(state);
        // Wakes the listener, so that its thread ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, target: u16, shared: &Mutex<State>) {
    for near in listener.incoming() {
        if lock(shared).is_over {
            return;
        }
        let Ok(near) = near else { continue };
        if lock(shared).is_cut {
            continue;
        }
        let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else {
            continue;
        };
        // A connection that cannot be carried is dropped, and made again by whoever wants it.
        let _ = carry(near, far, shared);
    }
}

fn carry(near: TcpStream, far: TcpStream, shared: &Mutex<State>) -> io::Result<()> {
    let ends = [near.try_clone()?, far.try_clone()?];
    let ways = [(near.try_clone()?, far.try_clone()?), (far, near)];
    let mut state = lock(shared);
    state.ends.extend(ends);
    if state.is_cut {
        state.break_all();
    }
    drop(state);
    for (mut from, mut to) in ways {
        thread::spawn(move || {
            // Ends when either side closes; then so does the other.
            let _ = io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Says back what it is told.
    fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut from, mut to) = (stream.as_ref().unwrap(), stream.as_ref().unwrap());
                let _ = io::copy(&mut from, &mut to);
            }
        });
        port
    }

    fn says_back(stream: &mut TcpStream) -> bool {
        let mut answer = [0; 2];
        stream.write_all(b"hi").is_ok() && stream.read_exact(&mut answer).is_ok() && &answer == b"hi"
    }

    #[test]
    fn a_link_that_is_cut_carries_nothing_until_it_is_healed() {
        let link = Link::to(echo()).unwrap();
        let connect = || TcpStream::connect(("127.0.0.1", link.port())).unwrap();
        let mut stream = connect();
        assert!(says_back(&mut stream));
        link.cut();
        assert!(!says_back(&mut stream));
        assert!(!says_back(&mut connect()));
        link.heal();
        assert!(says_back(&mut connect()));
    }
}

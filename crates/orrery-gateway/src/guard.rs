//! A byte stream that does not wait for ever: the defence against clients that send or take their bytes one by one.
//!
//! The guard sits between the socket (or its TLS layer) and the HTTP protocol. It costs a timer only where one is needed:
//! an ordinary request, whose head comes in one read, sets none. HTTP's own state is told to it through [`Traffic`].

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::head_refusal;

/// After a refused body: how much of it is thrown away, and for how long, so that the client gets to read the refusal.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// What the requests of one connection tell its guard.
#[derive(Debug, Default)]
pub struct Traffic {
    n_active: AtomicUsize,
    n_begun: AtomicUsize,
    body_refused: AtomicBool,
}

impl Traffic {
    /// A request has begun; it ends when the returned value is dropped.
    pub fn request(self: &Arc<Self>) -> InRequest {
        self.n_active.fetch_add(1, Ordering::Relaxed);
        self.n_begun.fetch_add(1, Ordering::Relaxed);
        InRequest(Arc::clone(self))
    }

    /// An answer was given although the body has not been read.
    pub fn refuse_body(&self) {
        self.body_refused.store(true, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.n_active.load(Ordering::Relaxed) == 0
    }
}

/// A request under way.
#[derive(Debug)]
pub struct InRequest(Arc<Traffic>);

impl Drop for InRequest {
    fn drop(&mut self) {
        self.0.n_active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time limits of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// `None` on HTTP/2, where bytes between requests are ordinary: pings, windows, settings.
    pub head: Option<Duration>,
    pub idle: Duration,
    pub write: Duration,
}

#[derive(Debug)]
pub struct Guard<S> {
    stream: S,
    /// Words the refusals that HTTP makes by itself.
    refuser: Arc<dyn RefuseHead>,
    /// An answer that takes the place of one HTTP is writing.
    replacement: Option<Replacement>,
    /// The last write took only a part of what it was given.
    is_mid_answer: bool,
    traffic: Arc<Traffic>,
    patience: Patience,
    /// The head that is being read, if one is.
    head: Option<Head>,
    /// When the client last sent something.
    active_at: Instant,
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

/// Gives an answer to a head that was refused with this status.
pub trait RefuseHead: Send + Sync + fmt::Debug {
    fn refuse_head(&self, status: u16) -> Bytes;
}

#[derive(Debug)]
struct Replacement {
    rest: Bytes,
    /// Bytes of the answer that is replaced.
    n_replaced: usize,
}

/// The beginning of a request.
#[derive(Clone, Copy, Debug)]
struct Head {
    since: Instant,
    /// Requests that had begun before. Once there are more, the head has been read.
    n_begun: usize,
}

#[derive(Debug)]
struct Linger {
    n_bytes: usize,
    timer: Pin<Box<Sleep>>,
}

impl<S> Guard<S> {
    pub fn new(stream: S, traffic: Arc<Traffic>, patience: Patience, refuser: Arc<dyn RefuseHead>) -> Guard<S> {
        let active_at = Instant::now();
        Guard {
            stream,
            refuser,
            replacement: None,
            is_mid_answer: false,
            traffic,
            patience,
            head: None,
            active_at,
            read_timer: None,
            write_timer: None,
            linger: None,
        }
    }

    /// When a read that is waiting now has waited too long. Requests under way have limits of their own.
    fn read_deadline(&self) -> Option<Instant> {
        if !self.traffic.is_idle() {
            return None;
        }
        match (self.unfinished_head(), self.patience.head) {
            (Some(head), Some(limit)) => Some(head.since + limit),
            _ => Some(self.active_at + self.patience.idle),
        }
    }

    fn unfinished_head(&self) -> Option<Head> {
        let n_begun = self.traffic.n_begun.load(Ordering::Relaxed);
        self.head.filter(|head| head.n_begun == n_begun)
    }

    /// Fails when the read that is waiting has waited too long. There is one timer per connection, and requests do not
    /// move it: when it fires early, it is set anew. Only a head that came in part makes it fire sooner.
    fn poll_read_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let deadline = self
                .read_deadline()
                .unwrap_or_else(|| Instant::now() + self.patience.idle);
            let hurry = self.patience.head.is_some() && self.unfinished_head().is_some();
            let timer = self
                .read_timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if hurry && timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            timer.as_mut().reset(deadline);
        }
    }

    fn note_bytes_read(&mut self) {
        self.active_at = Instant::now();
        if self.traffic.is_idle() && self.unfinished_head().is_none() {
            let n_begun = self.traffic.n_begun.load(Ordering::Relaxed);
            self.head = Some(Head {
                since: self.active_at,
                n_begun,
            });
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(result) => {
                if buffer.filled().len() > before {
                    self.note_bytes_read();
                }
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_read_deadline(cx).map(Err),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger.get_or_insert_with(|| Linger {
            n_bytes: 0,
            timer: Box::pin(tokio::time::sleep(LINGER_TIMEOUT)),
        });
        let mut scratch = [0; 8 * 1024];
        while linger.n_bytes < LINGER_BYTES_MAX && linger.timer.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => linger.n_bytes += buffer.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(())
    }

    /// Is HTTP writing, or about to write, a refusal of its own? Then nothing of it goes out.
    fn replaces(&mut self, first: &[u8], n_bytes: usize) -> bool {
        if self.replacement.is_some() {
            return true;
        }
        // Only between requests, and never in the middle of an answer, whose content might look like the start of one.
        let may_refuse = self.patience.head.is_some() && self.traffic.is_idle() && !self.is_mid_answer;
        let Some(status) = head_refusal::status_of(first).filter(|_| may_refuse) else {
            return false;
        };
        self.traffic.refuse_body();
        self.replacement = Some(Replacement {
            rest: self.refuser.refuse_head(status),
            n_replaced: n_bytes,
        });
        true
    }

    fn note_written(&mut self, written: &Poll<io::Result<usize>>, n_bytes: usize) {
        if let Poll::Ready(Ok(n_written)) = written {
            self.is_mid_answer = *n_written < n_bytes;
        }
    }

    fn poll_write_replacement(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while let Some(replacement) = self
            .replacement
            .as_mut()
            .filter(|replacement| !replacement.rest.is_empty())
        {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &replacement.rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n_written => replacement.rest.advance(n_written),
            }
        }
        let n_replaced = self.replacement.take().map_or(0, |replacement| replacement.n_replaced);
        Poll::Ready(Ok(n_replaced))
    }

    fn guard_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(result) => {
                self.write_timer = None;
                Poll::Ready(result)
            }
            Poll::Pending => {
                let limit = self.patience.write;
                let timer = self
                    .write_timer
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self.replaces(bytes, bytes.len()) {
            true => self.poll_write_replacement(cx),
            false => Pin::new(&mut self.stream).poll_write(cx, bytes),
        };
        self.note_written(&written, bytes.len());
        self.guard_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n_bytes = slices.iter().map(|slice| slice.len()).sum();
        let written = match self.replaces(slices.first().map_or(&[], |first| &**first), n_bytes) {
            true => self.poll_write_replacement(cx),
            false => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
        };
        self.note_written(&written, n_bytes);
        self.guard_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.guard_write(cx, flushed)
    }

    /// Closes our side. If a body was refused, what is left of it is read first: closing a socket with unread bytes makes
    /// the kernel reset the connection, and the client would lose the answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.traffic.body_refused.load(Ordering::Relaxed) {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

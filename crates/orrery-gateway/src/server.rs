//! The front door: listeners, the connections they accept, and the order in which everything stops.
//!
//! Every task is tracked. Stopping means: no new connection, the requests under way finish, and what has not finished at
//! the deadline is dropped. [`Gateway::serve`] returns only when no task of it is left.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::connection::{self, Answerers};
use crate::names::Directory;
use crate::pipeline::Pipeline;
use crate::tasks::Tasks;

/// Connections the kernel may hold for us before they are accepted.
const BACKLOG: u32 = 4096;
/// How long to wait after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long dropped connections may take to unwind.
const ABORT_GRACE: Duration = Duration::from_secs(1);
/// Attempts to find one port that is free on both loopback addresses.
const PORT_ATTEMPTS: usize = 16;

/// An HTTP server for one account.
pub struct Gateway {
    pipeline: Arc<Pipeline>,
    tls: Option<TlsAcceptor>,
    names: Option<Arc<Directory>>,
}

impl Gateway {
    /// Without TLS only plain HTTP is spoken.
    pub fn new(pipeline: Arc<Pipeline>, tls: Option<TlsAcceptor>) -> Gateway {
        Gateway {
            pipeline,
            tls,
            names: None,
        }
    }

    /// Requests that call one of these names are answered by whoever has it.
    #[must_use]
    pub fn with_names(self, names: Option<Arc<Directory>>) -> Gateway {
        Gateway { names, ..self }
    }

    /// Serves these listeners until `shutdown` completes, then finishes what is under way.
    pub async fn serve(&self, listeners: Vec<TcpListener>, shutdown: impl Future<Output = ()>) {
        let tasks = Tasks::default();
        let slots = Arc::new(Semaphore::new(self.pipeline.settings().connections_max));
        for listener in listeners {
            let door = Door {
                pipeline: Arc::clone(&self.pipeline),
                tls: self.tls.clone(),
                names: self.names.clone(),
                tasks: tasks.clone(),
                slots: Arc::clone(&slots),
            };
            tasks.spawn(door.accept(listener));
        }
        shutdown.await;
        self.pipeline.stop();
        tasks.stopping.cancel();
        tasks.tracker.close();
        if tokio::time::timeout(self.pipeline.settings().shutdown_deadline, tasks.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                tasks = tasks.tracker.len(),
                "requests still under way at the deadline were dropped"
            );
            tasks.aborting.cancel();
            // Dropping a task needs no waiting for others; the limit only guards against a blocked runtime.
            let _ = tokio::time::timeout(ABORT_GRACE, tasks.tracker.wait()).await;
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// One listener and what its connections need.
struct Door {
    pipeline: Arc<Pipeline>,
    tls: Option<TlsAcceptor>,
    names: Option<Arc<Directory>>,
    tasks: Tasks,
    slots: Arc<Semaphore>,
}

impl Door {
    /// Accepts until the server stops. While connections are to be refused there is no listener, and nothing that it has accepted.
    async fn accept(self, mut listener: TcpListener) {
        let stopping = self.tasks.stopping.clone();
        loop {
            let tasks = Tasks {
                aborting: self.tasks.aborting.child_token(),
                ..self.tasks.clone()
            };
            tokio::select! {
                // Whatever has been accepted is a task of its own.
                () = self.accept_from(&listener, &tasks) => {}
                () = self.pipeline.door_is(true) => {}
                () = stopping.cancelled() => return,
            }
            tasks.aborting.cancel();
            tokio::select! {
                // A port that is not listened at again goes back to the system.
                again = self.keep_shut(listener) => match again {
                    Ok(again) => listener = again,
                    Err(error) => return tracing::error!(%error, "an endpoint cannot be opened again"),
                },
                () = stopping.cancelled() => return,
            }
        }
    }

    /// Refuses connections until they are to be taken again. The port stays ours: it is bound, and nobody listens.
    async fn keep_shut(&self, listener: TcpListener) -> io::Result<TcpListener> {
        let address = listener.local_addr()?;
        drop(listener);
        let bound = loop {
            match reserve(address) {
                Ok(bound) => break bound,
                // Somebody was given it in between, and gives it back.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(ACCEPT_PAUSE).await,
                Err(error) => return Err(error),
            }
        };
        self.pipeline.door_is(false).await;
        bound.listen(BACKLOG)
    }

    async fn accept_from(&self, listener: &TcpListener, tasks: &Tasks) {
        let mut exhausted = false;
        loop {
            // Cancel-safe: a connection that was not accepted stays with the kernel, a permit goes back.
            match self.next(listener).await {
                Ok((stream, address, slot)) => {
                    exhausted = false;
                    self.admit(stream, address, slot, tasks.clone());
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    // Once, not with every attempt.
                    if !std::mem::replace(&mut exhausted, true) {
                        tracing::warn!(%error, "cannot accept connections for the moment");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection once there is room for it; beyond that, clients wait in the kernel's queue.
    async fn next(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let slot = Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (stream, address) = listener.accept().await?;
        Ok((stream, address, slot))
    }

    fn admit(&self, stream: TcpStream, address: SocketAddr, slot: OwnedSemaphorePermit, tasks: Tasks) {
        let answerers = Answerers {
            listener: Arc::clone(&self.pipeline),
            names: self.names.clone(),
        };
        let tls = self.tls.clone();
        self.tasks.spawn(async move {
            let _slot = slot;
            let pipeline = Arc::clone(&answerers.listener);
            let _counted = pipeline.metrics().connection();
            connection::serve(stream, address, answerers, tls, tasks).await;
        });
    }
}

/// Did the client leave between connecting and being accepted?
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Binds one address.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    reserve(address)?.listen(BACKLOG)
}

/// Makes an address ours without listening.
fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Binds both loopback addresses to one port; 0 picks a port that is free on both. Without IPv6 the first is enough.
pub fn bind_loopback(port: u16) -> io::Result<Vec<TcpListener>> {
    let mut last_error = None;
    for _ in 0..if port == 0 { PORT_ATTEMPTS } else { 1 } {
        let v4 = bind((Ipv4Addr::LOCALHOST, port).into())?;
        match bind((Ipv6Addr::LOCALHOST, v4.local_addr()?.port()).into()) {
            Ok(v6) => return Ok(vec![v4, v6]),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last_error = Some(error),
            Err(_) => return Ok(vec![v4]),
        }
    }
    Err(last_error.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

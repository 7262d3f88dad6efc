//! PostgreSQL 15 with the same documents: `jsonb`, a primary key, a GIN index, synchronous commit, nothing else changed.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, NoTls, Statement};

use crate::documents::{Random, document, id, partition_key};
use crate::load::{Until, Worker, drive};
use crate::process::{signal, text};
use crate::usage;

/// Where Debian puts it.
const BINARIES: &str = "/usr/lib/postgresql/15/bin";
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A server of its own in a temporary directory.
#[derive(Debug)]
pub struct Postgres {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Postgres {
    /// `None` when it is not installed.
    pub async fn start(parent: &Path) -> Result<Option<Postgres>> {
        let binaries = PathBuf::from(BINARIES);
        if !binaries.join("postgres").exists() {
            return Ok(None);
        }
        let user = unprivileged_user()?;
        let directory = tempfile::tempdir_in(parent)?;
        if let Some((uid, gid)) = user {
            chown(directory.path(), Some(uid), Some(gid))?;
        }
        let made = command(&binaries.join("initdb"), user)
            .args([
                "--auth=trust",
                "--username=bench",
                "--encoding=UTF8",
                "--locale=C",
                "--pgdata",
            ])
            .arg(directory.path())
            .stdout(Stdio::null())
            .current_dir(directory.path())
            .status()?;
        ensure!(made.success(), "initdb failed: {made}");
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = command(&binaries.join("postgres"), user)
            .args(["-D", text(directory.path())?, "-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args(["-c", "logging_collector=off", "-c", "log_min_messages=fatal"])
            .current_dir(directory.path())
            .spawn()?;
        let postgres = Postgres {
            child,
            port,
            _directory: directory,
        };
        postgres.create_table().await?;
        Ok(Some(postgres))
    }

    async fn create_table(&self) -> Result<()> {
        let since = Instant::now();
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(error) if since.elapsed() > READY_TIMEOUT => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let table = "CREATE TABLE items (pk text, id text, body jsonb NOT NULL, PRIMARY KEY (pk, id));
                     CREATE INDEX items_body ON items USING gin (body);";
        client.batch_execute(table).await.context("cannot create the table")
    }

    async fn connect(&self) -> Result<Client> {
        let settings = format!("host=127.0.0.1 port={} user=bench dbname=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
        // It ends when the client is dropped.
        tokio::spawn(connection);
        Ok(client)
    }

    /// CPU time of the server and all its processes.
    pub fn cpu(&self) -> Result<Duration> {
        usage::cpu_with_children(self.child.id())
    }

    /// Stores the first `n_items` documents and settles, as an installation at rest would have.
    pub async fn fill(&self, n_items: u64, in_flight: usize) -> Result<()> {
        let mut writers = self.writers(0, in_flight).await?;
        drive(&mut writers, Until::Requests(n_items)).await?;
        let client = self.connect().await?;
        // Apart, because statements sent together are one transaction, and VACUUM refuses to be in one.
        for statement in ["VACUUM ANALYZE items", "CHECKPOINT"] {
            client.batch_execute(statement).await.context("cannot settle")?;
        }
        Ok(())
    }

    pub async fn readers(&self, n_items: u64, n: usize) -> Result<Vec<Reader>> {
        let mut readers = Vec::new();
        for _ in 0..n {
            let client = self.connect().await?;
            let statement = client.prepare("SELECT body FROM items WHERE pk=$1 AND id=$2").await?;
            readers.push(Reader {
                client,
                statement,
                n_items,
            });
        }
        Ok(readers)
    }

    /// Writers of new documents, numbered from `first` on.
    pub async fn writers(&self, first: u64, n: usize) -> Result<Vec<Writer>> {
        let next = Arc::new(AtomicU64::new(first));
        let mut writers = Vec::new();
        for _ in 0..n {
            let client = self.connect().await?;
            let insert = "INSERT INTO items (pk, id, body) VALUES ($1, $2, $3::text::jsonb)";
            let statement = client.prepare(insert).await?;
            writers.push(Writer {
                client,
                statement,
                next: Arc::clone(&next),
            });
        }
        Ok(writers)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGINT is its fast shutdown; nothing is lost by a failure, the directory goes anyway.
        let _ = signal(&self.child, Signal::INT);
        let _ = self.child.wait();
    }
}

fn command(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// PostgreSQL refuses to run as root; then it runs as the user its package made.
fn unprivileged_user() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let ask = |flag: &str| -> Result<u32> {
        let output = Command::new("id").args([flag, "postgres"]).output()?;
        String::from_utf8(output.stdout)?
            .trim()
            .parse()
            .context("there is no user postgres")
    };
    Ok(Some((ask("-u")?, ask("-g")?)))
}

#[derive(Debug)]
pub struct Reader {
    client: Client,
    statement: Statement,
    n_items: u64,
}

impl Worker for Reader {
    async fn step(&mut self, random: &mut Random) -> Result<()> {
        let number = random.below(self.n_items);
        let row = self
            .client
            .query_one(&self.statement, &[&partition_key(number), &id(number)])
            .await?;
        let Raw(body) = row.try_get(0)?;
        ensure!(!body.is_empty(), "an empty document");
        Ok(())
    }
}

#[derive(Debug)]
pub struct Writer {
    client: Client,
    statement: Statement,
    next: Arc<AtomicU64>,
}

impl Worker for Writer {
    async fn step(&mut self, _: &mut Random) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&partition_key(number), &id(number), &document(number, 0)];
        let n_rows = self.client.execute(&self.statement, &values).await?;
        ensure!(n_rows == 1, "{n_rows} rows were inserted");
        Ok(())
    }
}

/// A value as it came, not parsed: the client only looks that it is there.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

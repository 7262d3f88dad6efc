//! Processes of a test: servers, hosts and programs, which end with it.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use azure_data_cosmos::clients::CosmosClient;
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, CosmosClientBuilder, CosmosRuntime, RoutingStrategy};
use orrery_nats_server::Nodes;
pub use orrery_processor::testkit::{EMULATOR_KEY as KEY, binary as orrery};
use orrery_processor::testkit::{Emulator, port_of};
use serde_json::Value;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of a process that a failed test shows.
const SHOWN_LINES: usize = 30;

/// A process that ends with the test, and that a test which fails shows the last words of.
pub struct Process {
    child: Child,
    /// What it is, for people.
    what: String,
    /// What it printed, line by line.
    pub output: Lines,
    /// What it wrote to its standard error: panics, if anything.
    complaints: Lines,
}

type Lines = Arc<Mutex<Vec<String>>>;

/// The lines that a pipe brings, as they come.
fn collected(pipe: impl std::io::Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in std::io::BufReader::new(pipe).lines().map_while(Result::ok) {
            kept.lock().unwrap().push(line);
        }
    });
    lines
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let instance = command.get_envs().find(|(name, _)| *name == "INSTANCE");
        Process {
            what: format!(
                "{:?} {:?}",
                command.get_program(),
                instance.and_then(|(_, value)| value)
            ),
            output: collected(child.stdout.take().unwrap()),
            complaints: collected(child.stderr.take().unwrap()),
            child,
        }
    }

    pub fn printed(&self, text: &str) -> bool {
        self.output.lock().unwrap().iter().any(|line| line.contains(text))
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How many lines hold this text.
    pub fn n_printed(&self, text: &str) -> usize {
        let output = self.output.lock().unwrap();
        output.iter().filter(|line| line.contains(text)).count()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn show_last_words(&mut self) {
        eprintln!("{}, {:?}", self.what, self.child.try_wait());
        for lines in [&self.output, &self.complaints] {
            let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
                eprintln!("  {line}");
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_last_words();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Server {
    pub port: u16,
    pub endpoint: String,
    _running: Running,
}

/// What ends with a server.
enum Running {
    Emulator(#[expect(dead_code, reason = "it is held")] Emulator),
    Cluster(#[expect(dead_code, reason = "it is held")] Nodes),
}

impl Server {
    /// An emulator in memory, or a cluster where one is wanted.
    pub fn start(n_partitions: usize) -> Server {
        match Nodes::wanted() {
            true => Server::cluster(n_partitions),
            false => Server::emulator(n_partitions, &[]),
        }
    }

    /// An emulator in memory, with more flags.
    pub fn emulator(n_partitions: usize, flags: &[&str]) -> Server {
        let partitions = n_partitions.to_string();
        let flags = [&["--partitions", &partitions], flags].concat();
        let emulator = Emulator::start(&flags).unwrap();
        let endpoint = emulator.endpoint().to_owned();
        Server::at(endpoint, Running::Emulator(emulator))
    }

    /// The node of a cluster that does not coordinate.
    fn cluster(n_partitions: usize) -> Server {
        let flags = ["--partitions", &n_partitions.to_string()];
        let nodes = Nodes::start(&Nodes::ground().unwrap(), &orrery().unwrap(), &flags).unwrap();
        let ready: Value = serde_json::from_str(nodes.ready_line()).unwrap();
        let endpoint = ready["accounts"][0]["endpoint"].as_str().unwrap().to_owned();
        Server::at(endpoint, Running::Cluster(nodes))
    }

    fn at(endpoint: String, running: Running) -> Server {
        Server {
            port: port_of(&endpoint).unwrap(),
            endpoint,
            _running: running,
        }
    }

    pub async fn client(&self) -> CosmosClient {
        self.connected(CosmosClient::builder(), KEY).await
    }

    /// A client that knows nothing of what others have found: within one runtime of the SDK a container stays the one, under
    /// the key, that was found first.
    pub async fn client_apart(&self, key: &str) -> CosmosClient {
        let runtime = CosmosRuntime::builder().build().await.unwrap();
        self.connected(CosmosClient::builder().with_runtime(runtime), key).await
    }

    async fn connected(&self, builder: CosmosClientBuilder, key: &str) -> CosmosClient {
        let account = AccountReference::with_authentication_key(self.endpoint.parse().unwrap(), key.to_owned());
        let routing = RoutingStrategy::ProximityTo(Region::from("West US"));
        builder.build(account, routing).await.unwrap()
    }
}

/// The folder that holds the binaries of this build.
pub fn beside() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until something is so that has to be asked for.
pub async fn until_told(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

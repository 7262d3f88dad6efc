//! A file system that really is full: a small one in memory, mounted where only the server sees it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::{make_container, port_of};

const MEBIBYTE: u64 = 1 << 20;
/// Free space the server leaves to others.
const RESERVE_BYTES: u64 = 256 * MEBIBYTE;
/// What the file system holds besides the reserve: something in the way, and room for data.
const BALLAST_BYTES: u64 = 40 * MEBIBYTE;
const ROOM_BYTES: u64 = 48 * MEBIBYTE;
/// What may be on its way to the disk when the server notices: a flush and a group.
const SLACK_BYTES: u64 = 32 * MEBIBYTE;

/// Mounts, fills, serves; frees what it filled when a line comes in.
const SCRIPT: &str = r#"
mount -t tmpfs -o size="$1" tmpfs "$2" || exit 1
head -c "$3" /dev/zero > "$2/ballast" || exit 1
"$4" emulator --port 0 --data-dir "$2/data" &
read _
rm "$2/ballast"
wait
"#;

struct SmallDisk {
    shell: Child,
    stdin: ChildStdin,
    pid: u64,
    port: u16,
}

impl SmallDisk {
    fn start(directory: &Path) -> SmallDisk {
        let size = (RESERVE_BYTES + BALLAST_BYTES + ROOM_BYTES).to_string();
        let mut command = in_namespace(SCRIPT);
        command
            .args([&size])
            .arg(directory)
            .args([&BALLAST_BYTES.to_string(), env!("CARGO_BIN_EXE_orrery")])
            .env("ORRERY_LOG", "error")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let stdin = shell.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        SmallDisk {
            shell,
            stdin,
            pid: ready["pid"].as_u64().expect("a process id"),
            port: port_of(&ready),
        }
    }

    fn free_space(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        let _ = self.stdin.write_all(b"\n");
        let _ = self.shell.wait();
    }
}

/// A script in a user and mount namespace of its own; its arguments follow.
fn in_namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
        command.env_remove(name);
    }
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command
}

fn can_mount(directory: &Path) -> bool {
    let tried = in_namespace("mount -t tmpfs tmpfs \"$1\"").arg(directory).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn on_a_full_disk_writes_are_refused_reads_go_on_and_freed_space_is_used_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    if !can_mount(directory.path()) {
        eprintln!("skipped: this machine lets nobody mount a small file system (unshare --user --mount, tmpfs)");
        return;
    }
    let mut disk = SmallDisk::start(directory.path());
    let mut client = Client::connect(disk.port);
    make_container(&mut client);

    let refused = fill(&mut client);
    let answer = &refused.answer;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str().unwrap()),
        (503, "ServiceUnavailable")
    );
    assert!(refused.n_taken > 10, "{} items were taken", refused.n_taken);
    let stored = client.metric("orrery_store_bytes").expect("a size");
    assert!(
        stored < ROOM_BYTES + SLACK_BYTES,
        "{stored} bytes reach into the reserve"
    );
    for n in [0, refused.n_taken / 2, refused.n_taken - 1] {
        assert_eq!(client.read("a", &n.to_string()).unwrap().status, 200, "item {n}");
    }

    disk.free_space();
    let freed_at = Instant::now();
    let mut status = 0;
    while status != 201 {
        assert!(
            freed_at.elapsed() < Duration::from_secs(30),
            "still refused with {status}"
        );
        status = client.create("a", &item("after")).unwrap().status;
        assert!(matches!(status, 201 | 503), "{status}");
    }
    assert_eq!(client.metric("orrery_store_writable"), Some(1));
    assert_eq!(client.read("a", "after").unwrap().status, 200);
}

struct Refused {
    n_taken: u64,
    answer: crate::client::Answer,
}

/// Creates items until one is refused and the store says of itself that it takes no more. Upkeep may give space back in between,
/// which is then used as well.
fn fill(client: &mut Client) -> Refused {
    let mut n_taken = 0;
    for _ in 0..10_000 {
        let answer = client.create("a", &item(&n_taken.to_string())).unwrap();
        if answer.status == 201 {
            n_taken += 1;
        } else if client.metric("orrery_store_writable") == Some(0) {
            return Refused { n_taken, answer };
        }
    }
    panic!("the disk never was full");
}

/// An item that cannot be compressed to nothing.
fn item(id: &str) -> String {
    let mut text = String::with_capacity(128 << 10);
    let mut state = id.len() as u64 + 1;
    while text.len() < 128 << 10 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{state:x}"));
    }
    format!("{{\"id\":\"{id}\",\"pk\":\"a\",\"text\":\"{text}\"}}")
}

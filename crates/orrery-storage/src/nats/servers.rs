//! Are these servers fit to keep logs? Asked once, before anything is stored on them.
//!
//! [`check`] is a pure function of what a server reports. Version, JetStream and payload are in the greeting every client
//! gets. Whether a server syncs before it acknowledges is not: no client interface tells it, only the monitoring port
//! (`GET /varz`, field `jetstream.config.sync_always`), so outside of development that port of every server must be named.

use std::time::Duration;

use orrery_partition::storage::{Result, StorageError};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Older servers lose acknowledged messages when their peers change while a link is cut.
const VERSION_MIN: [u64; 3] = [2, 12, 3];
/// An item of 2 MB, or a batch of them, with what surrounds it.
const MAX_PAYLOAD_BYTES_MIN: usize = 8 << 20;
/// A server that does not answer by then is not there.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a server has to say about itself is far shorter.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// How much a server is trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// What it acknowledges must survive a power cut.
    Production,
    /// A development server may lose what it has not synced.
    Development,
}

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    pub name: String,
    pub version: String,
    pub jetstream: bool,
    pub max_payload_bytes: usize,
    /// Whether it syncs before it acknowledges; `None` when it was asked where that is not told.
    pub sync_always: Option<bool>,
}

impl Reported {
    /// What the server that a client is connected to told it.
    pub fn greeting(client: &async_nats::Client) -> Reported {
        let info = client.server_info();
        Reported {
            name: info.server_name,
            version: info.version,
            jetstream: info.jetstream,
            max_payload_bytes: info.max_payload,
            sync_always: None,
        }
    }

    /// What a monitoring port answers to `/varz`.
    fn read(answer: &str) -> Option<Reported> {
        let answer: Value = serde_json::from_str(answer).ok()?;
        let text = |field: &str| Some(answer.get(field)?.as_str()?.to_owned());
        let config = answer.get("jetstream").and_then(|jetstream| jetstream.get("config"));
        Some(Reported {
            name: text("server_name")?,
            version: text("version")?,
            jetstream: config.is_some(),
            max_payload_bytes: usize::try_from(answer.get("max_payload")?.as_u64()?).ok()?,
            sync_always: Some(config.and_then(|config| config.get("sync_always")) == Some(&Value::Bool(true))),
        })
    }
}

/// What is wrong with a server, in one sentence.
pub fn check(server: &Reported, trust: Trust) -> Result<(), String> {
    let Reported { name, version, .. } = server;
    let [major, minor, patch] = VERSION_MIN;
    match parse_version(version) {
        None => return Err(format!("{name} has a version that cannot be read: {version:?}.")),
        Some(found) if found < VERSION_MIN => {
            return Err(format!(
                "{name} is nats-server {version}; Orrery needs {major}.{minor}.{patch} or later."
            ));
        }
        Some(_) => {}
    }
    if !server.jetstream {
        return Err(format!(
            "{name} runs without JetStream; enable it in its configuration."
        ));
    }
    if server.max_payload_bytes < MAX_PAYLOAD_BYTES_MIN {
        return Err(format!(
            "{name} takes messages of {} bytes; set its max_payload to {MAX_PAYLOAD_BYTES_MIN} or more.",
            server.max_payload_bytes
        ));
    }
    match server.sync_always {
        _ if trust == Trust::Development => Ok(()),
        Some(true) => Ok(()),
        Some(false) => Err(format!(
            "{name} acknowledges before it syncs; set sync_interval: always in its jetstream block."
        )),
        None => Err(format!(
            "it is not known whether {name} syncs before it acknowledges; name its monitoring port."
        )),
    }
}

/// Major, minor and patch; what follows a hyphen or a plus is of no interest.
fn parse_version(version: &str) -> Option<[u64; 3]> {
    let plain = version.trim_start_matches('v').split(['-', '+']).next()?;
    let numbers: Option<Vec<u64>> = plain.split('.').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// What every server that can be asked says about itself, and what is wrong with it, if anything. Beside the one a client is
/// connected to these are the ones whose monitoring port is named.
pub async fn examine(
    client: &async_nats::Client,
    monitors: &[String],
    trust: Trust,
) -> Vec<(String, Option<Reported>, Option<String>)> {
    let mut found = Vec::new();
    if monitors.is_empty() {
        let server = Reported::greeting(client);
        let problem = check(&server, trust).err();
        found.push((server.name.clone(), Some(server), problem));
    }
    for monitor in monitors {
        found.push(match ask(monitor).await {
            Ok(server) => (server.name.clone(), Some(server.clone()), check(&server, trust).err()),
            Err(error) => (monitor.clone(), None, Some(error.to_string())),
        });
    }
    found
}

/// Checks the server a client is connected to, and each one whose monitoring port (`host:port`) is named. Under
/// [`Trust::Production`] at least one must be.
pub async fn check_all(client: &async_nats::Client, monitors: &[String], trust: Trust) -> Result<()> {
    let greeted = match monitors {
        [] => trust,
        // The ports tell the rest.
        _ => Trust::Development,
    };
    check(&Reported::greeting(client), greeted).map_err(StorageError::Unavailable)?;
    for monitor in monitors {
        check(&ask(monitor).await?, trust).map_err(StorageError::Unavailable)?;
    }
    Ok(())
}

/// Asks a monitoring port.
async fn ask(monitor: &str) -> Result<Reported> {
    let answer = tokio::time::timeout(PATIENCE, get(monitor)).await;
    let answer = answer.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    let answer = answer.map_err(|error| {
        StorageError::Unavailable(format!("the monitoring port {monitor} cannot be asked: {error}."))
    })?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    Reported::read(body)
        .ok_or_else(|| StorageError::Unavailable(format!("{monitor} is no monitoring port of a nats-server.")))
}

async fn get(monitor: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(monitor).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {monitor}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Reported {
        Reported {
            name: "n1".into(),
            version: "2.15.1".into(),
            jetstream: true,
            max_payload_bytes: 8 << 20,
            sync_always: Some(true),
        }
    }

    #[test]
    fn a_server_that_syncs_and_is_new_enough_is_taken() {
        assert_eq!(check(&good(), Trust::Production), Ok(()));
        for version in ["2.12.3", "v2.12.10", "2.14.0-RC.1", "3.0.0"] {
            let server = Reported {
                version: version.into(),
                ..good()
            };
            assert_eq!(check(&server, Trust::Production), Ok(()), "{version}");
        }
    }

    #[test]
    fn a_server_that_is_not_fit_is_refused_in_one_sentence() {
        let old = |version: &str| Reported {
            version: version.into(),
            ..good()
        };
        let cases = [
            (old("2.12.2"), "n1 is nats-server 2.12.2; Orrery needs 2.12.3 or later."),
            (old("2.9"), "n1 has a version that cannot be read: \"2.9\"."),
            (
                Reported {
                    jetstream: false,
                    ..good()
                },
                "n1 runs without JetStream; enable it in its configuration.",
            ),
            (
                Reported {
                    max_payload_bytes: 1 << 20,
                    ..good()
                },
                "n1 takes messages of 1048576 bytes; set its max_payload to 8388608 or more.",
            ),
            (
                Reported {
                    sync_always: Some(false),
                    ..good()
                },
                "n1 acknowledges before it syncs; set sync_interval: always in its jetstream block.",
            ),
            (
                Reported {
                    sync_always: None,
                    ..good()
                },
                "it is not known whether n1 syncs before it acknowledges; name its monitoring port.",
            ),
        ];
        for (server, refusal) in cases {
            assert_eq!(check(&server, Trust::Production), Err(refusal.into()));
        }
    }

    #[test]
    fn a_development_server_need_not_sync() {
        let server = Reported {
            sync_always: Some(false),
            ..good()
        };
        assert_eq!(check(&server, Trust::Development), Ok(()));
    }
}

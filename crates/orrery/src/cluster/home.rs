//! What happens at home: operations on partitions as such, for which the coordinator owns them all for a while.

use std::sync::Arc;
use std::time::Duration;

use orrery_gateway::handler::{self, Answer, Command, RegionCommand};
use orrery_model::{Error, Status};

use super::handler::{ClusterHandler, nobody, unknown};
use super::station::{Pin, Scope, Station};

/// How soon to look again whether logs have come home.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Brings logs home and keeps them there until the answer is dropped. `None` when it takes too long or another coordinates.
pub async fn bring(station: &Arc<Station>, scope: Scope, patience: Duration) -> Option<Pin> {
    let pin = station.pin(scope);
    let mut routes = station.watch();
    let come = async {
        while !pin.is_firm() && station.leads() {
            tokio::select! {
                // Both are safe to drop: a change is still to be seen at the next look.
                _ = routes.changed() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    };
    tokio::time::timeout(patience, come).await.ok()?;
    pin.is_firm().then_some(pin)
}

/// Which logs must be at home for a command; `None`: it does not matter where they are.
fn scope_of(station: &Station, command: &Command) -> Option<Scope> {
    match command {
        Command::Split {
            database, container, ..
        }
        | Command::Merge {
            database, container, ..
        } => Some(Scope::Logs(station.node.logs_of(database, container))),
        Command::SaveSnapshot { .. } | Command::RestoreSnapshot { .. } | Command::Reset => Some(Scope::All),
        Command::Partitions { .. }
        | Command::Snapshots
        | Command::DropSnapshot { .. }
        | Command::RotateKey(_)
        | Command::BeginByHand { .. }
        | Command::Advance { .. }
        | Command::Regions(_) => None,
    }
}

fn changes_something(command: &Command) -> bool {
    !matches!(
        command,
        Command::Partitions { .. }
            | Command::Snapshots
            | Command::Regions(RegionCommand::List | RegionCommand::Links | RegionCommand::Simulation)
    )
}

/// Executes a command of an administrator on this node, which coordinates.
pub async fn administer(cluster: &ClusterHandler, command: Command) -> Result<Answer, Error> {
    if let Command::BeginByHand { .. } | Command::Advance { .. } = &command {
        return Err(Error::bad_request(
            "Splits and merges of a cluster are not led by hand: partitions must be free to move.",
        ));
    }
    let (station, hold) = (Arc::clone(&cluster.station), cluster.hold);
    let is_change = changes_something(&command);
    // Apart from whoever waits for it: logs must stay at home until it has ended.
    let done = tokio::spawn(async move {
        let _pin = match scope_of(&station, &command) {
            Some(scope) => Some(bring(&station, scope, hold).await.ok_or_else(nobody)?),
            None => None,
        };
        let done = handler::administer(&station.node, command).await;
        // Another coordinates by now, and nothing was done.
        done.map_err(|error| match error.status() == Status::WRITE_FORBIDDEN {
            true => nobody(),
            false => error,
        })
    });
    let answer = done.await.unwrap_or_else(|error| Err(unknown().with_source(error)))?;
    if is_change && !cluster.is_known_to_all().await {
        return Err(unknown());
    }
    Ok(answer)
}

//! What the gateway needs of whoever stands behind it: a node, or a script in tests.
//!
//! The seam is narrow on purpose. Operations of the data plane go through [`Handler::execute`]; administration is data
//! as well ([`Command`] in, [`Answer`] out), so that a scripted handler is a match and not a dozen methods.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::Error;
use orrery_node::account::{Account, AccountKeys, KeyKind};
use orrery_node::admin::{PartitionInfo, Phase, SnapshotInfo};
use orrery_node::events::Events;
use orrery_node::geo::fleet::{Distance, LinkInfo, Loss, Outage, Place};
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::report::RegionInfo;
use orrery_node::geo::topology::RegionState;
use orrery_node::meters::Measure;
use orrery_node::{Failure, Node, Reply, Request};

use crate::relay::Relay;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub trait Handler: Send + Sync + fmt::Debug + 'static {
    /// Executes one operation.
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>>;

    /// Executes an operation that has nothing to wait for, which spares it the state of waiting. `None`: nothing was done, and
    /// [`Handler::execute`] does it.
    fn execute_at_once(&self, _request: &Request) -> Option<Result<Reply, Failure>> {
        None
    }

    /// Executes one administration command.
    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>>;

    /// The account as clients see it now.
    fn account(&self) -> Arc<Account>;

    /// Whoever passes requests on to other nodes, where there are any.
    fn relay(&self) -> Option<&dyn Relay> {
        None
    }

    /// The region whose endpoint this is; `None` when it is that of a whole account.
    fn own_region(&self) -> Option<String> {
        None
    }

    /// The region that answers data requests.
    fn answering_region(&self) -> Option<String> {
        self.account().regions.first().cloned()
    }

    /// Whether requests are answered here at all, and how long that takes a client of this name.
    fn presence(&self, _client: Option<&str>) -> Presence {
        Presence::Here
    }

    /// Completes when connections are refused here, or taken.
    fn door_is(&self, shut: bool) -> BoxFuture<'_, ()> {
        match shut {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(())),
        }
    }

    /// The regions that a client hears of who asks now, if they are not those of the account.
    fn outdated_regions(&self) -> Option<Vec<String>> {
        None
    }

    /// What happens behind this handler, and where the gateway tells what happens in front of it.
    fn events(&self) -> &Events;

    /// What there is to watch behind this handler.
    fn measures(&self) -> Vec<Measure>;

    /// The keys in force now; the same allocation as long as they do not change.
    fn keys(&self) -> Arc<AccountKeys>;
}

/// What becomes of requests to an endpoint.
#[derive(Debug)]
pub enum Presence {
    Here,
    /// They are answered, and there and back takes so long.
    Far(Duration),
    /// They are never answered.
    Hanging,
    /// Their connections are closed.
    Closing,
    /// They are all refused.
    Absent(Error),
    /// They are refused in the way that makes a client look for the account in its other regions.
    Retired,
}

/// Something an administrator asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The physical partitions, of one container (database and name) or of all.
    Partitions {
        container: Option<(String, String)>,
    },
    Split {
        database: String,
        container: String,
        partition: u32,
    },
    Merge {
        database: String,
        container: String,
        partitions: (u32, u32),
    },
    /// Splits one partition, or merges two, led by hand from phase to phase.
    BeginByHand {
        database: String,
        container: String,
        partitions: Vec<u32>,
    },
    /// Leads a split or merge to its next phase.
    Advance {
        database: String,
        container: String,
        partition: u32,
    },
    Snapshots,
    SaveSnapshot {
        name: String,
    },
    RestoreSnapshot {
        name: String,
    },
    DropSnapshot {
        name: String,
    },
    /// Empties the account; snapshots stay.
    Reset,
    RotateKey(KeyKind),
    Regions(RegionCommand),
}

/// Something an administrator asks of an account's regions.
#[derive(Clone, Debug, PartialEq)]
pub enum RegionCommand {
    List,
    /// Lets another region take the writes, without losing any.
    ChangeWriter {
        region: String,
    },
    /// Takes a region out at once.
    Offline {
        region: String,
        /// Also of writes that strong consistency has promised.
        accept_loss: bool,
    },
    Online {
        region: String,
        /// Also of what only the region has and cannot be kept.
        accept_loss: bool,
    },
    /// The order in which regions take over, whoever writes left out or first.
    Prioritize {
        regions: Vec<String>,
    },
    Add {
        region: String,
    },
    /// Clients are told of it for as long as `drain`.
    Remove {
        region: String,
        drain: Duration,
    },
    /// Lets a region's clock go wrong.
    Skew {
        region: String,
        skew_ms: i64,
    },
    /// Lets a region's endpoint be as good as dead, or alive again.
    Outage {
        region: String,
        outage: Option<Outage>,
    },
    /// Says how far clients are from a region.
    Distance {
        region: String,
        distance: Distance,
    },
    /// Everything that is simulated.
    Simulation,
    /// Lets clients hear of old regions for so long after each change.
    Flapping {
        lasts: Duration,
    },
    Links,
    SetLink {
        from: String,
        to: String,
        settings: LinkSettings,
    },
    /// Holds up one partition on a link, or no longer.
    PausePartition {
        from: String,
        to: String,
        partition: Place,
        paused: bool,
    },
    /// Lets transactions pass a paused link: of one partition, or whichever come first.
    Step {
        from: String,
        to: String,
        partition: Option<Place>,
        n_transactions: u64,
    },
}

/// What an administrator is told.
#[derive(Clone, Debug)]
pub enum Answer {
    Done,
    Partitions(Vec<PartitionInfo>),
    /// To which a split or merge has come.
    Phase(Phase),
    Snapshots(Vec<SnapshotInfo>),
    /// A key has been replaced by this one.
    Key(Vec<u8>),
    Regions(Vec<RegionInfo>),
    Links(Vec<LinkInfo>),
    Simulation {
        regions: Vec<RegionInfo>,
        links: Vec<LinkInfo>,
        flapping: Duration,
    },
    /// What was lost, by partition.
    Loss(Loss),
    /// A region serves again; so many versions that only it had could not be kept.
    Back {
        regions: Vec<RegionInfo>,
        n_dropped: usize,
    },
}

impl Handler for Arc<Node> {
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(Node::execute(self, request))
    }

    fn execute_at_once(&self, request: &Request) -> Option<Result<Reply, Failure>> {
        Node::execute_at_once(self, request)
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(administer(self, command))
    }

    fn account(&self) -> Arc<Account> {
        Node::account(self)
    }

    fn events(&self) -> &Events {
        Node::events(self)
    }

    fn measures(&self) -> Vec<Measure> {
        Node::measures(self)
    }

    fn keys(&self) -> Arc<AccountKeys> {
        Node::keys(self)
    }
}

/// Executes an administration command on a node.
pub async fn administer(node: &Arc<Node>, command: Command) -> Result<Answer, Error> {
    Ok(match command {
        Command::Partitions { container } => {
            let container = container
                .as_ref()
                .map(|(database, name)| (database.as_str(), name.as_str()));
            Answer::Partitions(node.partitions(container)?)
        }
        Command::Split {
            database,
            container,
            partition,
        } => Answer::Partitions(node.split(&database, &container, partition).await?),
        Command::Merge {
            database,
            container,
            partitions,
        } => Answer::Partitions(node.merge(&database, &container, partitions).await?),
        Command::BeginByHand {
            database,
            container,
            partitions,
        } => Answer::Phase(node.begin_by_hand(&database, &container, &partitions).await?),
        Command::Advance {
            database,
            container,
            partition,
        } => Answer::Phase(node.advance(&database, &container, partition).await?),
        Command::Snapshots => Answer::Snapshots(node.snapshots()),
        Command::SaveSnapshot { name } => Answer::Snapshots(vec![node.save_snapshot(&name).await?]),
        Command::RestoreSnapshot { name } => Answer::Snapshots(vec![node.restore_snapshot(&name).await?]),
        Command::DropSnapshot { name } => node.drop_snapshot(&name).await.map(|()| Answer::Done)?,
        Command::Reset => node.reset().await.map(|()| Answer::Done)?,
        Command::RotateKey(kind) => Answer::Key(node.rotate_key(kind).await?.0),
        Command::Regions(RegionCommand::List) => Answer::Regions(only_region(node)),
        Command::Regions(_) => return Err(Error::bad_request("The account has one region.")),
    })
}

fn only_region(node: &Node) -> Vec<RegionInfo> {
    let account = node.account();
    let region = |name: &String| RegionInfo {
        name: name.clone(),
        writes: true,
        state: RegionState::Online,
        lag: Default::default(),
        lag_total: 0,
        partitions: Vec::new(),
        clock_skew_ms: 0,
        left_out: false,
        outage: None,
        distances: Vec::new(),
    };
    account.regions.iter().take(1).map(region).collect()
}

//! What stands behind the endpoint of a node when its account has several regions.
//!
//! In the region that takes writes everything is as in a cluster of one region. In a region that follows, every node answers
//! reads from its own view and refuses writes, as the service does. Commands about regions go to whoever decides: the region
//! that takes writes, or the next in line when that one is to be taken out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use orrery_gateway::Handler;
use orrery_gateway::handler::{Answer, BoxFuture, Command, Presence};
use orrery_gateway::relay::codec::{RelayedAnswer, decode_answer};
use orrery_gateway::relay::{Administration, Carried, Original, Relay};
use orrery_gateway::wire::ItemWrite;
use orrery_model::{Error, Result, Status};
use orrery_node::account::{Account, AccountKeys};
use orrery_node::events::Events;
use orrery_node::meters::Measure;
use orrery_node::{Failure, Reply, Request};
use orrery_storage::nats::calls::Silence;

use super::geography::Mode;
use super::office::{Office, refused};
use super::records::store_of;
use crate::cluster::handler::{ClusterHandler, write_forbidden};

/// How long another region may take for a change of regions.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct RegionalHandler {
    inner: ClusterHandler,
    office: Arc<Office>,
}

impl fmt::Debug for RegionalHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionalHandler").finish_non_exhaustive()
    }
}

/// Where a command is executed.
#[derive(Debug, PartialEq, Eq)]
enum Destination {
    /// On any node.
    Anywhere,
    /// By the node that acts for the region of this name.
    Region(String),
    /// Where writes are.
    Writes,
}

impl RegionalHandler {
    pub fn new(inner: ClusterHandler, office: Arc<Office>) -> RegionalHandler {
        RegionalHandler { inner, office }
    }

    async fn carry_out(&self, request: Request, original: Original<'_>) -> Carried {
        match self.office.geography.mode() {
            Mode::Writes => Relay::execute(&self.inner, request, original).await,
            // A node of this region that still believes that it takes writes: not any more.
            _ if original.relayed => Carried::NotHere,
            _ => Carried::Here(self.office.station.node.execute_as_reader(request).await),
        }
    }

    async fn administration(&self, original: Original<'_>) -> Result<Administration> {
        match self.destination(&original)? {
            Destination::Anywhere => Ok(Administration::Here),
            Destination::Writes => match self.office.geography.mode() {
                Mode::Writes => Relay::administer(&self.inner, original).await,
                _ if original.method() == Method::GET => Ok(Administration::Here),
                _ => Err(write_forbidden()),
            },
            Destination::Region(region) => self.send_to(&region, original).await,
        }
    }

    fn destination(&self, original: &Original<'_>) -> Result<Destination> {
        let topology = self.office.geography.topology();
        let writer = || Destination::Region(topology.writer().name.clone());
        let path = original.path().trim_start_matches("/_orrery/v1/");
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        Ok(match (original.method().as_str(), segments.as_slice()) {
            ("POST", ["failover"]) | ("POST", ["regions", _, "online"]) => writer(),
            ("POST", ["regions", named, "offline"]) => {
                let name = orrery_gateway::admin::decoded(named)?;
                let region = topology.named(&name)?;
                match topology.online().find(|heir| heir.id != region.id) {
                    Some(heir) if region.id == topology.writer().id => Destination::Region(heir.name.clone()),
                    _ => writer(),
                }
            }
            (_, ["regions" | "links", ..]) => Destination::Anywhere,
            _ => Destination::Writes,
        })
    }

    /// Sends a command to the node that acts for a region, if that is another one.
    async fn send_to(&self, region: &str, original: Original<'_>) -> Result<Administration> {
        let is_own = store_of(region) == store_of(&self.office.geography.name);
        let acts_here = is_own && self.office.station.is_steward();
        if acts_here {
            return Ok(Administration::Here);
        }
        if original.relayed {
            return Ok(Administration::NotHere);
        }
        let node = match is_own {
            true => self.office.steward_of_own().await?,
            false => {
                let peer = self.office.geography.reachable(region);
                let silent = || refused(&format!("{region} cannot be reached from here."));
                peer.ok_or_else(silent)?.record.node
            }
        };
        let subject = format!("orrery.{}.call.{node}", store_of(region));
        match self.office.caller.ask(&subject, original.encode(), PATIENCE).await {
            Ok(bytes) => match decode_answer(bytes) {
                Some(RelayedAnswer::Answered { response, .. }) => Ok(Administration::Elsewhere(response)),
                Some(RelayedAnswer::NotHere) => Err(refused("Another node acts for the region by now; try again.")),
                None => Err(in_doubt()),
            },
            Err(Silence::NobodyThere | Silence::TooLarge) => {
                Err(refused(&format!("{region} cannot be reached from here.")))
            }
            Err(Silence::Lost) => Err(in_doubt()),
        }
    }
}

impl Handler for RegionalHandler {
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        match self.office.geography.mode() {
            Mode::Writes => Handler::execute(&self.inner, request),
            _ => Box::pin(self.office.station.node.execute_as_reader(request)),
        }
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        match command {
            Command::Regions(command) => Box::pin(self.office.administer(command)),
            other => Handler::administer(&self.inner, other),
        }
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(self)
    }

    fn own_region(&self) -> Option<String> {
        Some(self.office.geography.name.clone())
    }

    fn answering_region(&self) -> Option<String> {
        self.own_region()
    }

    fn presence(&self, _client: Option<&str>) -> Presence {
        match self.office.geography.mode() {
            Mode::Out => Presence::Retired,
            Mode::Reads | Mode::Writes => Presence::Here,
        }
    }

    fn account(&self) -> Arc<Account> {
        self.inner.account()
    }

    fn events(&self) -> &Events {
        self.inner.events()
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = self.inner.measures();
        measures.extend(orrery_node::geo::report::measures_of(&self.office.regions()));
        measures
    }

    fn keys(&self) -> Arc<AccountKeys> {
        self.inner.keys()
    }
}

impl Relay for RegionalHandler {
    fn execute_at_once(&self, request: &Request, relayed: bool) -> Option<Result<Reply, Failure>> {
        match self.office.geography.mode() {
            Mode::Writes => Relay::execute_at_once(&self.inner, request, relayed),
            _ => None,
        }
    }

    fn execute<'a>(&'a self, request: Request, original: Original<'a>) -> BoxFuture<'a, Carried> {
        Box::pin(self.carry_out(request, original))
    }

    fn pass_on<'a>(&'a self, write: &'a ItemWrite, original: &'a Original<'a>) -> BoxFuture<'a, Option<Carried>> {
        match self.office.geography.mode() {
            Mode::Writes => Relay::pass_on(&self.inner, write, original),
            _ => Box::pin(std::future::ready(None)),
        }
    }

    fn administer<'a>(&'a self, original: Original<'a>) -> BoxFuture<'a, Result<Administration>> {
        Box::pin(self.administration(original))
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn known(&self) -> u64 {
        self.inner.known()
    }
}

fn in_doubt() -> Error {
    Error::new(
        Status::REQUEST_TIMEOUT,
        "The region that was to do this did not answer; look at the regions before trying again.",
    )
}

//! Endpoints of an account with several regions: one per region, and a global one that is no region.
//!
//! A region's endpoint answers from that region, as long as it is online. The global endpoint knows the account whatever
//! region is down, and passes data requests to the region that takes writes.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Error, Status};
use orrery_node::account::{Account, AccountKeys};
use orrery_node::events::Events;
use orrery_node::geo::failover::AcceptLoss;
use orrery_node::geo::fleet::{Fleet, Outage};
use orrery_node::geo::front::Front;
use orrery_node::geo::topology::RegionId;
use orrery_node::meters::Measure;
use orrery_node::{Failure, Node, Reply, Request};

use crate::handler::{Answer, BoxFuture, Command, Handler, Presence, RegionCommand, administer};

/// One endpoint.
#[derive(Clone, Debug)]
pub struct RegionHandler {
    fleet: Arc<Fleet>,
    /// `None`: the global endpoint.
    region: Option<RegionId>,
}

impl RegionHandler {
    pub fn global(fleet: Arc<Fleet>) -> RegionHandler {
        RegionHandler { fleet, region: None }
    }

    pub fn of(fleet: Arc<Fleet>, region: RegionId) -> RegionHandler {
        RegionHandler {
            fleet,
            region: Some(region),
        }
    }

    /// The region's node; the writer's for the global endpoint, and where the region has none.
    fn node(&self) -> Arc<Node> {
        let own = self.region.and_then(|region| self.fleet.find_node(region));
        own.unwrap_or_else(|| self.fleet.writer())
    }

    /// Who answers data requests; `None` when nobody does, ever.
    fn executor(&self) -> Result<Option<Arc<Node>>, Error> {
        if let Some(region) = self.region {
            return self.fleet.find_node(region).map(Some).ok_or_else(not_here);
        }
        // The account is known at the global endpoint whatever is down; the region behind it may be.
        match self.fleet.outage(self.fleet.topology().writer().id) {
            Some(Outage::Hanging) => Ok(None),
            Some(Outage::Unavailable | Outage::Refusing | Outage::Killed | Outage::Damaged) => Err(unavailable()),
            Some(Outage::Slow(_)) | None => Ok(Some(self.fleet.writer())),
        }
    }

    async fn administer(&self, command: Command) -> Result<Answer, Error> {
        let fleet = &self.fleet;
        let Command::Regions(command) = command else {
            return administer(&self.node(), command).await;
        };
        Ok(match command {
            RegionCommand::List => Answer::Regions(fleet.regions()),
            RegionCommand::ChangeWriter { region } => {
                Arc::clone(fleet).change_writer(&region).await?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Offline { region, accept_loss } => {
                let fleet = Arc::clone(fleet);
                Answer::Loss(match accept_loss {
                    true => fleet.give_up(&region).await?,
                    false => fleet.take_offline(&region).await?,
                })
            }
            RegionCommand::Online { region, accept_loss } => {
                let accept = match accept_loss {
                    true => AcceptLoss::Any,
                    false => AcceptLoss::IfNotPromised,
                };
                let n_dropped = Arc::clone(fleet).bring_back(&region, accept).await?;
                Answer::Back {
                    regions: fleet.regions(),
                    n_dropped,
                }
            }
            RegionCommand::Prioritize { regions } => {
                fleet.prioritize(&regions)?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Add { region } => {
                Arc::clone(fleet).add_region(&region).await?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Remove { region, drain } => {
                Arc::clone(fleet).remove_region(&region, drain).await?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Skew { region, skew_ms } => {
                fleet.set_clock_skew(&region, skew_ms)?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Outage { region, outage } => {
                match outage {
                    Some(Outage::Killed) => Arc::clone(fleet).kill(&region).await?,
                    Some(outage) => fleet.set_outage(&region, Some(outage))?,
                    None => Arc::clone(fleet).start_again(&region).await?,
                }
                Answer::Done
            }
            RegionCommand::Distance { region, distance } => {
                fleet.set_distance(&region, distance)?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Simulation => Answer::Simulation {
                regions: fleet.regions(),
                links: fleet.links(),
                flapping: fleet.flapping_lasts(),
            },
            RegionCommand::Flapping { lasts } => {
                fleet.set_flapping(lasts);
                Answer::Done
            }
            RegionCommand::Links => Answer::Links(fleet.links()),
            RegionCommand::SetLink { from, to, settings } => {
                fleet.set_link(&from, &to, settings)?;
                Answer::Links(fleet.links())
            }
            RegionCommand::PausePartition {
                from,
                to,
                partition,
                paused,
            } => {
                fleet.pause_partition(&from, &to, partition, paused)?;
                Answer::Links(fleet.links())
            }
            RegionCommand::Step {
                from,
                to,
                partition,
                n_transactions,
            } => {
                fleet.step(&from, &to, partition, n_transactions)?;
                Answer::Links(fleet.links())
            }
        })
    }

    /// A region that answers may still be far away.
    fn presence_of(&self, region: RegionId, client: Option<&str>) -> Presence {
        let front = self.fleet.front(region).unwrap_or_default();
        match front.outage {
            Some(Outage::Hanging) => Presence::Hanging,
            Some(Outage::Unavailable | Outage::Damaged) => Presence::Absent(unavailable()),
            Some(Outage::Refusing | Outage::Killed) => Presence::Closing,
            Some(Outage::Slow(_)) | None if !self.fleet.is_online(region) => Presence::Retired,
            Some(Outage::Slow(_)) | None => near_or_far(&front, client),
        }
    }
}

impl Handler for RegionHandler {
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        match self.executor() {
            Ok(Some(node)) => Box::pin(async move { node.execute(request).await }),
            Ok(None) => Box::pin(std::future::pending()),
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }

    fn execute_at_once(&self, request: &Request) -> Option<Result<Reply, Failure>> {
        self.executor().ok()??.execute_at_once(request)
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(self.administer(command))
    }

    fn account(&self) -> Arc<Account> {
        self.node().account()
    }

    fn own_region(&self) -> Option<String> {
        self.fleet.name_of(self.region?)
    }

    fn answering_region(&self) -> Option<String> {
        let region = self.region.unwrap_or_else(|| self.fleet.topology().writer().id);
        self.fleet.name_of(region)
    }

    fn presence(&self, client: Option<&str>) -> Presence {
        if let Some(region) = self.region {
            return self.presence_of(region, client);
        }
        // Whoever is down, the account is known here; the distance is that of the region behind it.
        match self.fleet.front(self.fleet.topology().writer().id) {
            Some(front) => near_or_far(&front, client),
            None => Presence::Here,
        }
    }

    fn door_is(&self, shut: bool) -> BoxFuture<'_, ()> {
        match self.region {
            Some(region) => Box::pin(self.fleet.door_is(region, shut)),
            None if shut => Box::pin(std::future::pending()),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn outdated_regions(&self) -> Option<Vec<String>> {
        self.fleet.outdated_regions()
    }

    fn events(&self) -> &Events {
        self.fleet.events()
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = self.node().measures();
        measures.extend(self.fleet.measures());
        measures
    }

    fn keys(&self) -> Arc<AccountKeys> {
        self.node().keys()
    }
}

fn near_or_far(front: &Front, client: Option<&str>) -> Presence {
    match front.delay(client) {
        Duration::ZERO => Presence::Here,
        delay => Presence::Far(delay),
    }
}

fn unavailable() -> Error {
    Error::new(Status::UNAVAILABLE, "The region is not available.")
}

fn not_here() -> Error {
    Error::new(Status::ACCOUNT_NOT_HERE, "The account is not served in this region.")
}

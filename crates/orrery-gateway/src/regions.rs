//! Endpoints of an account with several regions: one per region, and a global one that is no region.
//!
//! A region's endpoint answers from that region, as long as it is online. The global endpoint knows the account whatever
//! region is down, and passes data requests to the region that takes writes.

use std::sync::Arc;

use orrery_model::{Error, Status};
use orrery_node::account::{Account, AccountKeys};
use orrery_node::events::Events;
use orrery_node::geo::fleet::{Fleet, Outage};
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

    fn node(&self) -> Arc<Node> {
        match self.region {
            Some(region) => Arc::clone(self.fleet.node(region)),
            None => self.fleet.writer(),
        }
    }

    async fn execute(&self, request: Request) -> Result<Reply, Failure> {
        // The account is known at the global endpoint whatever is down; the region behind it may be.
        if self.region.is_none() {
            match self.fleet.outage(self.fleet.topology().writer().id) {
                Some(Outage::Hanging) => return std::future::pending().await,
                Some(Outage::Unavailable) => return Err(unavailable().into()),
                None => {}
            }
        }
        self.node().execute(request).await
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
            RegionCommand::Offline { region } => Answer::Loss(Arc::clone(fleet).take_offline(&region).await?),
            RegionCommand::Online { region } => {
                Arc::clone(fleet).take_online(&region).await?;
                Answer::Regions(fleet.regions())
            }
            RegionCommand::Outage { region, outage } => {
                fleet.set_outage(&region, outage)?;
                Answer::Done
            }
            RegionCommand::Links => Answer::Links(fleet.links()),
            RegionCommand::SetLink { from, to, settings } => {
                fleet.set_link(&from, &to, settings)?;
                Answer::Links(fleet.links())
            }
        })
    }
}

impl Handler for RegionHandler {
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(self.execute(request))
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(self.administer(command))
    }

    fn account(&self) -> Arc<Account> {
        self.node().account()
    }

    fn presence(&self) -> Presence {
        let Some(region) = self.region else {
            return Presence::Here;
        };
        match self.fleet.outage(region) {
            Some(Outage::Hanging) => Presence::Hanging,
            Some(Outage::Unavailable) => Presence::Absent(unavailable()),
            None if self.fleet.is_online(region) => Presence::Here,
            None => Presence::Retired,
        }
    }

    fn events(&self) -> &Events {
        self.fleet.events()
    }

    fn measures(&self) -> Vec<Measure> {
        self.node().measures()
    }

    fn keys(&self) -> Arc<AccountKeys> {
        self.node().keys()
    }
}

fn unavailable() -> Error {
    Error::new(Status::UNAVAILABLE, "The region is not available.")
}

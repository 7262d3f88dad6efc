//! Room for regions that come while an account is served, or live again: their part of a store, and an endpoint.

use std::sync::{Arc, Weak};

use orrery_model::{Error, Result, Status};
use orrery_node::geo::fleet::{Fleet, RegionParts};
use orrery_node::geo::membership::Sites;
use orrery_node::geo::topology::Region;
use orrery_node::{Clock, SystemClock};
use orrery_partition::storage::{BoxFuture, Store};

use super::doors::{Doors, Frame};
use super::stores::Stores;

/// Of one account.
#[derive(Debug)]
pub struct AccountSites {
    /// Of the account, in the stores.
    pub number: u16,
    pub stores: Arc<Stores>,
    pub clock: Arc<SystemClock>,
    pub frame: Arc<Frame>,
    pub doors: Arc<Doors>,
    /// Whose regions these are; it holds them.
    pub fleet: Weak<Fleet>,
}

impl AccountSites {
    async fn make_room(&self, region: &Region) -> anyhow::Result<RegionParts> {
        let store = self.stores.open(&region.name, self.number).await?;
        self.furnish(region, store)
    }

    fn furnish(&self, region: &Region, store: Arc<dyn Store>) -> anyhow::Result<RegionParts> {
        if let Some(fleet) = self.fleet.upgrade() {
            let topology = fleet.topology();
            // Also for the region that has had none because it was alone.
            self.doors.bind_regions(topology.present().chain([region]))?;
            self.doors.open(&self.frame, &fleet);
        }
        Ok(RegionParts {
            name: region.name.clone(),
            store,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
        })
    }
}

fn no_room(error: &anyhow::Error) -> Error {
    let message = format!("There is no room for the region: {error:#}.");
    Error::new(Status::UNAVAILABLE, message)
}

impl Sites for AccountSites {
    fn prepare<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<RegionParts>> {
        Box::pin(async move { self.make_room(region).await.map_err(|error| no_room(&error)) })
    }

    fn damage<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.stores.damage(&region.name))
    }

    fn renew<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<Option<RegionParts>>> {
        Box::pin(async move {
            let store = self.stores.renew(&region.name, self.number).await;
            let Some(store) = store.map_err(|error| no_room(&error))? else {
                return Ok(None);
            };
            self.furnish(region, store).map(Some).map_err(|error| no_room(&error))
        })
    }

    fn kill<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let killed = self.stores.kill(&region.name, self.number).await;
            killed.map_err(|error| Error::bad_request(format!("The region cannot be killed: {error:#}.")))
        })
    }

    fn release<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.doors.close(&self.frame, region);
            Ok(())
        })
    }
}

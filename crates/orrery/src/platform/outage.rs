//! Failing an account over for those whose changes wait for it, if that is the policy of this process.
//!
//! First as planned, which loses nothing and works while only the region's endpoint is gone; when the target cannot catch up,
//! because the region is cut off as well, by taking the region offline. Invariant: asking again for what is done changes
//! nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use orrery_model::Status;
use orrery_node::geo::fleet::Fleet;
use orrery_publishing::error::Cause;
use orrery_publishing::outage::{FailOver, OutagePolicy};
use orrery_publishing::topology::AccountEntry;

use crate::config::OutageConfig;
use crate::host::{AccountEndpoints, Host};

/// The accounts of this process, by name.
struct OwnAccounts(Vec<(String, Arc<Fleet>)>);

impl fmt::Debug for OwnAccounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OwnAccounts(..)")
    }
}

/// What follows when changes wait for one of this process's accounts.
pub fn policy(config: &OutageConfig, host: &Host, accounts: &[AccountEndpoints]) -> OutagePolicy {
    let Some(after) = config.failover_after else {
        return OutagePolicy::Wait {
            alert_after: config.alert_after,
        };
    };
    let names = accounts.iter().map(|account| account.id.clone());
    let fleets = host.fleets().into_iter().map(|(fleet, _)| fleet);
    OutagePolicy::FailOver {
        after,
        through: Arc::new(OwnAccounts(names.zip(fleets).collect())),
    }
}

impl FailOver for OwnAccounts {
    fn fail_over<'a>(
        &'a self,
        account: &'a AccountEntry,
        to: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Cause>> + Send + 'a>> {
        let found = self.0.iter().find(|(name, _)| *name == account.name);
        let fleet = found.map(|(_, fleet)| Arc::clone(fleet));
        Box::pin(async move {
            let fleet = fleet.ok_or("there is no such account here")?;
            fail_over(fleet, to).await
        })
    }
}

async fn fail_over(fleet: Arc<Fleet>, to: &str) -> Result<(), Cause> {
    let topology = fleet.topology();
    let (writer, target) = (topology.writer(), topology.named(to)?.id);
    if writer.id == target {
        return Ok(());
    }
    if fleet.outage(target).is_some() {
        return Err("the region is stopped as well".into());
    }
    match Arc::clone(&fleet).change_writer(to).await {
        Err(error) if error.status() == Status::PRECONDITION_FAILED => {
            tracing::warn!(%error, from = writer.name, "a planned change is not possible; the region is taken offline");
            Ok(fleet.take_offline(&writer.name).await.map(drop)?)
        }
        changed => Ok(changed?),
    }
}

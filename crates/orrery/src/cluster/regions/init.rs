//! The beginning of a region: its bucket, the topology, and streams of its own or mirrors of those of the region that takes
//! writes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use orrery_node::geo::topology::Topology;
use orrery_storage::nats::Client;
use orrery_storage::nats::mirrors::{Mirrors, Origin};
use orrery_storage::nats::roster::{Roster, Written};
use orrery_storage::{NatsSettings, NatsStore};

use super::far::Far;
use super::records::{TOPOLOGY, store_of};

/// One request to the servers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Refuses servers that are not in the region's JetStream domain: without one, nothing can be mirrored.
pub fn check_domain(client: &Client, region: &str) -> Result<()> {
    let (domain, wanted) = (client.server_info().domain, store_of(region));
    ensure!(
        domain.as_deref() == Some(wanted.as_str()),
        "the servers of {region} must be in a JetStream domain of their own: set domain: {wanted} in their jetstream block (it is {})",
        domain.as_deref().unwrap_or("not set")
    );
    Ok(())
}

/// Makes a region of an account ready for nodes.
pub async fn init(client: &Client, settings: &NatsSettings, region: &str, regions: &[String]) -> Result<Topology> {
    check_domain(client, region)?;
    let roster = Roster::open(client.clone(), settings, TIMEOUT).await?;
    let topology = find_topology(client, &roster, region, regions).await?;
    let own = topology.find(region);
    let own = own.with_context(|| format!("{region} is not one of the account's regions"))?;
    if topology.writer().id == own.id {
        NatsStore::init(client.clone(), settings).await?;
    } else {
        let writer = &topology.writer().name;
        let mirrors = Mirrors::new(client.clone(), settings)?;
        let followed = mirrors.follow(&Origin::of(&store_of(writer))).await;
        followed.with_context(|| {
            format!("{writer} cannot be followed: init it first, and see that a leaf node link joins the two")
        })?;
    }
    Ok(topology)
}

/// The topology that counts: the one this region knows, else the one another region knows, else a new one.
async fn find_topology(client: &Client, roster: &Roster, region: &str, regions: &[String]) -> Result<Topology> {
    if let Some(known) = load(roster).await? {
        check_same(&known, regions)?;
        return Ok(known);
    }
    let far = Far::new(client.clone());
    let mut found: Option<Topology> = None;
    for other in regions.iter().filter(|other| store_of(other) != store_of(region)) {
        let heard = far.hear(other).await.ok().and_then(|heard| heard.topology);
        found = found.or(heard);
    }
    let topology = match found {
        Some(found) => found,
        None if regions.first().is_some_and(|first| store_of(first) == store_of(region)) => Topology::new(regions)?,
        None => bail!(
            "the account begins in the region that takes writes: run cluster init --region {:?} first",
            regions.first().map_or("", String::as_str)
        ),
    };
    check_same(&topology, regions)?;
    match roster.write(TOPOLOGY, Bytes::from(topology.to_text()), None).await {
        Written::Stored(_) => Ok(topology),
        Written::Refused | Written::Unsure => {
            bail!("the cluster's bucket cannot be written; are enough NATS servers up?")
        }
    }
}

/// The topology as a region's bucket has it.
pub async fn load(roster: &Roster) -> Result<Option<Topology>> {
    let found = roster.get(TOPOLOGY).await?;
    let found = found.map(|entry| Topology::from_text(&entry.value));
    found.transpose().context("the account's regions cannot be understood")
}

fn check_same(known: &Topology, regions: &[String]) -> Result<()> {
    let named: Vec<String> = regions.iter().map(|region| store_of(region)).collect();
    let has = known.regions.iter().map(|region| store_of(&region.name));
    let mut has: Vec<String> = has.collect();
    let mut wanted = named.clone();
    has.sort();
    wanted.sort();
    ensure!(
        has == wanted,
        "the account has the regions {}, and {} were named",
        has.join(", "),
        named.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_the_same_in_any_order_and_spelling() {
        let known = Topology::new(&["West US".to_owned(), "North Europe".to_owned()]).unwrap();
        assert!(check_same(&known, &["northeurope".to_owned(), "West US".to_owned()]).is_ok());
        assert!(check_same(&known, &["West US".to_owned()]).is_err());
    }
}

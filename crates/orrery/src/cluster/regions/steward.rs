//! Keeps a region in step with the others.
//!
//! Every node learns from its region's bucket what the regions are and adjusts what it does. The one that holds the region's
//! lease does the rest: it asks the other regions what they know, takes over a topology that replaces its own, makes the
//! streams what they should be, and tells the others how its region is.
//!
//! Invariant: streams that another region may lack something of are given up only when that region takes writes in the epoch
//! that followed, and what it lacks is kept there as conflicts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_gateway::account::{Address, Addresses};
use orrery_model::{LogId, Lsn, Result};
use orrery_node::geo::topology::{Region, RegionState, Topology};
use orrery_storage::nats::mirrors::{Origin, Standing};
use orrery_storage::nats::roster::Written;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::geography::{Circumstances, Mode};
use super::keep;
use super::office::{Office, unknown};
use super::records::{GENERATION, PEERS, REGION, RegionRecord, TOPOLOGY, peer_key, replaces, store_of};
use crate::cluster::records::to_bytes;

/// Between two looks at everything.
const TURN: Duration = Duration::from_millis(250);
/// Between two looks at mirrors that are in order.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// A region that has nothing new to tell says so this often.
const BEAT: Duration = Duration::from_secs(1);
/// How old what another region tells may be.
const TELLING_TAKES: Duration = Duration::from_millis(1500);
/// How long it may take to ask whether such a region has everything: it would count for longer, however slow it became.
const TAKING_IN: Duration = Duration::from_secs(1);
/// What a region that comes back may lack before it serves.
const LEVEL_WITHIN: Duration = Duration::from_secs(2);

pub struct Steward {
    office: Arc<Office>,
    addresses: Addresses,
    end: CancellationToken,
    /// When the topology that is known was first seen.
    changed: Instant,
    seen: (u32, u64),
    generation: u64,
    /// Versions of what other nodes wrote about the other regions.
    peers_seen: BTreeMap<String, u64>,
    /// Where this region stood lately.
    stood: VecDeque<(Instant, BTreeMap<LogId, Lsn>)>,
    /// What was last told, and when.
    told: Option<(RegionRecord, Instant)>,
    tending: Option<JoinHandle<()>>,
    watched: Option<Instant>,
}

impl Steward {
    /// `generation`: the history that this node's copy is of.
    pub fn new(office: Arc<Office>, addresses: Addresses, generation: u64, end: CancellationToken) -> Steward {
        Steward {
            office,
            addresses,
            end,
            changed: Instant::now(),
            seen: (0, 0),
            generation,
            peers_seen: BTreeMap::new(),
            stood: VecDeque::new(),
            told: None,
            tending: None,
            watched: None,
        }
    }

    pub async fn run(mut self) {
        loop {
            if let Err(error) = self.turn().await {
                tracing::warn!(%error, "the regions cannot be kept in step now");
            }
            let end = self.end.clone();
            tokio::select! {
                // Both are safe to drop.
                () = end.cancelled() => break,
                () = tokio::time::sleep(TURN) => {}
            }
        }
        if let Some(tending) = self.tending.take() {
            tending.abort();
        }
    }

    async fn turn(&mut self) -> Result<()> {
        self.learn().await?;
        self.adjust().await?;
        if !self.office.station.is_steward() {
            return self.learn_peers().await;
        }
        self.exchange().await;
        self.begin_tending();
        self.tell().await;
        self.note_positions();
        Ok(())
    }

    /// Remembers where this region stands: what another one tells is older than what is true here.
    fn note_positions(&mut self) {
        let now = Instant::now();
        self.stood.push_back((now, self.office.positions()));
        while self.stood.get(1).is_some_and(|(at, _)| now - *at > TELLING_TAKES) {
            self.stood.pop_front();
        }
    }

    /// What another region that keeps in step must have reached by now.
    fn expected(&self) -> BTreeMap<LogId, Lsn> {
        self.stood
            .front()
            .map(|(_, positions)| positions.clone())
            .unwrap_or_default()
    }

    /// Takes in what the own region's bucket says.
    async fn learn(&mut self) -> Result<()> {
        let office = &self.office;
        let found = office.roster.get(TOPOLOGY).await.map_err(unknown)?;
        let found = found.map(|entry| Topology::from_text(&entry.value)).transpose()?;
        if let Some(found) = found.filter(|found| replaces(found, &office.geography.topology())) {
            office.geography.set_topology(found);
        }
        let topology = office.geography.topology();
        if self.seen != (topology.epoch.0, topology.number) {
            if self.seen.0 != topology.epoch.0 {
                self.changed = Instant::now();
            }
            self.seen = (topology.epoch.0, topology.number);
        }
        let generation = office.roster.get(GENERATION).await.map_err(unknown)?;
        let generation = generation.map_or(0, |entry| generation_of(&entry.value));
        if generation > self.generation {
            tracing::info!(
                generation,
                "this node's copy is made anew: its region follows another history"
            );
            self.office.store.set_mirrored(true);
            let anew = self.office.store.start_anew().await;
            anew.map_err(orrery_partition::decide::unreadable)?;
            self.office.station.node.start_over().await?;
            self.generation = generation;
        }
        Ok(())
    }

    /// Takes in what the node that acts for the region has heard of the others.
    async fn learn_peers(&mut self) -> Result<()> {
        let expected = self.expected();
        for entry in self.office.roster.below(PEERS).await.map_err(unknown)? {
            let is_new = self.peers_seen.insert(entry.key, entry.revision) != Some(entry.revision);
            let record = serde_json::from_slice::<RegionRecord>(&entry.value);
            if let Some(record) = record.ok().filter(|_| is_new) {
                self.office.geography.heard(record, &expected);
            }
        }
        self.note_positions();
        Ok(())
    }

    /// Lets this node do what the topology asks of its region.
    async fn adjust(&mut self) -> Result<()> {
        let office = &self.office;
        let (geography, topology) = (&office.geography, office.geography.topology());
        let (is_writer, was) = (geography.is_writer(), geography.mode());
        let mode = Circumstances {
            is_writer,
            state: geography.own().state,
            was,
            successor_serves: geography.serves(&topology.writer().name, topology.epoch.0),
            since_change: self.changed.elapsed(),
        }
        .mode();
        if mode != was {
            tracing::info!(?mode, "what this region does has changed");
        }
        match (mode, is_writer) {
            (Mode::Writes, true) => {
                if office.store.is_mirrored() && self.streams_are_own().await? {
                    office.store.set_mirrored(false);
                }
                // First: what is acknowledged is acknowledged in an epoch.
                office.begin_reign(topology.epoch);
                let charge = (!office.store.is_mirrored()).then_some(topology.epoch);
                office.station.set_charge(charge);
            }
            // Clients wait until another region takes what this one holds back.
            (Mode::Writes, false) => {
                office.end_reign();
                return Ok(());
            }
            (Mode::Reads | Mode::Out, _) => {
                office.end_reign();
                office.station.set_charge(None);
                office.store.set_mirrored(true);
            }
        }
        office.station.node.set_follows(mode != Mode::Writes);
        office.count_regions(&topology);
        geography.set_mode(mode);
        self.show(&topology);
        Ok(())
    }

    async fn streams_are_own(&self) -> Result<bool> {
        let standing = self.office.mirrors.standing().await.map_err(unknown)?;
        Ok(standing == Standing::Own)
    }

    /// Tells clients which regions there are and where.
    fn show(&self, topology: &Topology) {
        let regions = topology.online().map(|region| region.name.clone()).collect();
        self.office.station.node.show_regions(regions);
        for region in self.office.geography.others() {
            if let Some(peer) = self.office.geography.peer(&region.name) {
                self.addresses.set(&region.name, Address::Url(peer.record.endpoint));
            }
        }
    }

    /// Asks the other regions what they know, and tells those that know less.
    async fn exchange(&mut self) {
        let office = Arc::clone(&self.office);
        let others = office.geography.others();
        let asked = others.iter().map(|region| office.far.hear(&region.name));
        let heard = futures::future::join_all(asked).await;
        let expected = self.expected();
        for (region, heard) in others.iter().zip(heard) {
            let Ok(heard) = heard else { continue };
            if let Some(record) = heard.record {
                let known = office.geography.peer(&region.name);
                if known.is_none_or(|known| known.record != record) {
                    self.keep_peer(region, &record).await;
                }
                office.geography.heard(record, &expected);
            }
            let own = office.geography.topology();
            match heard.topology {
                Some(theirs) if replaces(&theirs, &own) => self.adopt(theirs).await,
                Some(theirs) if replaces(&own, &theirs) => drop(office.far.tell(&region.name, &own).await),
                _ => {}
            }
        }
    }

    /// Keeps what was heard for the other nodes of the region, and for times when nothing is heard.
    async fn keep_peer(&self, region: &Region, record: &RegionRecord) {
        let key = peer_key(&store_of(&region.name));
        if let Err(error) = self.office.roster.put(&key, to_bytes(record)).await {
            tracing::debug!(%error, "what was heard of a region cannot be kept now");
        }
    }

    /// Another region has decided; so it is.
    async fn adopt(&self, theirs: Topology) {
        let office = &self.office;
        let Ok(_alone) = office.changing.try_lock() else { return };
        if theirs.find(&office.geography.name).is_none() {
            return tracing::error!("another region does not know of this one");
        }
        let found = office.roster.get(TOPOLOGY).await;
        let Ok(Some(entry)) = found else { return };
        let text = Bytes::from(theirs.to_text());
        if let Written::Stored(_) = office.roster.write(TOPOLOGY, text, Some(entry.revision)).await {
            tracing::info!(
                number = theirs.number,
                epoch = theirs.epoch.0,
                "another region has decided"
            );
            office.geography.set_topology(theirs);
        }
    }

    /// Tells the others how this region is, when that has changed and now and then.
    async fn tell(&mut self) {
        let mut record = self.office.record();
        if let Some((told, at)) = &self.told {
            record.beat = told.beat;
            if record == *told && at.elapsed() < BEAT {
                return;
            }
            record.beat += 1;
        }
        match self.office.roster.put(REGION, to_bytes(&record)).await {
            Ok(()) => self.told = Some((record, Instant::now())),
            Err(error) => tracing::debug!(%error, "the other regions cannot be told now"),
        }
    }

    /// Makes the streams what they should be, beside the turns: it may take long.
    fn begin_tending(&mut self) {
        if self.tending.as_ref().is_some_and(|tending| !tending.is_finished()) {
            return;
        }
        let is_due = self.watched.is_none_or(|watched| watched.elapsed() >= WATCH_INTERVAL);
        if !is_due && !self.is_unsettled() {
            return;
        }
        self.watched = Some(Instant::now());
        let office = Arc::clone(&self.office);
        self.tending = Some(tokio::spawn(async move {
            if let Err(error) = tend(&office).await {
                tracing::warn!(%error, "the streams of this region cannot be tended now");
            }
        }));
    }

    /// Is there more to do than to watch?
    fn is_unsettled(&self) -> bool {
        let (office, topology) = (&self.office, self.office.geography.topology());
        let is_coming = |region: &Region| region.state == RegionState::Seeding;
        match office.geography.is_writer() {
            true => office.store.is_mirrored() || topology.regions.iter().any(is_coming),
            false => office.record().following != Some(topology.epoch.0),
        }
    }
}

fn generation_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

async fn tend(office: &Office) -> Result<()> {
    let Ok(_alone) = office.changing.try_lock() else {
        return Ok(());
    };
    if office.geography.is_writer() {
        office.set_following(0);
        office.settle().await?;
        take_over_streams(office).await?;
        return take_in(office).await;
    }
    match office.geography.own().state {
        RegionState::Online | RegionState::Seeding => follow_writer(office).await,
        _ => Ok(()),
    }
}

/// The region has become the one that writes: its streams take messages.
async fn take_over_streams(office: &Office) -> Result<()> {
    match office.mirrors.standing().await.map_err(unknown)? {
        Standing::Own => Ok(()),
        _ => office.mirrors.promote().await.map_err(unknown),
    }
}

/// Regions that come back and have caught up serve again.
async fn take_in(office: &Office) -> Result<()> {
    let topology = office.geography.topology();
    let is_level = |region: &&Region| {
        let peer = office.geography.reachable(&region.name);
        let follows = peer
            .as_ref()
            .is_some_and(|peer| peer.record.following == Some(topology.epoch.0));
        follows && peer.is_some_and(|peer| peer.level.elapsed() < LEVEL_WITHIN)
    };
    let is_back = |region: &&Region| region.state == RegionState::Seeding && is_level(region);
    let Some(region) = topology.regions.iter().find(is_back) else {
        return Ok(());
    };
    if office.station.node.promises_everywhere() && !has_everything(office, region).await {
        return Ok(());
    }
    tracing::info!(region = region.name, "a region has caught up and serves");
    office.decide(topology.seeded(region.id)?).await?;
    office.publish().await;
    Ok(())
}

/// Whether a region has everything that was acknowledged, and all nodes wait for it with what comes: from then on it may be the
/// one to take over.
async fn has_everything(office: &Office, region: &Region) -> bool {
    let mut logs = office.station.node.serving_logs();
    logs.insert(LogId::SYSTEM);
    let asking = office.questions.proven(&office.station, &logs, Some(region.id));
    let heads = tokio::time::timeout(TAKING_IN, asking).await;
    heads.is_ok_and(|heads| heads.len() == logs.len())
}

/// The streams become, or are, mirrors of those of the region that writes.
async fn follow_writer(office: &Office) -> Result<()> {
    let topology = office.geography.topology();
    let writer = &topology.writer().name;
    let (origin, epoch) = (Origin::of(&store_of(writer)), topology.epoch.0);
    let standing = office.mirrors.standing().await.map_err(unknown)?;
    if standing == Standing::Mirrors(origin.name.clone()) {
        office.set_following(epoch);
        return watch(office, &origin).await;
    }
    // What is here is not given up before the other region has taken over, nor while this node still writes.
    if !office.geography.serves(writer, epoch) || office.station.node.takes_writes() {
        return Ok(());
    }
    let own = office.geography.own();
    if !own.cut_off.is_empty() {
        arrive(office, &standing).await?;
    }
    let has_parted = keep::has_parted(&office.positions(), &own.cut_off);
    if has_parted {
        keep::rescue(office, writer, &own).await?;
    }
    tracing::info!(writer, "the streams of this region become mirrors of another's");
    office.mirrors.follow(&origin).await.map_err(unknown)?;
    if has_parted {
        begin_generation(office).await?;
    }
    office.set_following(epoch);
    Ok(())
}

/// Before it is decided what of this region's copies is not part of the account: nothing more comes from the region that was taken over
/// from, and this node has everything that any node of its region can have.
async fn arrive(office: &Office, standing: &Standing) -> Result<()> {
    if matches!(standing, Standing::Mirrors(_)) {
        office.mirrors.promote().await.map_err(unknown)?;
    }
    office
        .store
        .refresh()
        .await
        .map_err(orrery_partition::decide::unreadable)
}

/// Copies of all nodes of the region are made anew.
async fn begin_generation(office: &Office) -> Result<()> {
    let found = office.roster.get(GENERATION).await.map_err(unknown)?;
    let generation = found.map_or(0, |entry| generation_of(&entry.value)) + 1;
    let text = Bytes::from(generation.to_string());
    office.roster.put(GENERATION, text).await.map_err(unknown)
}

/// Makes mirrors anew that have stalled.
async fn watch(office: &Office, origin: &Origin) -> Result<()> {
    let own = office.mirrors.reached().await.map_err(unknown)?;
    let theirs = office.mirrors.reached_by(origin).await.ok();
    for idx in office.stalled(&own, theirs.as_deref()) {
        tracing::warn!(stream = idx, "a mirror has stalled and is made anew");
        office.mirrors.renew(idx, origin).await.map_err(unknown)?;
    }
    Ok(())
}

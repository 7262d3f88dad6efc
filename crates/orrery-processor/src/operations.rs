//! What an operator does with a unit: look at its leases, move them, pause it, bring in those of another processor.
//!
//! A reset gives every lease a new position and takes it from whoever holds it, in one conditional write each: a host that
//! is still running finds its next write refused and lets go, so no late checkpoint can undo the reset. Invariant: a unit
//! that is running is reset only if the caller says so.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::balance::{Listing, Liveness, Watch};
use crate::clock;
use crate::error::{FeedError, StartError, StoreError};
use crate::feed::{FeedSource, can_start, token_now};
use crate::lease::{FeedMode, Lease, detect_foreign, import_foreign};
use crate::names::{UnitNames, check_processor_name};
use crate::processor::{Coverage, list_unit, set_paused};
use crate::pull::{BadCursor, Cursor, PullError};
use crate::range::{EpkRange, Tiling};
use crate::start::{Position, StartFrom, stamp};
use crate::store::{Created, LeaseStore, id_of};
use crate::token::FeedToken;

/// How often a lease that keeps changing is reset again.
const ATTEMPTS: u32 = 10;

/// Where a unit is moved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResetTo {
    Now,
    Start(StartFrom),
    /// One position for every lease; only for a feed whose partitions share their numbering, or a unit of one lease.
    Token(FeedToken),
    /// Where a reader or a unit stood, range by range. A lease that spans several of its ranges goes to the earliest.
    Cursor(Cursor),
}

/// A reset that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    #[error("the unit is running: {} live; stop it, or take the leases from its hosts", .0.join(", "))]
    Running(Vec<String>),
    #[error("this server lets a unit that reads all versions be moved to now or to a token only")]
    Mode,
    #[error("the leases were written by the Java processor, which alone can move them; import them under another name")]
    Foreign,
    #[error("the lease {0} changes faster than it can be reset")]
    Contended(String),
    #[error("the cursor does not say where the lease {0} should go")]
    NotCovered(String),
    #[error(transparent)]
    Cursor(#[from] BadCursor),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A lease as an operator sees it.
#[derive(Clone, Debug)]
pub struct LeaseStatus {
    pub lease: Lease,
    pub liveness: Liveness,
    /// Since its document was last written, by the server's clock: a live owner renews it.
    pub age: Option<Duration>,
}

/// A unit from outside.
///
/// ```
/// use std::time::Duration;
///
/// use orrery_processor::operations::{Operations, ResetTo};
/// use orrery_processor::store::MemoryLeases;
/// use orrery_processor::testkit::ScriptedFeed;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let expiry = Duration::from_secs(60);
/// let unit = Operations::open("order-printer", ScriptedFeed::new(1), MemoryLeases::new(), expiry).await?;
/// unit.set_paused(true).await?;
/// let n_leases = unit.reset(&ResetTo::Now, false).await?;
/// assert_eq!(n_leases, 0, "nobody has started it yet");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Operations {
    names: UnitNames,
    source: Arc<dyn FeedSource>,
    store: Arc<dyn LeaseStore>,
    expiry: Duration,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Operations")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Operations {
    /// `expiry` is the lease expiry of the unit's hosts.
    pub async fn open(
        processor: &str,
        source: impl FeedSource,
        store: impl LeaseStore,
        expiry: Duration,
    ) -> Result<Operations, StartError> {
        check_processor_name(processor).map_err(|error| StoreError::Refused(error.into()))?;
        let description = source.describe().await?;
        Ok(Operations {
            names: UnitNames::new(processor, &description.identity),
            source: Arc::new(source),
            store: Arc::new(store),
            expiry,
        })
    }

    pub fn names(&self) -> &UnitNames {
        &self.names
    }

    /// The leases, and whether the unit is paused.
    pub async fn status(&self) -> Result<(Vec<LeaseStatus>, bool), StoreError> {
        let listed = list_unit(self.store.as_ref(), &self.names).await?;
        let (paused, listing) = (listed.paused, listed.with_foreign());
        let mut watch = Watch::default();
        watch.note(&listing, Duration::ZERO, Duration::ZERO);
        let now = listing.server_now_ms.map(Duration::from_millis);
        let age = |lease: &Lease| Some(now?.saturating_sub(Duration::from_secs(lease.written_at_s?)));
        let status = |lease: &Lease| LeaseStatus {
            lease: lease.clone(),
            liveness: watch.liveness(lease, &listing, self.expiry),
            age: age(lease),
        };
        Ok((listing.leases.iter().map(status).collect(), paused))
    }

    /// How the leases cover the key space.
    pub async fn tiling(&self) -> Result<Tiling, StartError> {
        let listed = list_unit(self.store.as_ref(), &self.names).await?.with_foreign();
        Ok(Coverage::of(self.source.as_ref(), &listed).await?.tiling())
    }

    pub async fn set_paused(&self, paused: bool) -> Result<(), StoreError> {
        set_paused(self.store.as_ref(), &self.names, paused).await
    }

    /// Moves every lease. With `from_running`, leases are taken from hosts that hold them.
    pub async fn reset(&self, to: &ResetTo, from_running: bool) -> Result<usize, ResetError> {
        if list_unit(self.store.as_ref(), &self.names).await?.is_foreign {
            return Err(ResetError::Foreign);
        }
        let (leases, _) = self.status().await?;
        let mut live: Vec<String> = leases
            .iter()
            .filter(|status| status.liveness == Liveness::Live)
            .filter_map(|status| status.lease.owner.clone())
            .collect();
        live.sort_unstable();
        live.dedup();
        if !live.is_empty() && !from_running {
            return Err(ResetError::Running(live));
        }
        if let ResetTo::Cursor(cursor) = to {
            self.check_cursor(cursor, leases.first()).await?;
        }
        let n_leases = leases.len();
        for LeaseStatus { lease, .. } in leases {
            self.reset_one(lease, to).await?;
        }
        Ok(n_leases)
    }

    async fn reset_one(&self, mut lease: Lease, to: &ResetTo) -> Result<(), ResetError> {
        let position = match to {
            ResetTo::Now => Position::From(StartFrom::Now),
            ResetTo::Start(start) => Position::From(*start),
            ResetTo::Token(token) => Position::After(token.clone()),
            ResetTo::Cursor(cursor) => place_of(&lease, cursor)?,
        };
        let position = match position {
            Position::From(StartFrom::Now) => Position::After(self.now(&lease).await?),
            Position::From(start) => {
                self.check_start(&lease, start).await?;
                position
            }
            position => position,
        };
        for _ in 0..ATTEMPTS {
            let next = lease.reset(&position, &stamp(clock::since_1970()));
            let etag = lease.etag.as_deref().unwrap_or_default();
            match self.store.replace(&next.to_document(), etag).await {
                Ok(_) => return Ok(()),
                Err(StoreError::NotFound) => return Ok(()),
                Err(StoreError::Changed) => {}
                Err(error) => return Err(error.into()),
            }
            let Some(fresh) = self.store.read(&next.to_document()).await? else {
                return Ok(());
            };
            lease = Lease::from_document(&fresh).map_err(|error| StoreError::Refused(error.into()))?;
        }
        Err(ResetError::Contended(lease.token))
    }

    async fn check_cursor(&self, cursor: &Cursor, lease: Option<&LeaseStatus>) -> Result<(), ResetError> {
        let described = self.source.describe().await.map_err(StartError::from)?;
        cursor.check_ranges()?;
        if cursor.container_rid() != described.identity.container_rid {
            return Err(BadCursor::OtherContainer.into());
        }
        match lease {
            Some(status) if status.lease.feed_mode() != cursor.mode() => Err(BadCursor::OtherMode.into()),
            _ => Ok(()),
        }
    }

    /// Of all versions, not every server gives those from before now.
    async fn check_start(&self, lease: &Lease, start: StartFrom) -> Result<(), ResetError> {
        let mode = lease.feed_mode();
        if mode == FeedMode::LatestVersion {
            return Ok(());
        }
        let (range, start) = (self.range_of(lease).await?, Position::From(start));
        let can = can_start(self.source.as_ref(), &range, &start, mode).await;
        match can.map_err(StartError::from)? {
            true => Ok(()),
            false => Err(ResetError::Mode),
        }
    }

    async fn now(&self, lease: &Lease) -> Result<FeedToken, StartError> {
        let range = self.range_of(lease).await?;
        Ok(token_now(self.source.as_ref(), &range, lease.feed_mode()).await?)
    }

    /// The keys of a lease; old ones name their partition only.
    async fn range_of(&self, lease: &Lease) -> Result<EpkRange, StartError> {
        let range = match &lease.range {
            Some(range) => Some(range.clone()),
            None => self.source.partition_of(&lease.token).await?,
        };
        Ok(range.unwrap_or_else(EpkRange::full))
    }

    /// Creates this unit's leases from documents of another processor, at the positions they say. Leases that exist stay as
    /// they are; how many were created comes back. Nothing is created unless every document can be read and says where it
    /// stands.
    pub async fn import(&self, documents: &[Value]) -> Result<usize, StartError> {
        self.import_all(documents, None).await
    }

    /// The same, also for leases that do not say where they stand, because nothing was read from them yet: those begin at
    /// `start`.
    pub async fn import_from(&self, documents: &[Value], start: StartFrom) -> Result<usize, StartError> {
        self.import_all(documents, Some(start)).await
    }

    async fn import_all(&self, documents: &[Value], start: Option<StartFrom>) -> Result<usize, StartError> {
        let mut leases = Vec::new();
        for document in documents {
            for lease in self.translated(document).await? {
                leases.push(self.placed(lease, start, document).await?);
            }
        }
        Ok(self.create(leases).await?)
    }

    /// With a position, and with now as the token of this moment.
    async fn placed(&self, lease: Lease, start: Option<StartFrom>, document: &Value) -> Result<Lease, StartError> {
        let unknown = || StartError::NoPosition(id_of(document).to_owned());
        let position = lease.position().or(start.map(Position::From)).ok_or_else(unknown)?;
        Ok(match position {
            Position::From(StartFrom::Now) => {
                let now = self.now(&lease).await?;
                lease.at(&Position::After(now))
            }
            position => lease.at(&position),
        })
    }

    async fn translated(&self, document: &Value) -> Result<Vec<Lease>, StartError> {
        let id = |range: &EpkRange| self.names.lease(&range.to_string());
        let unreadable =
            || StoreError::Refused(format!("`{}` is no lease that can be imported", id_of(document)).into());
        let lease = match Lease::from_document(document) {
            Ok(lease) if detect_foreign(document).is_none() => lease,
            _ => return Ok(import_foreign(document, id).ok_or_else(unreadable)?),
        };
        // Old leases name their partition only.
        let range = match &lease.range {
            Some(range) => Some(range.clone()),
            None => self.source.partition_of(&lease.token).await?,
        };
        let range = range.ok_or_else(unreadable)?;
        let ours = Lease {
            mode: lease.mode,
            ..Lease::for_range(id(&range), range, lease.feed_mode())
        };
        Ok(vec![match lease.position() {
            Some(position) => ours.at(&position),
            None => ours,
        }])
    }

    async fn create(&self, leases: Vec<Lease>) -> Result<usize, StoreError> {
        let mut n_created = 0;
        for lease in leases {
            if let Created::New(_) = self.store.create(&lease.to_document()).await? {
                n_created += 1;
            }
        }
        Ok(n_created)
    }

    /// Where the unit stands: to be kept, to go on from as a reader, to start another unit at, to come back to.
    pub async fn cursor(&self) -> Result<Cursor, PullError> {
        let listed = list_unit(self.store.as_ref(), &self.names)
            .await
            .map_err(FeedError::from)?;
        let rid = self.source.describe().await?.identity.container_rid;
        Ok(cursor_of(rid, &listed.with_foreign())?)
    }

    /// Creates the leases of a unit that has none yet, where a reader that pulled stands. How many were created comes back.
    pub async fn start_at(&self, cursor: &Cursor) -> Result<usize, PullError> {
        cursor.check_ranges()?;
        if cursor.container_rid() != self.source.describe().await?.identity.container_rid {
            return Err(BadCursor::OtherContainer.into());
        }
        let lease = |(range, position): (&EpkRange, &Position)| {
            let id = self.names.lease(&range.to_string());
            Lease::for_range(id, range.clone(), cursor.mode()).at(position)
        };
        let leases = cursor.ranges().map(lease).collect();
        Ok(self.create(leases).await.map_err(FeedError::from)?)
    }
}

fn place_of(lease: &Lease, cursor: &Cursor) -> Result<Position, ResetError> {
    let place = lease.range.as_ref().and_then(|range| cursor.position_of(range));
    place.ok_or_else(|| ResetError::NotCovered(lease.token.clone()))
}

/// The positions of a unit's leases. A lease that is being cut stands for what has no lease of its own yet.
pub(crate) fn cursor_of(container_rid: String, listing: &Listing) -> Result<Cursor, BadCursor> {
    let mode = listing.leases.first().map(Lease::feed_mode).unwrap_or_default();
    let mut parts = Vec::new();
    for lease in &listing.leases {
        let range = lease.range.clone().ok_or(BadCursor::NotRanges)?;
        let position = lease.position().ok_or(BadCursor::NoPosition)?;
        let others = listing.leases.iter().filter(|other| !other.is_retired());
        let ranges = match lease.is_retired() {
            true => range.without(others.filter_map(|other| other.range.as_ref())),
            false => vec![range],
        };
        parts.extend(ranges.into_iter().map(|range| (range, position.clone())));
    }
    Cursor::of(container_rid, mode, parts)
}

/// Units that have leases in a store: the prefix of their ids, with the number of leases and the owners.
pub async fn units(store: &dyn LeaseStore) -> Result<Vec<UnitSummary>, StoreError> {
    let found = store.list("").await?;
    let mut units: std::collections::BTreeMap<String, UnitSummary> = std::collections::BTreeMap::new();
    for document in &found.documents {
        let Some((prefix, _)) = id_of(document).split_once("..") else {
            continue;
        };
        let unit = units.entry(prefix.to_owned()).or_insert_with(|| UnitSummary {
            prefix: prefix.to_owned(),
            n_leases: 0,
            owners: Vec::new(),
        });
        unit.n_leases += 1;
        if let Some(owner) =
            crate::store::text_of(document, "Owner").filter(|owner| !unit.owners.iter().any(|known| known == owner))
        {
            unit.owners.push(owner.to_owned());
        }
    }
    Ok(units.into_values().collect())
}

/// A unit as a listing of its store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSummary {
    /// Processor name, endpoint host and resource ids, run together as in the ids.
    pub prefix: String,
    pub n_leases: usize,
    pub owners: Vec<String>,
}

impl UnitSummary {
    /// The processor's name, if the unit reads this container.
    pub fn processor(&self, source: &crate::names::SourceIdentity) -> Option<&str> {
        let rest = UnitNames::new("", source);
        self.prefix.strip_suffix(rest.prefix())
    }
}

//! The change feed: a page of changes after a place, or the news that there are none.
//!
//! A read names a part of the key space and a place per part of it; the parts are cut at the partitions that serve now, so a
//! place that was saved before a split or merge goes on afterwards. Parts are read in turn; the first that has changes gives
//! the page, and only when none has is the answer "nothing new". A page holds whole transactions.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Charge, Error, Lsn, Result, Status};
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;

use crate::api::{
    ChangeFeedRead, Changes, Facts, Failure, FeedMode, FeedStart, FromHistory, HeadFacts, Options, Outcome, Principal,
    Reply,
};
use crate::authorize;
use crate::catalogue::ContainerEntry;
use crate::feed::{blocking, target_range};
use crate::items::{find_container, finish, gone};
use crate::node::Node;
use crate::partition::Partition;

mod ahead;
mod filter;
mod place;
mod scan;
mod seek;
mod wait;

use filter::Filter;
use place::{From, Part, Place};
use scan::{Scan, Scanned};

/// Changes of a page when the client does not say, and at most.
const PAGE_CHANGES_DEFAULT: usize = 100;
const PAGE_CHANGES_MAX: usize = 10_000;
/// Longest time a reader may wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Readers of an account that wait at a time; more are told to come back.
pub const WAITERS_MAX: usize = 4_096;
/// How long a reader that wants only what every region has waits for the others.
const COMMITTED_PATIENCE: Duration = Duration::from_millis(500);
/// How often a read begins again because partitions changed under it.
const RESHARD_RETRIES: usize = 3;

pub async fn read(
    node: &Arc<Node>,
    principal: &Principal,
    options: &Options,
    request: ChangeFeedRead,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, &request.container)?;
    authorize::scope(principal, &container.rid, request.target.partition_key.as_ref(), None)?;
    let mut facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        ..Facts::default()
    };
    let result = read_or_wait(node, options, &request, &mut facts).await;
    // What was paid in every part that was looked at, and something for a question that reached none.
    facts.charge = facts.charge.max(node.charge_of_read(options, Charge::page(0, 0)));
    finish(result, facts)
}

/// Reads until there is something, or the time is over that the reader is willing to wait.
async fn read_or_wait(
    node: &Arc<Node>,
    options: &Options,
    request: &ChangeFeedRead,
    facts: &mut Facts,
) -> Result<Outcome> {
    let container = find_container(node, options, &request.container)?;
    let (mut places, lasting) = first_places(node, &container, request)?;
    let filter = request.filter.as_deref().map(Filter::parse).transpose()?.map(Arc::new);
    let wait = Duration::from_millis(request.wait_ms).min(WAIT_MAX);
    let deadline = tokio::time::Instant::now() + wait;
    let permit = (!wait.is_zero()).then(|| wait::admit(node)).transpose()?;
    let mut n_retries = 0;
    loop {
        let container = find_container(node, options, &request.container)?;
        let reader = Reader {
            node,
            options,
            request,
            container: &container,
            filter: filter.as_ref(),
        };
        let page = match reader.page(&places, facts).await {
            Err(error) if reader.may_retry(&error) && n_retries < RESHARD_RETRIES => {
                n_retries += 1;
                continue;
            }
            page => page?,
        };
        if page.has_news() || permit.is_none() || tokio::time::Instant::now() >= deadline {
            return Ok(reader.answer(page, lasting));
        }
        places = page.places;
        wait::for_news(page.watched, deadline).await;
    }
}

/// Where a request begins, and whether its tag must outlive splits and merges.
fn first_places(node: &Node, container: &ContainerEntry, request: &ChangeFeedRead) -> Result<(Vec<Place>, bool)> {
    if request.committed_only && node.duty.clustered && node.account().regions.len() > 1 {
        return Err(Error::bad_request(
            "Regions of a cluster do not tell each other how far all of them are: the change feed cannot be limited to what every \
             region has.",
        ));
    }
    let range = target_range(container, &request.target)?;
    let n_partitions = container.overlapping(&range).count();
    if n_partitions == 0 {
        return Err(gone());
    }
    check_mode(container, request)?;
    let from = match &request.start {
        FeedStart::Beginning => From::Beginning,
        FeedStart::Now => From::Now,
        FeedStart::Time(seconds) => From::Time(*seconds),
        FeedStart::After(tag) => match place::read_position(tag) {
            Some(_) if n_partitions > 1 => {
                return Err(Error::bad_request(
                    "The continuation is a position in one partition, but the request spans several: name one of them, or a \
                     logical partition.",
                ));
            }
            Some(lsn) => From::After(lsn).since(request.newer_than),
            None => {
                let secret = &node.keys().internal;
                let mut places = place::decode(tag, &container.rid, request.mode, secret)?;
                for place in &mut places {
                    place.from = place.from.since(request.newer_than);
                }
                return Ok((place::cut_to(places, &range)?, true));
            }
        },
    };
    let lasting = request.lasting_tag || n_partitions > 1;
    Ok((vec![Place { range, from }], lasting))
}

fn check_mode(container: &ContainerEntry, request: &ChangeFeedRead) -> Result<()> {
    if request.mode == FeedMode::LatestVersions {
        return Ok(());
    }
    if container.definition.change_feed_retention_minutes().is_none() {
        return Err(Error::bad_request(
            "The change feed of all versions and deletes is not enabled for this container: its changeFeedPolicy has no \
             retentionDuration.",
        ));
    }
    match request.start {
        FeedStart::Beginning | FeedStart::Time(_) if request.from_history == FromHistory::No => {
            Err(Error::bad_request(
                "The change feed of all versions and deletes starts now or from a continuation, neither from the beginning nor \
             from a point in time.",
            ))
        }
        _ => Ok(()),
    }
}

/// What one pass over the parts gave.
struct Page {
    scanned: Scanned,
    /// Where every part stands now, in the order in which they are read next.
    places: Vec<Place>,
    watched: Vec<wait::Watched>,
}

impl Page {
    /// Something to tell, if only that there is more to search.
    fn has_news(&self) -> bool {
        !self.scanned.changes.is_empty() || !self.scanned.ended
    }
}

struct Reader<'a> {
    node: &'a Arc<Node>,
    options: &'a Options,
    request: &'a ChangeFeedRead,
    container: &'a Arc<ContainerEntry>,
    filter: Option<&'a Arc<Filter>>,
}

impl Reader<'_> {
    /// A reader that did not name a partition need not know that one was split or merged under it.
    fn may_retry(&self, error: &Error) -> bool {
        self.request.target.partition.is_none() && error.status() == Status::PARTITION_GONE
    }

    async fn page(&self, places: &[Place], facts: &mut Facts) -> Result<Page> {
        let range = target_range(self.container, &self.request.target)?;
        let mut parts = place::parts(self.container, places, &range)?;
        self.settle_now(&mut parts)?;
        let mut page = Page {
            scanned: Scanned::nothing(),
            places: Vec::new(),
            watched: Vec::new(),
        };
        for index in 0..parts.len() {
            let (scanned, watched) = self.part(&parts[index], facts).await?;
            page.watched.push(watched);
            let Some(scanned) = scanned else { continue };
            let from = parts[index].place.from;
            parts[index].place.from = from.moved_to(scanned.reached);
            page.scanned = scanned;
            if page.has_news() {
                // The next page begins with the next part, so that a busy one does not starve the others.
                parts.rotate_left(index + 1);
                break;
            }
        }
        page.places = parts.into_iter().map(|part| part.place).collect();
        Ok(page)
    }

    /// "Now" is when the first read is answered, for every part: one that is read later must not skip what happens between.
    fn settle_now(&self, parts: &mut [Part]) -> Result<()> {
        for part in parts.iter_mut().filter(|part| part.place.from == From::Now) {
            part.place.from = From::After(self.node.partition(&part.entry)?.log.head().lsn);
        }
        Ok(())
    }

    /// What is new in a part, or nothing while that must not be told.
    async fn part(&self, part: &Part, facts: &mut Facts) -> Result<(Option<Scanned>, wait::Watched)> {
        let partition = self.node.partition(&part.entry)?;
        // Should it be refused; an answer shows what it has after the wait.
        facts.partition = Some(partition.facts(Lsn::ZERO, None));
        partition.throttle.admit(|| self.node.now())?;
        partition
            .wait_for_session(
                self.options.session.as_ref(),
                &part.entry.parents,
                self.container.n_partitions_ever,
            )
            .await?;
        self.node.await_bound(self.options, &partition).await?;
        let snapshot = partition.snapshot()?;
        self.node
            .confirm(self.options, &partition, snapshot.position().lsn)
            .await?;
        let head = snapshot.position().lsn;
        facts.head = Some(head_facts(head, &*snapshot)?);
        if !self.may_tell(&partition, part.place.from, head).await {
            return Ok((None, watched(&partition, partition.everywhere_reaches(head))));
        }
        let scanned = match part.place.from.lsn() {
            // Nothing to look through: answered without leaving the reactor, as most polls are.
            Some(lsn) if lsn >= head => Scanned {
                reached: lsn,
                ..Scanned::nothing()
            },
            _ => {
                let scan = self.scan(part);
                let partition = Arc::clone(&partition);
                blocking(move || scan.run(&*snapshot, &partition)).await?
            }
        };
        let charge = Charge::page(scanned.n_bytes, scanned.changes.len());
        let charge = self.node.charge_of_read(self.options, charge);
        partition.throttle.pay(charge);
        facts.charge += charge;
        facts.partition = Some(partition.facts(Lsn::ZERO, None));
        let log = Arc::clone(&partition.log);
        let moved_on = async move {
            log.wait_past(head).await;
        };
        Ok((Some(scanned), watched(&partition, moved_on)))
    }

    /// May a reader be told of everything up to `head`? One who wants only what every region has waits for that, a little. Showing
    /// the part that they have would not do: an item that was changed once more since is not in it, and would be passed over by a
    /// reader who goes on in a region that never had the later change. What a cluster's log holds is in all of its one region.
    async fn may_tell(&self, partition: &Partition, from: From, head: Lsn) -> bool {
        let is_new = from.lsn().is_none_or(|lsn| lsn < head);
        if !self.request.committed_only || self.node.duty.clustered || !is_new {
            return true;
        }
        let arrived = partition.everywhere_reaches(head);
        tokio::time::timeout(COMMITTED_PATIENCE, arrived).await.is_ok()
    }

    fn scan(&self, part: &Part) -> Scan {
        Scan {
            container: Arc::clone(self.container),
            mode: self.request.mode,
            range: part.place.range.clone(),
            from: part.place.from,
            n_entries_max: self.node.settings.feed_entries_max,
            now: self.node.now(),
            n_changes_max: self
                .request
                .n_items_max
                .unwrap_or(PAGE_CHANGES_DEFAULT)
                .clamp(1, PAGE_CHANGES_MAX),
            filter: self.filter.map(Arc::clone),
            skips_lost: self.request.from_history == FromHistory::Oldest,
            facts_only: self.request.facts_only,
        }
    }

    fn answer(&self, page: Page, lasting: bool) -> Outcome {
        let etag = match page.places.as_slice() {
            [place] if !lasting => place.from.lsn().map(place::position),
            _ => None,
        };
        let etag = etag.unwrap_or_else(|| {
            let secret = &self.node.keys().internal;
            place::encode(&page.places, &self.container.rid, self.request.mode, secret)
        });
        if page.scanned.changes.is_empty() && page.scanned.ended {
            return Outcome::NotModified { etag };
        }
        Outcome::Changes(Changes {
            container: self.container.rid.clone(),
            changes: page.scanned.changes,
            etag,
        })
    }
}

/// A partition to be looked at again when something completes, or when it ends.
fn watched(partition: &Partition, news: impl Future<Output = ()> + Send + 'static) -> wait::Watched {
    wait::Watched {
        news: Box::pin(news),
        ended: Box::pin(partition.ended()),
    }
}

fn head_facts(lsn: Lsn, snapshot: &dyn orrery_partition::storage::Snapshot) -> Result<HeadFacts> {
    let state = PartitionState::load(snapshot).map_err(unreadable)?;
    Ok(HeadFacts {
        lsn,
        at_ms: state.map_or(0, |state| state.head_at.0),
    })
}

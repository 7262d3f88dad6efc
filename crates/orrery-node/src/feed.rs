//! Reading a container page by page, in the order of EPK and then of creation.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::key::KeyKind;
use orrery_model::{Charge, Epk, EpkRange, Error, Result, Status};
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::is_expired;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::stored::StoredItem;

use crate::api::{ContainerRef, Facts, Failure, Feed, FeedOf, FeedTarget, Options, Outcome, Page, Principal, Reply};
use crate::authorize;
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::continuation::Continuation;
use crate::items::{find_container, finish, gone};
use crate::node::Node;

/// Items of a page when the client does not say.
const PAGE_ITEMS_DEFAULT: usize = 100;
/// Most items and bytes of a page, whatever the client says.
const PAGE_ITEMS_MAX: usize = 10_000;
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

pub async fn read(
    node: &Arc<Node>,
    principal: &Principal,
    options: &Options,
    container: &ContainerRef,
    target: &FeedTarget,
    page: &Page,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, container)?;
    authorize::scope(principal, &container.rid, target.partition_key.as_ref(), None)?;
    let mut facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        ..Facts::default()
    };
    let result = read_page(node, options, &container, target, page, &mut facts).await;
    finish(result, facts)
}

async fn read_page(
    node: &Arc<Node>,
    options: &Options,
    container: &Arc<ContainerEntry>,
    target: &FeedTarget,
    page: &Page,
    facts: &mut Facts,
) -> Result<Outcome> {
    let range = target_range(container, target)?;
    let secret = &node.keys().internal;
    let after = page
        .continuation
        .as_deref()
        .map(|text| Continuation::decode(text, secret))
        .transpose()?;
    let mut collected = Collected::new(page.n_items_max.unwrap_or(PAGE_ITEMS_DEFAULT).clamp(1, PAGE_ITEMS_MAX));
    let account = node.account();
    let session = options.session(account.consistency);
    let mut ranges: VecDeque<RangeEntry> = container.overlapping(&range).cloned().collect();
    while let Some(entry) = ranges.pop_front() {
        if after.as_ref().is_some_and(|after| entry.range.max <= after.epk) {
            continue;
        }
        let partition = match node.partition(&entry) {
            Ok(partition) => partition,
            Err(error) if target.partition.is_some() => return Err(error),
            Err(error) => {
                let successors = successors(node, container, &entry).ok_or(error)?;
                successors.into_iter().rev().for_each(|one| ranges.push_front(one));
                continue;
            }
        };
        // Should it be refused; an answer shows what it has after the wait.
        facts.partition = Some(partition.facts(orrery_model::Lsn::ZERO, None));
        partition.throttle.admit(|| node.now())?;
        partition
            .wait_for_session(session, &entry.parents, container.n_partitions_ever)
            .await?;
        node.await_bound(options, &partition).await?;
        facts.partition = Some(partition.facts(orrery_model::Lsn::ZERO, None));
        let Some(part) = range.intersection(&entry.range) else {
            continue;
        };
        let (snapshot, now, work) = (
            partition.snapshot()?,
            node.now(),
            (Arc::clone(container), after.clone()),
        );
        node.confirm(options, &partition, snapshot.position().lsn).await?;
        // Reading a page may touch the disk many times: off the reactor.
        collected = blocking(move || {
            let (container, after) = work;
            collected.scan(&*snapshot, &container, &part, after.as_ref(), now)?;
            Ok(collected)
        })
        .await?;
        facts.charge = node.charge_of_read(options, Charge::page(collected.bytes, collected.entries.len()));
        partition.throttle.pay(facts.charge);
        if collected.full {
            break;
        }
    }
    facts.charge = node.charge_of_read(options, Charge::page(collected.bytes, collected.entries.len()));
    let continuation = collected
        .full
        .then_some(collected.last)
        .flatten()
        .map(|last| last.encode(secret));
    Ok(Outcome::Feed(Feed {
        of: FeedOf::Items,
        parent: Some(container.rid.clone()),
        entries: collected.entries,
        continuation,
        etag: None,
    }))
}

/// What a partition that was split or merged since the request began goes on as, cut to its range.
fn successors(node: &Node, container: &ContainerEntry, gone: &RangeEntry) -> Option<Vec<RangeEntry>> {
    let current = node.control.catalogue().container(&container.rid).cloned()?;
    let mut found = Vec::new();
    for entry in current.overlapping(&gone.range).filter(|entry| entry.log != gone.log) {
        let range = entry.range.intersection(&gone.range)?;
        found.push(RangeEntry { range, ..entry.clone() });
    }
    (!found.is_empty()).then_some(found)
}

/// The EPKs a feed is about. A named partition must still exist.
pub fn target_range(container: &ContainerEntry, target: &FeedTarget) -> Result<EpkRange> {
    let mut range = match target.partition {
        Some(partition) => Some(container.range(partition).ok_or_else(gone)?.range.clone()),
        None => None,
    };
    if let Some(key) = &target.partition_key {
        let definition = container.definition.partition_key();
        let n_paths = definition.paths().len();
        if key.components().len() > n_paths {
            return Err(Error::bad_request(
                "The partition key has more components than the container's key has paths.",
            ));
        }
        // Only hierarchical keys have prefixes.
        let is_prefix = (1..n_paths).contains(&key.components().len()) && definition.kind() == KeyKind::MultiHash;
        let key = match is_prefix {
            true => Cow::Borrowed(key),
            false => definition.complete(key)?,
        };
        let keyed = EpkRange::of_key(definition, &key);
        range = Some(match range {
            Some(range) => range.intersection(&keyed).ok_or_else(gone)?,
            None => keyed,
        });
    }
    let range = range.unwrap_or_else(EpkRange::full);
    if target.epk_min.is_none() && target.epk_max.is_none() {
        return Ok(range);
    }
    let bounds = EpkRange::new(
        target.epk_min.clone().unwrap_or_else(Epk::min),
        target.epk_max.clone().unwrap_or_else(Epk::max),
    );
    Ok(range
        .intersection(&bounds)
        .unwrap_or(EpkRange::new(Epk::max(), Epk::max())))
}

/// Runs blocking work on a thread meant for it; in its place where there is one thread for everything, as in simulations, which
/// could not tell otherwise what happens first.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    if tokio::runtime::Handle::current().runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::new(Status::INTERNAL, "The read failed.").with_source(error))?
}

/// A page in the making.
#[derive(Debug)]
struct Collected {
    n_items_max: usize,
    entries: Vec<Bytes>,
    bytes: usize,
    last: Option<Continuation>,
    /// The page ended before the range did.
    full: bool,
}

impl Collected {
    fn new(n_items_max: usize) -> Collected {
        Collected {
            n_items_max,
            entries: Vec::new(),
            bytes: 0,
            last: None,
            full: false,
        }
    }

    fn scan(
        &mut self,
        view: &dyn orrery_partition::storage::View,
        container: &ContainerEntry,
        range: &EpkRange,
        after: Option<&Continuation>,
        now: orrery_model::Timestamp,
    ) -> Result<()> {
        let form = EpkForm::of(container.definition.partition_key());
        let first = keys::items_from(form, &range.min);
        let resume = after.map(|after| keys::item(form, &after.epk, after.number));
        let from = match &resume {
            Some(resume) if *resume >= first => Bound::Excluded(resume.as_ref()),
            _ => Bound::Included(first.as_ref()),
        };
        let to = keys::items_from(form, &range.max);
        for entry in view.scan(from, Bound::Excluded(&to), false) {
            let (key, value) = entry.map_err(unreadable)?;
            let item = StoredItem::decode(&value).map_err(unreadable)?;
            if is_expired(&container.definition, &item, now) {
                continue;
            }
            let over = self.bytes + item.body.len() > PAGE_BYTES_MAX && !self.entries.is_empty();
            if self.entries.len() == self.n_items_max || over {
                self.full = true;
                return Ok(());
            }
            let (epk, number) = keys::read_item(form, &key)
                .ok_or_else(|| Error::new(Status::INTERNAL, "an item's key is malformed"))?;
            self.bytes += item.body.len();
            self.entries.push(item.body);
            self.last = Some(Continuation { epk, number });
        }
        Ok(())
    }
}

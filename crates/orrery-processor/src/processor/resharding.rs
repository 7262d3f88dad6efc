//! Carrying out what [`crate::reshard`] plans: cut a lease in front of everybody, so that anybody could finish it.
//!
//! Order: the parent is marked as retired, children are created, the parent is deleted. A child that exists already was
//! created by an earlier attempt and is left alone, because it may have moved on. Invariant: the parent is deleted only
//! when every child exists.

use std::sync::Arc;

use tokio::time::sleep;

use super::coverage::Coverage;
use super::held::NotWritten;
use super::worker::{Finish, Step, Worker};
use crate::error::{FeedError, StoreError};
use crate::events::{Event, Loss};
use crate::lease::Lease;
use crate::range::EpkRange;
use crate::reshard::{Partition, Reshard, epk_child, plan, replace_orphans};

impl Worker {
    /// The lease's range. Old leases of partition ids may not say it; the source knows the partition.
    pub(super) async fn find_range(&mut self) -> Result<Step<EpkRange>, NotWritten> {
        if let Some(range) = &self.held.lease().range {
            return Ok(Step::Done(range.clone()));
        }
        let mut n_failed = 0;
        loop {
            let (unit, token) = (Arc::clone(&self.unit), self.token());
            let asking = async move { unit.source.partition_of(&token).await };
            match self.tend(asking, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(Some(range))) => {
                    // The next write of the lease carries it, so that nobody has to ask again.
                    self.held.set_range(range.clone());
                    return Ok(Step::Done(range));
                }
                Some(Ok(None)) => return Ok(Step::Finish(self.replace_orphan().await?)),
                Some(Err(error)) => {
                    n_failed += 1;
                    self.report(&error);
                    let pause = self.unit.pause(n_failed);
                    if self.tend(sleep(pause), true).await?.is_none() {
                        return Ok(Step::Interrupted);
                    }
                }
            }
        }
    }

    /// The lease names a partition that is gone, and not its range: it gives way to leases of what no other one covers.
    async fn replace_orphan(&mut self) -> Result<Finish, NotWritten> {
        let unit = Arc::clone(&self.unit);
        let asking = async move {
            let listed = unit.list().await?;
            Coverage::of(unit.source.as_ref(), &listed.listing).await
        };
        let Coverage {
            leases,
            orphans,
            partitions,
        } = match self.tend(asking, true).await? {
            Some(Ok(coverage)) => coverage,
            Some(Err(error)) => {
                self.report(&error);
                return Ok(Finish::Release(Loss::Failed));
            }
            None => return Ok(self.wanted().unwrap_or(Finish::Release(Loss::Stopped))),
        };
        let covered: Vec<EpkRange> = leases.into_iter().filter_map(|lease| lease.range).collect();
        let holes = EpkRange::full().without(&covered);
        match replace_orphans(&orphans, &holes, &partitions.unwrap_or_default(), &self.unit.names) {
            Some(children) => self.cut(children).await,
            None => {
                let why = "the lease names a partition that is gone, and not its range, and cannot be put in order";
                self.report(&FeedError::Fatal(why.into()));
                Ok(Finish::Release(Loss::Failed))
            }
        }
    }

    /// The partitions now, with their ids if the lease is known by one; asked again until there is an answer.
    async fn partitions(&mut self) -> Result<Step<Vec<Partition>>, NotWritten> {
        let mut n_failed = 0;
        loop {
            let (unit, by_id) = (Arc::clone(&self.unit), self.held.lease().version == 0);
            let asking = async move {
                match by_id {
                    true => unit.source.named_partitions().await,
                    false => unit.source.partitions().await,
                }
            };
            match self.tend(asking, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(partitions)) => return Ok(Step::Done(partitions)),
                Some(Err(error)) => {
                    n_failed += 1;
                    self.report(&error);
                    let pause = self.unit.pause(n_failed);
                    if self.tend(sleep(pause), true).await?.is_none() {
                        return Ok(Step::Interrupted);
                    }
                }
            }
        }
    }

    /// Cuts the lease if the partitions below it say so.
    pub(super) async fn reshard_if_needed(&mut self, range: &EpkRange) -> Result<Option<Finish>, NotWritten> {
        let Step::Done(partitions) = self.partitions().await? else {
            return Ok(None);
        };
        match plan(self.held.lease(), range, &partitions, &self.unit.names) {
            Reshard::Keep | Reshard::Unknown => Ok(None),
            Reshard::Cut { children } => self.cut(children).await.map(Some),
        }
    }

    /// Finishes the cut of a lease that was retired by somebody who did not get further. Children that exist already stay;
    /// what they leave free becomes leases, whatever the partitions are by now. Nothing if the lease can be read again,
    /// because no child exists and it lies within one partition.
    pub(super) async fn finish_cut(&mut self, range: &EpkRange) -> Result<Option<Finish>, NotWritten> {
        let unit = Arc::clone(&self.unit);
        let listing = async move { unit.list().await };
        let listed = match self.tend(listing, true).await? {
            Some(Ok(listed)) => listed.listing,
            Some(Err(error)) => {
                self.report(&error);
                return Ok(Some(Finish::Release(Loss::Failed)));
            }
            None => return Ok(Some(Finish::Release(Loss::Stopped))),
        };
        let id = self.held.lease().id.clone();
        let others = listed.leases.into_iter().filter(|lease| lease.id != id);
        let children: Vec<EpkRange> = others
            .filter_map(|lease| lease.range)
            .filter(|child| range.overlaps(child))
            .collect();
        if children.is_empty() {
            let finish = self.reshard_if_needed(range).await?;
            if finish.is_none() {
                self.held.unretire().await?;
            }
            return Ok(finish);
        }
        let names = self.unit.names.clone();
        let lease = self.held.lease();
        let missing = range
            .without(&children)
            .into_iter()
            .map(|part| epk_child(lease, part, &names))
            .collect();
        self.cut(missing).await.map(Some)
    }

    async fn cut(&mut self, children: Vec<Lease>) -> Result<Finish, NotWritten> {
        if !self.held.lease().is_retired() {
            // Children begin where their parent stands.
            self.save_reached().await?;
            self.held.retire().await?;
        }
        for child in &children {
            if let Some(finish) = self.create_child(child).await? {
                return Ok(finish);
            }
        }
        let told = Event::Resharded {
            lease: self.token(),
            into: children.into_iter().map(|child| child.token).collect(),
        };
        self.delete_parent(told).await
    }

    async fn create_child(&mut self, child: &Lease) -> Result<Option<Finish>, NotWritten> {
        let mut n_failed = 0;
        loop {
            let (unit, document) = (Arc::clone(&self.unit), child.to_document());
            let creating = async move { unit.store.create(&document).await };
            match self.tend(creating, false).await? {
                Some(Ok(_)) => return Ok(None),
                None => return Ok(Some(Finish::Release(Loss::Stopped))),
                Some(Err(error)) => {
                    n_failed += 1;
                    self.report(&error);
                    let pause = self.unit.pause(n_failed);
                    if self.tend(sleep(pause), true).await?.is_none() {
                        // The mark stays: whoever takes the lease goes on here.
                        return Ok(Some(Finish::Release(Loss::Stopped)));
                    }
                }
            }
        }
    }

    /// Deletes the parent, whose children exist. One that cannot be deleted is kept, retired and unread, and tried again with
    /// growing pauses: its children are there to be taken meanwhile, and whoever takes it after us goes on here.
    async fn delete_parent(&mut self, told: Event) -> Result<Finish, NotWritten> {
        let (mut n_failed, mut told) = (0, Some(told));
        loop {
            let (unit, lease) = (Arc::clone(&self.unit), self.held.lease().clone());
            let deleting = async move { unit.store.delete(&lease.to_document(), lease.etag.as_deref()).await };
            let error = match self.tend(deleting, false).await? {
                Some(Err(error)) if !matches!(error, StoreError::NotFound) => error,
                _ => break,
            };
            n_failed += 1;
            self.report(&error);
            self.tell_of_cut(&mut told);
            let pause = self.unit.pause(n_failed);
            self.tend(sleep(pause), true).await?;
            if let Some(finish) = self.wanted() {
                return Ok(finish);
            }
        }
        self.tell_of_cut(&mut told);
        Ok(Finish::Resharded)
    }

    /// Once: the children are there, and nobody has to wait for the next cycle to take them.
    fn tell_of_cut(&self, told: &mut Option<Event>) {
        if let Some(told) = told.take() {
            self.unit.events.emit(told);
            self.unit.reshaped.notify_one();
        }
    }
}

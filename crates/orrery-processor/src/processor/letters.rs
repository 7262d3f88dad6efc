//! Dead letters on a worker's way: what goes there, what follows it there, and what happens while they cannot be stored.
//!
//! Invariant: a change counts as given up only when its letter is stored, or when the policy is to lose it.

use std::sync::Arc;

use tokio::time::sleep;

use super::deliver::Page;
use super::held::NotWritten;
use super::settings::{GiveUp, KeyOrder};
use super::worker::{Step, Worker};
use crate::dead_letters::{DeadLetter, DeadLetterStore, Within, operation_name};
use crate::error::StoreError;
use crate::events::Event;
use crate::retry::Delivery;

const BEHIND: &str = "an earlier change of this key is a dead letter";

impl Worker {
    /// Whether anything follows when the delegate has failed as often as it may; otherwise it is tried for ever.
    pub(super) fn gives_up(&self) -> bool {
        self.sets_aside() || matches!(self.unit.settings.give_up, GiveUp::Halt | GiveUp::Release)
    }

    /// Whether single items that cannot be handled go out of the way of the others.
    pub(super) fn sets_aside(&self) -> bool {
        match self.unit.settings.give_up {
            GiveUp::DeadLetter => self.unit.dead_letters.is_some(),
            GiveUp::Skip => true,
            GiveUp::Halt | GiveUp::Release => false,
        }
    }

    /// Where letters go, if later changes of their keys have to follow them.
    fn parking(&self) -> Option<Arc<dyn DeadLetterStore>> {
        let parks = self.unit.settings.key_order == KeyOrder::Park && self.unit.settings.give_up == GiveUp::DeadLetter;
        self.unit.dead_letters.clone().filter(|_| parks)
    }

    /// Gives up on items of a delivery and goes on with the others.
    pub(super) async fn give_up(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        items: Vec<(usize, String)>,
    ) -> Result<Step<()>, NotWritten> {
        for (index, error) in items {
            if !delivery.is_pending(index) {
                // It followed an earlier one of its key.
                continue;
            }
            match self.bury(page, index, error, false).await? {
                Step::Done(()) => delivery.drop_items(&[index]),
                other => return Ok(other),
            }
            match self.park_behind(page, delivery, index).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
        }
        Ok(Step::Done(()))
    }

    /// Sends the rest of a key's changes in this page after the one that was given up.
    pub(super) async fn park_behind(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        index: usize,
    ) -> Result<Step<()>, NotWritten> {
        if self.parking().is_none() {
            return Ok(Step::Done(()));
        }
        let paths = &self.unit.description.key_paths;
        let key = page.changes[index].key(paths);
        let later = delivery.pending().filter(|later| *later > index);
        let behind: Vec<usize> = later.filter(|later| page.changes[*later].key(paths) == key).collect();
        self.park_items(page, delivery, behind).await
    }

    /// Sends the changes of parked keys after the ones they wait for.
    pub(super) async fn park(&mut self, page: &Page, lanes: &mut [Delivery]) -> Result<Step<()>, NotWritten> {
        let Some(store) = self.parking() else {
            return Ok(Step::Done(()));
        };
        match self.read_parked(&store).await? {
            Step::Done(()) => {}
            other => return Ok(other),
        }
        if self.unit.parked.is_empty() {
            return Ok(Step::Done(()));
        }
        for delivery in lanes {
            let paths = &self.unit.description.key_paths;
            let is_parked = |index: &usize| self.unit.parked.contains(&page.changes[*index].key(paths));
            let behind: Vec<usize> = delivery.pending().filter(is_parked).collect();
            match self.park_items(page, delivery, behind).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
        }
        Ok(Step::Done(()))
    }

    async fn park_items(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        items: Vec<usize>,
    ) -> Result<Step<()>, NotWritten> {
        for index in &items {
            match self.bury(page, *index, BEHIND.to_owned(), true).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
        }
        if !items.is_empty() {
            delivery.drop_items(&items);
        }
        Ok(Step::Done(()))
    }

    /// Makes sure that the parked keys are known.
    async fn read_parked(&mut self, store: &Arc<dyn DeadLetterStore>) -> Result<Step<()>, NotWritten> {
        let mut n_failed = 0;
        loop {
            let (store, unit, taken_at) = (Arc::clone(store), Arc::clone(&self.unit), self.taken_at);
            let reading = async move {
                let (clock, after) = (|| unit.clock.now(), unit.settings.timing.acquire);
                let list = || store.keys(&unit.processor);
                unit.parked.refresh(taken_at, clock, after, list).await
            };
            match self.tend(reading, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(())) => return Ok(Step::Done(())),
                Some(Err(error)) => {
                    n_failed += 1;
                    if let Step::Interrupted = self.store_failed(&error, n_failed).await? {
                        return Ok(Step::Interrupted);
                    }
                }
            }
        }
    }

    /// Reports a change that is not handled, and stores its letter if there is a place for it. Nothing is skipped because
    /// that place is down: it is tried until it works or the host wants to stop.
    pub(super) async fn bury(
        &mut self,
        page: &Page,
        index: usize,
        error: String,
        parked: bool,
    ) -> Result<Step<()>, NotWritten> {
        let letter = self.letter(page, index, error, parked);
        if let (Some(store), GiveUp::DeadLetter) = (self.unit.dead_letters.clone(), self.unit.settings.give_up) {
            match self.store_letter(store, &letter).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
            if self.unit.settings.key_order == KeyOrder::Park {
                self.unit.parked.insert(letter.key.clone(), self.unit.clock.now());
            }
        }
        self.unit
            .metrics
            .dead_letter(self.unit.labels(Some(&letter.lease_token)));
        self.unit.events.emit(Event::DeadLettered {
            lease: letter.lease_token,
            item: letter.item_id,
            parked,
            error: letter.error,
        });
        Ok(Step::Done(()))
    }

    async fn store_letter(
        &mut self,
        store: Arc<dyn DeadLetterStore>,
        letter: &DeadLetter,
    ) -> Result<Step<()>, NotWritten> {
        let mut n_failed = 0;
        loop {
            let (store, letter) = (Arc::clone(&store), letter.clone());
            let storing = async move { store.put(&letter).await };
            match self.tend(storing, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(())) => return Ok(Step::Done(())),
                Some(Err(error)) => {
                    n_failed += 1;
                    if let Step::Interrupted = self.store_failed(&error, n_failed).await? {
                        return Ok(Step::Interrupted);
                    }
                }
            }
        }
    }

    async fn store_failed(&mut self, error: &StoreError, n_failed: u32) -> Result<Step<()>, NotWritten> {
        self.report(error);
        let pause = self.unit.pause(n_failed);
        let waited = self.tend(sleep(pause), true).await?;
        Ok(waited.map_or(Step::Interrupted, Step::Done))
    }

    fn letter(&self, page: &Page, index: usize, error: String, parked: bool) -> DeadLetter {
        let change = &page.changes[index];
        let source = &self.unit.description.identity.container_rid;
        let key = change.key(&self.unit.description.key_paths);
        let within = Within::of(&page.changes, index, &self.unit.description.key_paths);
        let failure = self.failures.of(index);
        DeadLetter {
            id: DeadLetter::id_of(source, &key, change, within.n_before),
            processor: self.unit.processor.clone(),
            source: source.clone(),
            lease_token: self.token(),
            epoch: self.held.lease().epoch(),
            range: Some(page.range.clone()),
            item_id: change.id().map(str::to_owned),
            lsn: change.metadata.lsn,
            index: within.index,
            committed_at: change.metadata.committed_at_s,
            operation: change
                .metadata
                .operation
                .map(|operation| operation_name(operation).to_owned()),
            parked,
            attempts: failure.map_or(0, |failure| failure.attempts),
            first_failed_at: failure.map(|failure| failure.first_at.clone()),
            failed_at: self.unit.stamp(),
            error,
            current: change.current.clone(),
            previous: change.previous.clone(),
            key,
        }
    }
}

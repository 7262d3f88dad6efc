//! A worker's reads: one page after its position, whatever it takes, and what a page or a refusal says.
//!
//! Invariant: a read that fails is tried again from the same position, and a position that the server no longer keeps is
//! never left without saying so.

use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::held::NotWritten;
use super::settings::WindowPolicy;
use super::worker::{Finish, Step, Worker};
use crate::delegate::chain;
use crate::error::FeedError;
use crate::events::Event;
use crate::feed::{FeedPage, FeedRead};
use crate::lease::Condition;
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::epoch;

/// Reads that say the container is gone before the unit believes it.
const NOT_FOUND_MAX: u32 = 3;

impl Worker {
    pub(super) async fn read(&mut self, range: &EpkRange) -> Result<Step<FeedPage>, NotWritten> {
        let (mut n_failed, mut n_not_found) = (0, 0);
        loop {
            let sent_at = self.unit.clock.now();
            let reading = self.reading(range);
            let error = match self.tend(reading, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(page)) if self.is_of_another_partition(&page) => FeedError::Gone,
                Some(Ok(page)) => {
                    self.read_took = self.unit.clock.now().saturating_sub(sent_at);
                    self.note_page(&page);
                    return Ok(Step::Done(page));
                }
                Some(Err(error)) => error,
            };
            n_failed += 1;
            if matches!(error, FeedError::NotFound(_) | FeedError::Fatal(_)) {
                n_not_found += 1;
            }
            match self.after_read_error(error, range, n_failed, n_not_found).await? {
                Step::Done(()) => {}
                Step::Interrupted => return Ok(Step::Interrupted),
                Step::Finish(finish) => return Ok(Step::Finish(finish)),
            }
        }
    }

    /// A lease that is known by its partition's id has to become another one when that partition is gone, as when it was merged,
    /// also where reading its range goes on as if nothing had happened.
    fn is_of_another_partition(&self, page: &FeedPage) -> bool {
        let lease = self.held.lease();
        lease.version == 0 && page.partition_id.as_ref().is_some_and(|id| *id != lease.token)
    }

    /// One read, which may take its time but not for ever.
    fn reading(&self, range: &EpkRange) -> impl Future<Output = Result<FeedPage, FeedError>> + use<> {
        let (unit, from, range) = (Arc::clone(&self.unit), self.position.clone(), range.clone());
        let from_oldest = self.skipped_from.is_some() && unit.settings.window == WindowPolicy::ResumeFromOldest;
        async move {
            let settings = &unit.settings;
            let read = FeedRead {
                items_max: settings.items_max,
                wait: settings.poll.wait,
                from_oldest,
                ..FeedRead::new(&range, &from, settings.mode)
            };
            let limit = settings.read_timeout + settings.poll.wait.unwrap_or_default();
            let page = timeout(limit, unit.source.read(read)).await;
            page.unwrap_or_else(|late| Err(FeedError::Transient(late.into())))
        }
    }

    /// What a page says beside its changes.
    fn note_page(&mut self, page: &FeedPage) {
        let last = page.changes.last().and_then(|change| change.metadata.lsn);
        let reached = last.or_else(|| page.token.lsn());
        let lag = match (page.is_last && page.changes.is_empty(), page.head_lsn.zip(reached)) {
            (true, _) => Some(0),
            (false, behind) => behind.map(|(head, reached)| head.saturating_sub(reached)),
        };
        let (now, token) = (self.unit.clock.now(), self.token());
        let labels = self.unit.labels(Some(&token));
        self.unit.metrics.feed_charge(labels, page.charge);
        self.unit.metrics.lag(labels, lag);
        self.unit.health.note(&token, |health| {
            health.last_poll = Some(now);
            health.lag = lag;
            health.caught_up = page.is_last && page.changes.is_empty();
            health.oldest_committed_s = page.changes.first().and_then(|change| change.metadata.committed_at_s);
            if health.caught_up {
                health.last_empty = Some(now);
            }
            health.region.clone_from(&page.region);
        });
        self.tell_of_moves(page);
    }

    /// Another region answers, another history goes on, or a part of it was left out.
    fn tell_of_moves(&mut self, page: &FeedPage) {
        let lease = self.token();
        if let Some(to) = page.region.clone().filter(|to| self.region.as_ref() != Some(to))
            && let Some(from) = self.region.replace(to.clone())
        {
            let lease = lease.clone();
            self.unit.events.emit(Event::RegionChanged { lease, from, to });
        }
        let first = page.changes.first().and_then(|change| change.metadata.lsn);
        let next = first.or_else(|| page.token.lsn());
        if let (Some(before), Some(after)) = (self.position.token(), next)
            && before.lsn().is_some_and(|before| epoch(before) < epoch(after))
        {
            let (lease, before) = (lease.clone(), before.to_string());
            self.unit.events.emit(Event::HistoryChanged { lease, before, after });
        }
        if let Some(lost_from) = self.skipped_from.take() {
            let lost_to = first.map_or_else(|| page.token.to_string(), |first| first.saturating_sub(1).to_string());
            self.unit.events.emit(Event::WindowSkipped {
                lease,
                lost_from,
                lost_to,
            });
        }
    }

    /// Waits as the error asks for, or finds that the work is over.
    async fn after_read_error(
        &mut self,
        error: FeedError,
        range: &EpkRange,
        n_failed: u32,
        n_not_found: u32,
    ) -> Result<Step<()>, NotWritten> {
        let mut pause = self.unit.pause(n_failed);
        match &error {
            FeedError::Gone => {
                let finish = self.reshard_if_needed(range).await?;
                if let Some(finish) = finish {
                    return Ok(Step::Finish(finish));
                }
            }
            FeedError::Throttled { retry_after } => pause = retry_after.unwrap_or(pause),
            FeedError::WindowExceeded(message) => return self.window_exceeded(message).await,
            FeedError::NotFound(_) | FeedError::Fatal(_) if n_not_found >= NOT_FOUND_MAX => {
                if let Some(reason) = self.source_gone().await? {
                    return Ok(Step::Finish(Finish::SourceGone(reason)));
                }
            }
            FeedError::NotFound(_) | FeedError::Fatal(_) | FeedError::Transient(_) => {}
        }
        self.report(&error);
        let waited = self.tend(sleep(pause), true).await?;
        Ok(waited.map_or(Step::Interrupted, Step::Done))
    }

    pub(super) fn report(&self, error: &(dyn std::error::Error + 'static)) {
        self.unit.events.emit(Event::Error {
            lease: Some(self.token()),
            error: chain(error),
        });
    }

    /// Asks the server whether the container is still the one the unit was made for.
    async fn source_gone(&mut self) -> Result<Option<String>, NotWritten> {
        let unit = Arc::clone(&self.unit);
        let asking = async move { unit.source.container_rid().await };
        let known = self.unit.description.identity.container_rid.clone();
        Ok(match self.tend(asking, true).await? {
            Some(Ok(rid)) if rid != known => {
                Some(format!("the container is another one now: {rid} instead of {known}"))
            }
            Some(Err(error @ FeedError::NotFound(_))) => Some(chain(&error)),
            _ => None,
        })
    }

    async fn window_exceeded(&mut self, message: &str) -> Result<Step<()>, NotWritten> {
        let position = self.held.lease().continuation.as_ref().map(ToString::to_string);
        self.unit.events.emit(Event::WindowExceeded {
            lease: self.token(),
            position: position.clone(),
            error: message.to_owned(),
        });
        let is_resumed = self.skipped_from.is_some();
        match self.unit.settings.window {
            WindowPolicy::ResumeFromNow => self.position = Position::From(StartFrom::Now),
            // The next read says so; a server that refuses even that cannot go back in time.
            WindowPolicy::ResumeFromOldest if !is_resumed => {}
            WindowPolicy::ResumeFromOldest | WindowPolicy::Halt => return self.halt(message).await,
        }
        self.skipped_from = Some(position.unwrap_or_default());
        Ok(Step::Done(()))
    }

    /// Keeps the lease, so that no other host tries the same in vain, and does nothing with it until the host wants
    /// something else.
    pub(super) async fn halt<T>(&mut self, reason: &str) -> Result<Step<T>, NotWritten> {
        let lease = self.token();
        self.unit
            .health
            .note(&lease, |health| health.halted = Some(reason.to_owned()));
        self.held
            .set_condition(Some(Condition::halted(self.unit.stamp(), reason)));
        self.held.renew(None).await?;
        let reason = reason.to_owned();
        self.unit.events.emit(Event::Halted { lease, reason });
        while self.wanted().is_none() {
            self.tend(futures::future::pending::<()>(), true).await?;
        }
        Ok(Step::Interrupted)
    }
}

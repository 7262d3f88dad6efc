//! What the committer does beside committing: removes what nobody needs any more, and recovers from failures.

use orrery_partition::storage::Result;

use super::catalog::LogState;
use super::committer::Committer;
use super::record::ViewId;
use super::replay::Replay;
use super::segments::SegmentId;
use super::view::Batch;
use crate::frame::Sequence;

/// Entries of a dropped view removed at a time.
const SWEEP_ENTRIES: usize = 1024;

impl Committer {
    /// Removes a part of a view that no log has any more.
    pub(super) fn sweep(&mut self) {
        let Some((view, after)) = self.sweeps.pop_front() else {
            return;
        };
        let keys = match self.shared.view.keys(view, after.as_ref(), SWEEP_ENTRIES) {
            Ok(keys) => keys,
            // It is found again at the next open.
            Err(error) => return tracing::warn!(%error, view = view.0, "cannot sweep a dropped view"),
        };
        let Some(last) = keys.last().cloned() else { return };
        let mut batch = Batch::default();
        keys.into_iter().for_each(|key| batch.remove(key));
        self.write_view(batch);
        self.sweeps.push_back((view, Some(last)));
    }

    /// Removes segments that neither the view nor a hold nor the wish to keep some log needs.
    pub(super) fn tidy(&mut self) {
        let flushed = self.shared.keeper.flushed().sequence;
        let mut is_changed = false;
        while let Some((segment, last, size_bytes)) = self.segments.oldest() {
            let logs = self.shared.catalog.all();
            let is_spare = self.segments.size_bytes() - size_bytes >= self.shared.settings.log_keep_bytes;
            if last > flushed || !logs.iter().all(|log| may_forget(log, segment, is_spare)) {
                break;
            }
            logs.iter().for_each(|log| forget(log, segment, flushed));
            // A hold may have come in between.
            if logs
                .iter()
                .any(|log| log.lock().oldest_segment().is_some_and(|oldest| oldest <= segment))
            {
                break;
            }
            if let Err(error) = self.segments.remove_oldest() {
                tracing::warn!(%error, segment, "cannot remove a segment");
                break;
            }
            is_changed = true;
        }
        if is_changed {
            self.shared.set_log_bytes(self.segments.size_bytes());
        }
    }

    /// Reads the log anew after a failure. A group whose fate was unknown is now there or not, for good.
    pub(super) fn reopen(&mut self) -> Result<()> {
        if self.shared.read_only().is_none() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let mut replay = Replay::new(
            &shared.view,
            &shared.catalog,
            self.project.as_ref(),
            shared.settings.write_buffer_bytes,
        )?;
        replay.indexed = self.applied;
        self.segments
            .reopen(&mut |segment, group| replay.group(segment, group))?;
        replay.finish(self.segments.last())?;
        self.applied = replay.applied;
        self.next_view = self.next_view.max(ViewId(replay.view_max.0 + 1));
        shared.keeper.retry();
        shared.set_writable();
        tracing::info!(group = self.applied, "the store takes writes again");
        Ok(())
    }

    pub(super) fn flush_all(&mut self) -> Result<()> {
        let ticket = self.seal();
        self.shared.keeper.wait_for(ticket)
    }
}

/// May everything this log has in segments up to `segment` go?
fn may_forget(log: &LogState, segment: SegmentId, is_spare: bool) -> bool {
    let content = log.lock();
    match content.last_in(segment) {
        Some(last) => is_spare && log.holds.limit(last) >= last,
        None => true,
    }
}

fn forget(log: &LogState, segment: SegmentId, flushed: Sequence) {
    let mut content = log.lock();
    if let Some(last) = content.last_in(segment) {
        content.trim(log.holds.limit(last), flushed);
    }
}

//! The chores of an account, which whoever runs its role has: to write the time into it, and to apply what waits for other
//! accounts.
//!
//! Neither runs by the clock alone. The role reads every change of every account anyway and says so through its [`Pulse`]: the time is
//! written often while something happens and rarely while nothing does, and the outbox is looked at when a message was put
//! into it, and again and again only while one waits. Invariant: what a pulse does not tell, since it was missed or another
//! process would have told it, is found at the next quiet look.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_processor::out_of_step;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::database::ContentPublishDatabase;
use crate::error::{CallError, PublishError};

/// How often the time is written while things happen, and while nothing does.
const BEAT_INTERVAL: Duration = Duration::from_secs(2);
const BEAT_INTERVAL_QUIET: Duration = Duration::from_secs(20);
/// How long after a change things still happen.
const BUSY_FOR: Duration = Duration::from_secs(10);
/// How often the outbox is looked at while something waits in it, and while nothing does.
const OUTBOX_INTERVAL: Duration = Duration::from_secs(2);
const OUTBOX_INTERVAL_QUIET: Duration = Duration::from_secs(300);

/// What the feeds of a role have told lately.
#[derive(Debug)]
pub(super) struct Pulse {
    /// When anything changed.
    changed: watch::Sender<Option<Instant>>,
    /// Changes when something was put into the outbox.
    mail: watch::Sender<()>,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse {
            changed: watch::Sender::new(None),
            mail: watch::Sender::new(()),
        }
    }
}

impl Pulse {
    /// Something has changed in an account.
    pub fn changed(&self) {
        self.changed.send_replace(Some(Instant::now()));
    }

    /// A message waits in the own account.
    pub fn mail(&self) {
        self.mail.send_replace(());
    }
}

fn beat_interval(quiet_for: Option<Duration>) -> Duration {
    match quiet_for {
        Some(quiet) if quiet < BUSY_FOR => BEAT_INTERVAL,
        _ => BEAT_INTERVAL_QUIET,
    }
}

/// Writes the time for as long as the role runs here. A failure is no reason to stop: the next time comes.
/// While nothing happens it is written together with what else happens by itself, in steps since a moment.
pub(super) async fn keep_beating(
    database: ContentPublishDatabase,
    pulse: &Pulse,
    steps: Option<(Instant, Duration)>,
    stopping: &CancellationToken,
) {
    let mut changes = pulse.changed.subscribe();
    loop {
        let every = beat_interval(changes.borrow_and_update().map(|at| at.elapsed()));
        let written: Result<(), CallError> = database.beat(every).await;
        if let Err(error) = written {
            tracing::debug!(%error, "the time could not be written");
        }
        // Longer steps would leave nothing to wait for.
        let steps = steps.filter(|(_, step)| every == BEAT_INTERVAL_QUIET && *step <= every);
        let early = steps.map(|(since, step)| out_of_step(Instant::now() + every, since, step));
        let pause = every.saturating_sub(early.unwrap_or_default());
        // All only wait, so dropping any loses nothing.
        tokio::select! {
            () = stopping.cancelled() => return,
            () = sleep(pause) => {}
            Ok(()) = changes.changed(), if every != BEAT_INTERVAL => {}
        }
    }
}

/// Looks after the outbox for as long as the role runs here.
pub(super) async fn keep_delivering(database: ContentPublishDatabase, pulse: &Pulse, stopping: &CancellationToken) {
    let (mut mail, mut failed_over) = (pulse.mail.subscribe(), BTreeMap::new());
    loop {
        mail.mark_unchanged();
        let is_empty = match tend(&database, &mut failed_over).await {
            Ok(is_empty) => is_empty,
            Err(error) => {
                tracing::debug!(%error, "the outbox waits for its next turn");
                false
            }
        };
        let pause = if is_empty {
            OUTBOX_INTERVAL_QUIET
        } else {
            OUTBOX_INTERVAL
        };
        tokio::select! {
            () = stopping.cancelled() => return,
            () = sleep(pause) => {}
            Ok(()) = mail.changed(), if is_empty => {}
        }
    }
}

/// Applies what can be applied, and has accounts failed over that nothing can be applied to, if that is the policy. Whether
/// nothing waits any more.
async fn tend(
    database: &ContentPublishDatabase,
    failed_over: &mut BTreeMap<String, Instant>,
) -> Result<bool, PublishError> {
    let is_empty = database.drain_outbox().await?.is_empty;
    if !is_empty {
        database.relieve_outbox(failed_over).await?;
    }
    Ok(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_written_often_after_a_change_and_rarely_when_nothing_happens() {
        for (quiet_for, expected) in [
            (None, BEAT_INTERVAL_QUIET),
            (Some(Duration::ZERO), BEAT_INTERVAL),
            (Some(BUSY_FOR / 2), BEAT_INTERVAL),
            (Some(BUSY_FOR), BEAT_INTERVAL_QUIET),
        ] {
            assert_eq!(beat_interval(quiet_for), expected, "{quiet_for:?}");
        }
    }
}

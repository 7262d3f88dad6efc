//! A processor in a short-lived process: it works until everything that was waiting is done, and stops.
//!
//! Positions live in the lease store, so such a process can run from time to time, and several at once. Invariant: it does
//! not stop before every lease of the unit, whoever holds it, has been seen with nothing waiting.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::host::Stopped;
use super::{Processor, Running};
use crate::error::StartError;
use crate::estimator::Estimator;

/// How often the leases are looked at.
const LOOK_MIN: Duration = Duration::from_millis(50);

impl Processor {
    /// Starts, works until every lease of the unit has been caught up at some moment since, and stops. Changes that come
    /// meanwhile may be left to the next run. A host that ends by itself ends this too.
    pub async fn run_until_caught_up(&self, grace: Duration) -> Result<Stopped, StartError> {
        let running = self.start().await?;
        let estimator = Estimator::of(&self.name, Arc::clone(&self.source), Arc::clone(&self.store));
        let pause = self.settings.poll.first.max(LOOK_MIN);
        let mut seen = BTreeSet::new();
        while running.is_running() && !is_caught_up(&running, &estimator, &mut seen).await {
            // A host that ends by itself need not be waited for.
            let _ = tokio::time::timeout(pause, running.ended()).await;
        }
        Ok(running.stop(grace).await)
    }
}

/// Whether every lease there is has been seen with nothing waiting. Those of this host say so themselves; of the others only
/// the saved position is known.
async fn is_caught_up(running: &Running, estimator: &Estimator, seen: &mut BTreeSet<String>) -> bool {
    let own = running.health();
    seen.extend(
        own.iter()
            .filter(|(_, lease)| lease.caught_up)
            .map(|(token, _)| token.clone()),
    );
    match estimator.snapshot_of(|token| !seen.contains(token)).await {
        Ok(lags) => {
            let done = lags.iter().filter(|lag| lag.transactions == Ok(0));
            seen.extend(done.map(|lag| lag.token.clone()));
            lags.iter().all(|lag| seen.contains(&lag.token))
        }
        Err(error) => {
            tracing::debug!(%error, "whether the unit is caught up could not be found out");
            sleep(LOOK_MIN).await;
            false
        }
    }
}

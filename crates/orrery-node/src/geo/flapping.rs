//! What clients hear of the account's regions while they change: the new ones, or, if somebody wants to see what clients make of
//! it, for some time now the new ones, now those before. The real service does that; here it is off unless asked for.
//!
//! [`Flapping`] is pure: the time comes in.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::fleet::Fleet;
use super::simulated::Simulated;

/// The regions that clients hear of.
#[derive(Debug, Default)]
pub struct Flapping {
    /// Zero: clients hear of a change at once.
    lasts: Duration,
    known: Vec<String>,
    before: Option<(Vec<String>, Instant)>,
    n_asked: u64,
}

impl Flapping {
    /// Clients are to hear of these regions from now on.
    fn change(&mut self, regions: &[String], now: Instant) {
        if self.known == regions {
            return;
        }
        let before = std::mem::replace(&mut self.known, regions.to_vec());
        self.before = (!before.is_empty() && !self.lasts.is_zero()).then_some((before, now));
    }

    /// What the next one who asks hears instead of the truth. Every other one does, the first one included.
    fn outdated(&mut self, now: Instant) -> Option<Vec<String>> {
        let (before, since) = self.before.as_ref()?;
        if now.duration_since(*since) >= self.lasts {
            self.before = None;
            return None;
        }
        self.n_asked += 1;
        (self.n_asked % 2 == 1).then(|| before.clone())
    }
}

impl Fleet {
    /// Lets clients hear of old regions for so long after each change. Zero ends it.
    pub fn set_flapping(&self, lasts: Duration) {
        let mut flapping = self.flapping();
        flapping.lasts = lasts;
        if lasts.is_zero() {
            flapping.before = None;
        }
        drop(flapping);
        self.tell_simulated(Simulated::Flapping {
            for_ms: lasts.as_millis() as u64,
        });
    }

    /// For how long clients hear of old regions after each change.
    pub fn flapping_lasts(&self) -> Duration {
        self.flapping().lasts
    }

    /// The regions as a client is told that asks now, if they are not those of the account.
    pub fn outdated_regions(&self) -> Option<Vec<String>> {
        self.flapping().outdated(Instant::now())
    }

    pub(super) fn note_account(&self, regions: &[String]) {
        self.flapping().change(regions, Instant::now());
    }

    fn flapping(&self) -> MutexGuard<'_, Flapping> {
        self.flapping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn clients_hear_the_truth_unless_somebody_wants_it_otherwise() {
        let (mut flapping, now) = (Flapping::default(), Instant::now());
        flapping.change(&names(&["A", "B"]), now);
        flapping.change(&names(&["B", "A"]), now);
        assert_eq!(flapping.outdated(now), None);
    }

    #[test]
    fn every_other_answer_is_old_until_the_time_is_over() {
        let mut flapping = Flapping {
            lasts: Duration::from_secs(5),
            ..Flapping::default()
        };
        let now = Instant::now();
        flapping.change(&names(&["A", "B"]), now);
        assert_eq!(flapping.outdated(now), None, "there was nothing before");
        flapping.change(&names(&["B", "A"]), now);
        let later = now + Duration::from_secs(4);
        let heard: Vec<_> = (0..4).map(|_| flapping.outdated(later).is_some()).collect();
        assert_eq!(heard, [true, false, true, false]);
        assert_eq!(flapping.outdated(now + Duration::from_secs(5)), None);
        flapping.change(&names(&["B", "A"]), now);
        assert_eq!(flapping.outdated(now), None, "nothing has changed");
    }
}

//! What somebody has made of the simulated world, as a history tells it: a checker can then tell what had to fail from what
//! should not have.

use super::fleet::{Fleet, Place};
use super::front::{Distance, Outage};
use super::link::LinkSettings;
use crate::events::Happening;

/// A control that was moved.
#[derive(Clone, Debug, PartialEq)]
pub enum Simulated {
    Link {
        from: String,
        to: String,
        settings: LinkSettings,
    },
    /// One partition no longer travels by a link, or does again.
    PartitionPaused {
        from: String,
        to: String,
        partition: Place,
        paused: bool,
    },
    /// So many transactions more pass a paused link.
    Stepped {
        from: String,
        to: String,
        /// `None`: of whichever come first.
        partition: Option<Place>,
        n_transactions: u64,
    },
    Outage {
        region: String,
        /// `None`: it works again.
        outage: Option<Outage>,
    },
    Distance {
        region: String,
        distance: Distance,
    },
    Clock {
        region: String,
        skew_ms: i64,
    },
    /// For how long clients hear now of the old regions, now of the new ones, after each change.
    Flapping {
        for_ms: u64,
    },
}

impl Fleet {
    pub(super) fn tell_simulated(&self, simulated: Simulated) {
        self.events.tell(Happening::Simulated(simulated));
    }
}

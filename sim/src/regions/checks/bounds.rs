//! Bounded staleness: no region that serves lacks more than the account allows when a write is acknowledged.

use orrery_model::Lsn;
use orrery_node::geo::progress::Bounds;

use super::super::history::History;
use super::Broken;

pub fn lag_stays_within(history: &History, bounds: Bounds) -> Result<(), Broken> {
    for standing in history.standings.iter().filter(|standing| standing.serves) {
        let Some(lsn) = standing.acknowledged else {
            continue;
        };
        let lacks = lsn.0.saturating_sub(standing.position.lsn.0);
        if lacks > bounds.transactions && is_countable(lsn, standing.position.lsn) {
            return Err(format!(
                "{} lacked {lacks} transactions when {lsn:?} was acknowledged; {} are allowed",
                standing.region, bounds.transactions
            ));
        }
    }
    Ok(())
}

/// A forced failover begins far above every LSN given out before, so a distance across it says nothing.
fn is_countable(one: Lsn, other: Lsn) -> bool {
    one.0 >> 32 == other.0 >> 32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orrery_model::{ChainHash, Epoch, LogId, Position};

    use super::*;
    use crate::regions::history::Standing;

    fn lagging_by(n: u64) -> History {
        let standing = Standing {
            at: 1,
            region: "far",
            log: LogId(1),
            position: Position {
                epoch: Epoch(0),
                lsn: Lsn(100 - n),
                hash: ChainHash::default(),
            },
            now_ms: 0,
            serves: true,
            acknowledged: Some(Lsn(100)),
        };
        History {
            standings: vec![standing],
            ..History::default()
        }
    }

    #[test]
    fn a_region_beyond_the_bound_is_noticed() {
        let bounds = Bounds {
            transactions: 5,
            age: Duration::from_secs(5),
        };
        lag_stays_within(&lagging_by(5), bounds).expect("within the bound");
        assert!(lag_stays_within(&lagging_by(50), bounds).is_err());
    }
}

//! Every region's state is the write region's log up to some point.

use std::collections::HashMap;

use orrery_model::{ChainHash, Epoch, LogId, Lsn};

use super::super::history::{Answer, History, Item, PageRead, Standing};
use super::Broken;

/// Two regions at the same point of a log have the same log, and a region's log only grows.
pub fn regions_share_one_log(history: &History) -> Result<(), Broken> {
    let mut known: HashMap<(LogId, Epoch, Lsn), (ChainHash, &str)> = HashMap::new();
    let mut last: HashMap<(&str, LogId), &Standing> = HashMap::new();
    for standing in &history.standings {
        let (epoch, lsn, hash) = (standing.position.epoch, standing.position.lsn, standing.position.hash);
        let (first, elsewhere) = known
            .entry((standing.log, epoch, lsn))
            .or_insert((hash, standing.region));
        if *first != hash {
            return Err(format!(
                "{} and {elsewhere} differ at {epoch:?} {lsn:?}",
                standing.region
            ));
        }
        if let Some(before) = last.insert((standing.region, standing.log), standing)
            && (epoch, lsn) < (before.position.epoch, before.position.lsn)
            && !began_anew(history, before, standing)
        {
            return Err(format!(
                "{} went back from {:?} to {:?}",
                standing.region, before.position, standing.position
            ));
        }
    }
    Ok(())
}

/// A region that was away may have given up an end that the others never had.
fn began_anew(history: &History, before: &Standing, after: &Standing) -> bool {
    history
        .returns
        .iter()
        .any(|(at, region)| *region == after.region && before.at < *at && *at <= after.at)
}

/// Items that are only written together are only seen together.
pub fn batches_are_seen_whole(history: &History) -> Result<(), Broken> {
    match history.pairs.iter().find(|pair| pair.values.0 != pair.values.1) {
        Some(pair) => Err(format!("{} showed half a batch: {:?}", pair.region, pair.values)),
        None => Ok(()),
    }
}

/// Who is shown a write is shown every earlier one of the same partition key. Does not look into regions: clients could find
/// out the same.
pub fn pages_have_no_gaps(history: &History) -> Result<(), Broken> {
    let mut written: HashMap<(Item, u64), Lsn> = HashMap::new();
    for item in history.items() {
        for (call, value, _) in history.writes(item) {
            if let Answer::Written { lsn, .. } = call.answer {
                written.insert((item, value), lsn);
            }
        }
    }
    let items = history.items();
    history
        .pages
        .iter()
        .try_for_each(|page| page_has_no_gap(history, page, &items, &written))
}

fn page_has_no_gap(
    history: &History,
    page: &PageRead,
    items: &[Item],
    written: &HashMap<(Item, u64), Lsn>,
) -> Result<(), Broken> {
    let Some(latest) = page.values.iter().filter_map(|shown| written.get(shown)).max() else {
        return Ok(());
    };
    for item in items.iter().filter(|item| item.0 == page.key) {
        let shown = match page.values.iter().find(|(name, _)| name == item) {
            None => Lsn::ZERO,
            Some(shown) => match written.get(shown) {
                Some(lsn) => *lsn,
                // Nobody was told where in the log it is.
                None => continue,
            },
        };
        let missing = history.writes(*item).find(|(call, ..)| match call.answer {
            Answer::Written { lsn, .. } => shown < lsn && lsn < *latest && !history.is_lost(*item, lsn, call.completed),
            _ => false,
        });
        if let Some((_, value, _)) = missing {
            return Err(format!(
                "{} showed {:?} up to {latest:?}, without {value} of {item:?}",
                page.region, page.values
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use orrery_model::Position;

    use super::super::example::{ITEM, wrote};
    use super::*;
    use crate::regions::history::{Call, Loss, PairRead};

    fn standing(at: u64, region: &'static str, lsn: u64, hash: u8) -> Standing {
        Standing {
            at,
            region,
            log: LogId(1),
            position: Position {
                epoch: Epoch(0),
                lsn: Lsn(lsn),
                hash: ChainHash([hash; 16]),
            },
            now_ms: at,
            serves: true,
            acknowledged: None,
        }
    }

    fn seen(standings: Vec<Standing>) -> History {
        History {
            standings,
            ..History::default()
        }
    }

    #[test]
    fn regions_that_differ_at_one_point_are_noticed() {
        let same = seen(vec![standing(1, "a", 1, 1), standing(2, "b", 1, 1)]);
        regions_share_one_log(&same).expect("they are the same");
        let differ = seen(vec![standing(1, "a", 1, 1), standing(2, "b", 1, 2)]);
        assert!(regions_share_one_log(&differ).unwrap_err().contains("differ"));
    }

    #[test]
    fn a_region_that_goes_back_is_noticed_unless_it_was_away() {
        let mut history = seen(vec![standing(1, "a", 2, 2), standing(3, "a", 1, 1)]);
        assert!(regions_share_one_log(&history).unwrap_err().contains("went back"));
        history.returns.push((2, "a"));
        regions_share_one_log(&history).expect("it began anew");
    }

    #[test]
    fn a_page_that_shows_a_write_without_an_earlier_one_is_noticed() {
        let other: Item = (ITEM.0, "j");
        let of_other = |call: Call| Call { item: other, ..call };
        let showing = |values: Vec<(Item, u64)>| History {
            calls: vec![wrote((1, 2), 7, 5), of_other(wrote((3, 4), 8, 6)), wrote((5, 6), 9, 7)],
            pages: vec![PageRead {
                at: 9,
                region: "a",
                key: ITEM.0,
                values,
            }],
            ..History::default()
        };
        for whole in [
            vec![],
            vec![(ITEM, 7)],
            vec![(ITEM, 7), (other, 8)],
            vec![(ITEM, 9), (other, 8)],
        ] {
            pages_have_no_gaps(&showing(whole)).expect("a prefix");
        }
        for gap in [vec![(other, 8)], vec![(ITEM, 9)]] {
            let mut history = showing(gap);
            assert!(pages_have_no_gaps(&history).unwrap_err().contains("without"));
            history.losses = [ITEM, other]
                .map(|item| Loss {
                    at: 8,
                    item,
                    after: Lsn(4),
                    head: Lsn(6),
                    is_exact: true,
                })
                .into();
            pages_have_no_gaps(&history).expect("what is missing was lost");
        }
    }

    #[test]
    fn half_a_batch_is_noticed() {
        let values = (Some(1), None);
        let history = History {
            pairs: vec![PairRead {
                at: 1,
                region: "a",
                values,
            }],
            ..History::default()
        };
        assert!(batches_are_seen_whole(&history).is_err());
    }
}

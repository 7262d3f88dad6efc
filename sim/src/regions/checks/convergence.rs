//! When nothing happens any more, all regions hold the same.

use super::super::history::History;
use super::Broken;

pub fn regions_end_equal(history: &History) -> Result<(), Broken> {
    let Some((first, wanted)) = history.finals.first() else {
        return Err("the run has no end".to_owned());
    };
    match history.finals.iter().find(|(_, items)| items != wanted) {
        Some((region, items)) => Err(format!("{first} ends with {wanted:?}, {region} with {items:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::ITEM;
    use super::*;

    #[test]
    fn a_region_that_ends_with_something_else_is_noticed() {
        let mut history = History {
            finals: vec![("a", vec![(ITEM, 1)]), ("b", vec![(ITEM, 1)])],
            ..History::default()
        };
        regions_end_equal(&history).expect("they are equal");
        history.finals[1].1.clear();
        assert!(regions_end_equal(&history).is_err());
        assert!(regions_end_equal(&History::default()).is_err());
    }
}

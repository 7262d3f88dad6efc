//! How often a sorted page goes to the store, which is what it costs besides the items it gives.

use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use orrery_model::EpkRange;
use orrery_query::index::{Condition, IndexOrder};
use orrery_query::{Definition, Parameters, Query};

use super::{MapView, POLICIES, bench};
use crate::index::{Ordered, OrderedItems, Scope};
use crate::state::PartitionState;
use crate::storage::{Result, Scan, View};

/// A view that counts what is asked of it.
struct Counted<'a> {
    view: &'a MapView,
    n_lookups: AtomicUsize,
    n_scans: AtomicUsize,
}

impl View for Counted<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.n_lookups.fetch_add(1, Relaxed);
        self.view.get(key)
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        self.n_scans.fetch_add(1, Relaxed);
        self.view.scan(from, to, reverse)
    }
}

/// Lookups and scans for the first twenty items of a query, whose partition's state the caller has read.
fn cost(n_items: usize, sql: &str) -> (usize, usize) {
    let items: Vec<(u8, String)> = (0..n_items)
        .map(|index| (index as u8, format!(r#""a":{index}"#)))
        .collect();
    let bench = bench(POLICIES[0], &items);
    let parsed = Query::parse(sql).unwrap();
    let plan = orrery_query::plan::plan(&parsed, &Definition::plain(), &Parameters::none()).unwrap();
    let rules = bench.definition.index_rules();
    let order = IndexOrder::of(&plan, rules).unwrap();
    let within = order.path().and_then(|path| Condition::of(&plan, rules).hull(path));
    let state = PartitionState::load(&bench.view).unwrap().unwrap();
    let counted = Counted {
        view: &bench.view,
        n_lookups: AtomicUsize::new(0),
        n_scans: AtomicUsize::new(0),
    };
    let range = EpkRange::full();
    let scope = Scope {
        view: &counted,
        form: bench.form(),
        range: &range,
        policy: rules.fingerprint(),
        state: Some(&state),
        n_items: None,
    };
    let ordered = Ordered::open(order, vec![scope], None, within).unwrap().unwrap();
    let mut items = OrderedItems::new(ordered);
    for _ in 0..20 {
        items.next(&|_| true).unwrap().unwrap();
    }
    drop(items);
    (counted.n_lookups.into_inner(), counted.n_scans.into_inner())
}

#[test]
fn a_sorted_page_looks_up_its_items_and_next_to_nothing_else_however_many_there_are() {
    for n_items in [30, 300] {
        assert_eq!(
            cost(n_items, "SELECT * FROM c ORDER BY c.a"),
            (20, 2),
            "the shapes, which tell the items without a value, and the values, of {n_items}"
        );
        assert_eq!(
            cost(n_items, "SELECT * FROM c WHERE c.a >= 5 ORDER BY c.a"),
            (21, 1),
            "whether there are items without terms, and the values, of {n_items}"
        );
    }
}

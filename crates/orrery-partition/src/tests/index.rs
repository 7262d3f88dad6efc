//! Whatever the items, the policy and the query: the answer by way of the index is that of a scan, row for row and page for
//! page, and pages of the two can be mixed.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::{self, Value};
use orrery_model::{Epk, EpkRange};
use orrery_query::index::{Condition, IndexOrder};
use orrery_query::run::{Content, Cursor, Item, PageLimits, Resume, Row, Unlimited, run, run_in_order};
use orrery_query::{Context, Definition, Parameters, Plan, Query};
use proptest::prelude::*;

use super::{Bench, MapView, definition};
use crate::IndexedDefinition;
use crate::command::{Action, Command};
use crate::index::{Access, EFFORT, Ordered, OrderedItems, Scope};
use crate::keys::{self, KeySpace};
use crate::storage::View as _;
use crate::stored::StoredItem;

mod lookups;
mod words_and_places;

const POLICIES: [&str; 6] = [
    r#"{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]}"#,
    r#"{"includedPaths":[{"path":"/a/?"},{"path":"/tags/*"}],"excludedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]}"#,
    r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/b/*"},{"path":"/o/x/?"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]}"#,
    r#"{"includedPaths":[{"path":"/*"},{"path":"/tags/[]/?"}],"excludedPaths":[{"path":"/o/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]}"#,
    r#"{"includedPaths":[{"path":"/*"},{"path":"/sum/?"},{"path":"/text/?"},{"path":"/made/*"},{"path":"/same/?"},{"path":"/tags/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}],[{"path":"/sum"},{"path":"/b","order":"descending"}]]}"#,
    r#"{"includedPaths":[{"path":"/part/?"},{"path":"/made/x/?"}],"excludedPaths":[{"path":"/*"},{"path":"/same/?"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}],[{"path":"/sum"},{"path":"/b","order":"descending"}]]}"#,
];

/// In every container, indexed or not. One hides a stored property, one may not be a number that an index can hold, one only
/// gives another name to a path.
const COMPUTED: &str = r#","computedProperties":[
    {"name":"sum","query":"SELECT VALUE c.a + 1 FROM c"},
    {"name":"text","query":"SELECT VALUE LOWER(r.a) FROM root r"},
    {"name":"made","query":"SELECT VALUE {x: c.b, l: c.tags} FROM c"},
    {"name":"part","query":"SELECT VALUE c.a / c.b FROM c"},
    {"name":"list","query":"SELECT VALUE c.tags FROM c"},
    {"name":"same","query":"SELECT VALUE c.o.x FROM c"}]"#;

fn scalar() -> impl Strategy<Value = String> {
    let long = format!("{:?}", "x".repeat(130));
    let longer = format!("{:?}", "x".repeat(131));
    prop_oneof![
        4 => (-2..4i32).prop_map(|number| number.to_string()),
        1 => Just("1.5".to_owned()),
        1 => prop_oneof![Just("9007199254740993"), Just("9007199254740992"), Just("18446744073709551615")].prop_map(str::to_owned),
        4 => prop_oneof![Just("\"\""), Just("\"a\""), Just("\"ab\""), Just("\"b\""), Just("\"B\"")].prop_map(str::to_owned),
        1 => prop_oneof![Just(long), Just(longer)],
        1 => prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(str::to_owned),
    ]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
        1 => scalar().prop_map(|value| format!(r#"{{"x":{value}}}"#)),
    ]
}

/// The fields of an item after its id and key.
fn fields() -> impl Strategy<Value = String> {
    (
        prop::option::weighted(0.8, any_value()),
        prop::option::weighted(0.6, any_value()),
        prop::option::weighted(0.5, scalar()),
        prop::option::weighted(0.5, prop::collection::vec(scalar(), 0..4)),
        prop::option::weighted(0.4, prop::collection::vec(scalar(), 0..3)),
    )
        .prop_map(|(a, b, x, tags, list)| {
            let mut fields = Vec::new();
            fields.extend(a.map(|a| format!(r#""a":{a}"#)));
            fields.extend(b.map(|b| format!(r#""b":{b}"#)));
            fields.extend(x.map(|x| format!(r#""o":{{"x":{x}}}"#)));
            fields.extend(tags.map(|tags| format!(r#""tags":[{}]"#, tags.join(","))));
            fields.extend(list.map(|list| {
                let elements: Vec<String> = list.iter().map(|n| format!(r#"{{"n":{n}}}"#)).collect();
                format!(r#""list":[{}]"#, elements.join(","))
            }));
            fields.join(",")
        })
}

fn filter() -> impl Strategy<Value = String> {
    let stored = prop_oneof![Just("c.a"), Just("c.b"), Just("c.o.x"), Just("c.tags[0]"), Just("c.o")];
    let computed = prop_oneof![
        Just("c.sum"),
        Just("c.text"),
        Just("c.made.x"),
        Just("c.made.l[0]"),
        Just("c.part"),
        Just("c.same"),
        Just("c.list"),
    ];
    let path = prop_oneof![3 => stored, 2 => computed];
    let operator = prop_oneof![Just("="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let leaf = prop_oneof![
        6 => (path.clone(), operator, any_value()).prop_map(|(path, operator, value)| format!("{path} {operator} {value}")),
        1 => (path.clone(), scalar()).prop_map(|(path, value)| format!("{value} < {path}")),
        1 => (path.clone(), scalar(), scalar()).prop_map(|(path, low, high)| format!("({path} BETWEEN {low} AND {high})")),
        1 => (path.clone(), prop::collection::vec(any_value(), 1..4)).prop_map(|(path, list)| format!("{path} IN ({})", list.join(", "))),
        1 => path.clone().prop_map(|path| format!("STARTSWITH({path}, 'a')")),
        1 => path.clone().prop_map(|path| format!("STARTSWITH({path}, 'A', true)")),
        1 => path.clone().prop_map(|path| format!("{path} LIKE 'a%'")),
        1 => path.clone().prop_map(|path| format!("{path} LIKE '%b'")),
        1 => path.clone().prop_map(|path| format!("CONTAINS({path}, 'b')")),
        1 => path.clone().prop_map(|path| format!("ENDSWITH({path}, 'B', true)")),
        1 => path.clone().prop_map(|path| format!("CONTAINS_ANY_CI({path}, 'X', 'a')")),
        1 => path.clone().prop_map(|path| format!("IS_DEFINED({path})")),
        1 => path.clone().prop_map(|path| format!("NOT IS_DEFINED({path})")),
        1 => path.clone().prop_map(|path| format!("IS_NULL({path})")),
        1 => path.clone().prop_map(|path| format!("IS_STRING({path})")),
        1 => path.clone().prop_map(|path| format!("IS_ARRAY({path})")),
        1 => path.prop_map(str::to_owned),
        2 => (0..12u8).prop_map(|number| format!("c.id = 'i{number}'")),
        1 => scalar().prop_map(|value| format!("ARRAY_CONTAINS(c.tags, {value})")),
        1 => scalar().prop_map(|value| format!("ARRAY_CONTAINS(c.made.l, {value})")),
        1 => scalar().prop_map(|value| format!("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = {value})")),
        1 => scalar().prop_map(|value| format!("EXISTS(SELECT VALUE t FROM t IN c.made.l WHERE t = {value} AND c.sum > 0)")),
        1 => scalar().prop_map(|value| format!("EXISTS(SELECT VALUE e FROM e IN c.list WHERE e.n > {value})")),
        1 => scalar().prop_map(|value| format!("(SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = {value}) = 0")),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" AND "))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" OR "))),
            inner.prop_map(|part| format!("NOT ({part})")),
        ]
    })
}

fn query() -> impl Strategy<Value = String> {
    let from = prop_oneof![4 => Just(""), 1 => Just(" JOIN t IN c.tags"), 1 => Just(" JOIN e IN c.list")];
    let order = prop_oneof![
        4 => Just(""),
        3 => prop_oneof![Just(" ORDER BY c.a"), Just(" ORDER BY c.a DESC"), Just(" ORDER BY c.b"), Just(" ORDER BY c.o.x DESC")],
        2 => prop_oneof![
            Just(" ORDER BY c.sum"),
            Just(" ORDER BY c.text DESC"),
            Just(" ORDER BY c.made.x"),
            Just(" ORDER BY c.part DESC"),
            Just(" ORDER BY c.same"),
        ],
        1 => prop_oneof![Just(" ORDER BY c.a, c.b DESC"), Just(" ORDER BY c.a DESC, c.b"), Just(" ORDER BY c.sum DESC, c.b")],
        1 => prop_oneof![
            Just(" ORDER BY RANK FullTextScore(c.a, 'a', 'b')"),
            Just(" ORDER BY RANK RRF(FullTextScore(c.b, 'ab'), VectorDistance(c.tags, [1, 2]), [1, -2])"),
            Just(" ORDER BY VectorDistance(c.tags, [1, 2])"),
            Just(" ORDER BY VectorDistance(c.tags, [1], true, {'distanceFunction': 'euclidean'})"),
        ],
    ];
    let window = prop_oneof![4 => Just(""), 1 => Just(" OFFSET 2 LIMIT 5"), 1 => Just(" OFFSET 0 LIMIT 3")];
    (from, prop::option::weighted(0.8, filter()), order, window).prop_map(|(from, filter, order, window)| {
        let filter = filter.map(|filter| format!(" WHERE {filter}")).unwrap_or_default();
        // A ranked query has no joins.
        let from = if order.contains("RANK") { "" } else { from };
        format!("SELECT VALUE c.id FROM c{from}{filter}{order}{window}")
    })
}

fn bench(policy: &str, items: &[(u8, String)]) -> Bench {
    of_definition(&format!(r#","indexingPolicy":{policy}{COMPUTED}"#), items)
}

/// A partition of a container with these fields, and items.
fn of_definition(fields: &str, items: &[(u8, String)]) -> Bench {
    let mut bench = Bench::new(definition(fields));
    for (index, (key, fields)) in items.iter().enumerate() {
        let key = ["p", "q", "r"][usize::from(*key % 3)];
        let draft = bench.draft(key, &format!("i{index}"), fields).unwrap();
        let step = bench.step(key, Precondition::None, Action::Create(draft));
        bench.run(&Command::Item(step)).unwrap();
    }
    bench
}

/// Items by their keys, ascending.
struct KeyCursor<'a> {
    bench: &'a Bench,
    keys: VecDeque<Bytes>,
    current: Option<Value>,
    last: Option<Bytes>,
    looks_ahead: bool,
}

impl Cursor for KeyCursor<'_> {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>> {
        let Some(key) = self.keys.pop_front() else {
            return Ok(None);
        };
        let item = StoredItem::decode(&self.bench.view.0[&key]).unwrap();
        let (_, number) = keys::read_item(self.bench.form(), &key).unwrap();
        if !self.looks_ahead {
            self.last = Some(key);
        }
        Ok(Some(Item {
            content: Content::Value(self.current.insert(json::parse_value(&item.body).unwrap())),
            rank: number,
        }))
    }

    fn look_ahead(&mut self) {
        self.looks_ahead = true;
    }
}

struct OrderedCursor<'a> {
    items: OrderedItems<'a>,
    current: Option<Value>,
}

impl Cursor for OrderedCursor<'_> {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>> {
        let Some(item) = self.items.next(&|_| true).unwrap() else {
            return Ok(None);
        };
        Ok(Some(Item {
            content: Content::Value(self.current.insert(json::parse_value(&item.stored.body).unwrap())),
            rank: item.number,
        }))
    }

    fn look_ahead(&mut self) {}
}

fn values(rows: Vec<Row>) -> Vec<Value> {
    rows.into_iter().map(|row| row.into_value().unwrap()).collect()
}

/// How a page is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Scan,
    /// With so much effort to find out about the terms.
    Index(usize),
}

#[derive(Clone, Debug, PartialEq)]
struct At {
    resume: Resume,
    last: Option<Bytes>,
}

struct Paging<'a> {
    bench: &'a Bench,
    plan: &'a Plan,
    ranges: &'a [EpkRange],
    rows_max: usize,
}

impl Paging<'_> {
    fn scopes(&self) -> Vec<Scope<'_>> {
        let scope = |range| Scope {
            view: &self.bench.view,
            form: self.bench.form(),
            range,
            policy: self.bench.definition.index_rules().fingerprint(),
            state: None,
            n_items: None,
        };
        self.ranges.iter().map(scope).collect()
    }

    fn scan_keys(&self) -> Vec<Bytes> {
        let (from, to) = keys::bounds(KeySpace::Item);
        let entries = self
            .bench
            .view
            .scan(Bound::Included(&from), Bound::Excluded(&to), false);
        let keys = entries.map(|entry| entry.unwrap().0);
        keys.filter(|key| {
            let (epk, _) = keys::read_item(self.bench.form(), key).unwrap();
            self.ranges.iter().any(|range| range.contains(&epk))
        })
        .collect()
    }

    fn indexed_keys(&self, effort: usize) -> Vec<Bytes> {
        let condition = Condition::of(self.plan, self.bench.definition.index_rules());
        let mut all = Vec::new();
        for scope in self.scopes() {
            let access = Access::choose(scope, &condition, effort).unwrap();
            if access == Access::Scan {
                let inside = |key: &Bytes| {
                    let (epk, _) = keys::read_item(self.bench.form(), key).unwrap();
                    scope.range.contains(&epk)
                };
                all.extend(self.scan_keys().into_iter().filter(inside));
                continue;
            }
            let mut from: Option<Bytes> = None;
            loop {
                let bound = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let keys = access.keys(scope, bound, 3).unwrap();
                let Some(last) = keys.last() else { break };
                from = Some(last.clone());
                all.extend(keys);
            }
        }
        all
    }

    fn limits(&self) -> PageLimits {
        PageLimits {
            rows_max: self.rows_max,
            ..PageLimits::unlimited()
        }
    }

    /// One page by way of the order of an index, if there is one.
    fn in_order(&self, at: &At) -> Option<(Vec<Value>, Option<At>)> {
        let rules = self.bench.definition.index_rules();
        let order = IndexOrder::of(self.plan, rules)?;
        let condition = Condition::of(self.plan, rules);
        let within = order.path().and_then(|path| condition.hull(path));
        let start = order.start(&at.resume);
        let ordered = Ordered::open(order, self.scopes(), start, within).unwrap()?;
        let mut cursor = OrderedCursor {
            items: OrderedItems::new(ordered),
            current: None,
        };
        let page = run_in_order(
            self.plan,
            &mut cursor,
            &Context::default(),
            self.limits(),
            Some(&at.resume),
            &mut Unlimited,
        )
        .unwrap();
        let next = page.resume.map(|resume| At { resume, last: None });
        Some((values(page.rows), next))
    }

    fn page(&self, at: &At, way: Way) -> (Vec<Value>, Option<At>) {
        if let (Way::Index(_), Some(page)) = (way, self.in_order(at)) {
            return page;
        }
        let mut keys = match way {
            Way::Scan => self.scan_keys(),
            Way::Index(effort) => self.indexed_keys(effort),
        };
        let streaming = self.plan.is_streaming();
        if let (true, Some(last)) = (streaming, &at.last) {
            keys.retain(|key| key > last || at.resume.repeats_item() && key == last);
        }
        let mut cursor = KeyCursor {
            bench: self.bench,
            keys: keys.into(),
            current: None,
            last: at.last.clone(),
            looks_ahead: false,
        };
        let resume = Some(&at.resume);
        let page = run(
            self.plan,
            &mut cursor,
            &Context::default(),
            self.limits(),
            resume,
            &mut Unlimited,
        )
        .unwrap();
        let last = cursor.last.filter(|_| streaming);
        (values(page.rows), page.resume.map(|resume| At { resume, last }))
    }

    /// All rows, page by page, each page made in the next of the ways. A full page that does not know whether anything follows may
    /// be followed by an empty one, which is left out: how far a page looks depends on the way.
    fn rows(&self, ways: &[Way]) -> Vec<Vec<Value>> {
        let mut at = At {
            resume: Resume::default(),
            last: None,
        };
        let mut pages = Vec::new();
        for way in ways.iter().cycle().take(200) {
            let (rows, next) = self.page(&at, *way);
            pages.push(rows);
            match next {
                Some(next) => {
                    let resume = Resume::from_json(&next.resume.to_json()).unwrap();
                    at = At { resume, ..next };
                }
                None => {
                    pages.pop_if(|last| last.is_empty());
                    return pages;
                }
            }
        }
        panic!("a query does not end")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_index_gives_what_a_scan_gives(
        policy in prop::sample::select(&POLICIES),
        items in prop::collection::vec((0..3u8, fields()), 0..40),
        query in query(),
        rows_max in 1..8usize,
        split in 0..4u8,
        effort in prop::sample::select(&[2usize, 6, EFFORT]),
    ) {
        let bench = bench(policy, &items);
        let parsed = Query::parse(&query).unwrap();
        let definition = Definition::of_container(bench.definition.fields());
        let Ok(plan) = orrery_query::plan::plan(&parsed, &definition, &Parameters::none()) else {
            return Ok(());
        };
        let middle = Epk::from_bytes([0x20]);
        let ranges = match split {
            0 => vec![EpkRange::new(Epk::min(), middle.clone()), EpkRange::new(middle, Epk::max())],
            1 => vec![EpkRange::of_key(bench.definition.partition_key(), &super::partition_key("p"))],
            _ => vec![EpkRange::full()],
        };
        let paging = Paging { bench: &bench, plan: &plan, ranges: &ranges, rows_max };
        let wanted = paging.rows(&[Way::Scan]);
        prop_assert_eq!(&paging.rows(&[Way::Index(effort)]), &wanted, "{}", &query);
        prop_assert_eq!(&paging.rows(&[Way::Index(effort), Way::Scan]), &wanted, "{} with mixed pages", &query);
    }
}

#[test]
fn many_equal_values_come_in_the_order_of_creation_piece_by_piece() {
    let items: Vec<(u8, String)> = (0..9_000)
        .map(|index| (index as u8, format!(r#""a":{}"#, index % 2)))
        .collect();
    let bench = bench(POLICIES[0], &items);
    let parsed = Query::parse("SELECT VALUE c.id FROM c ORDER BY c.a DESC").unwrap();
    let definition = Definition::of_container(bench.definition.fields());
    let plan = orrery_query::plan::plan(&parsed, &definition, &Parameters::none()).unwrap();
    let ranges = [EpkRange::full()];
    let paging = Paging {
        bench: &bench,
        plan: &plan,
        ranges: &ranges,
        rows_max: 1_000_000,
    };
    assert_eq!(paging.rows(&[Way::Index(EFFORT)]), paging.rows(&[Way::Scan]));
}

/// How the items that meet a filter are found.
fn access(bench: &Bench, filter: &str) -> Access {
    access_within(bench, filter, &EpkRange::full())
}

fn access_within(bench: &Bench, filter: &str, range: &EpkRange) -> Access {
    let parsed = Query::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
    let plan = orrery_query::plan::plan(&parsed, &Definition::plain(), &Parameters::none()).unwrap();
    let scope = Scope {
        view: &bench.view,
        form: bench.form(),
        range,
        policy: bench.definition.index_rules().fingerprint(),
        state: None,
        n_items: None,
    };
    Access::choose(scope, &Condition::of(&plan, bench.definition.index_rules()), EFFORT).unwrap()
}

#[test]
fn an_id_within_a_key_is_looked_up_and_not_searched_for() {
    let items: Vec<(u8, String)> = (0..30).map(|index| (index, r#""a":1"#.to_owned())).collect();
    let mut bench = bench(POLICIES[0], &items);
    let range = EpkRange::of_key(bench.definition.partition_key(), &super::partition_key("p"));
    // Without the terms a search would find nothing.
    bench
        .view
        .0
        .retain(|key, _| key.first() != Some(&keys::byte(KeySpace::Term)));
    let found = |filter: &str| match access_within(&bench, filter, &range) {
        Access::Listed(keys) => keys.len(),
        other => panic!("{filter} is answered by {other:?}"),
    };
    assert_eq!(found("c.id = 'i3'"), 1);
    assert_eq!(found("c.a = 1 AND c.id = 'i3'"), 1);
    assert_eq!(found("c.id = 'i4'"), 0, "it has another key");
    assert_eq!(found("c.id = 'none'"), 0);
}

#[test]
fn an_index_under_another_policy_than_the_query_knows_is_not_used() {
    let items: Vec<(u8, String)> = (0..30).map(|index| (index, format!(r#""b":{index}"#))).collect();
    let mut bench = bench(POLICIES[1], &items);
    assert_eq!(access(&bench, "c.b = 7"), Access::Scan, "it has no such path");
    // The query knows of a policy that the partition has not been told of.
    bench.definition = IndexedDefinition::new(definition(&format!(r#","indexingPolicy":{}"#, POLICIES[0])));
    assert_eq!(access(&bench, "c.b = 7"), Access::Scan);
}

#[test]
fn a_selective_filter_reads_only_the_items_that_pass_it() {
    let items: Vec<(u8, String)> = (0..200)
        .map(|index| {
            let tag = index % 40;
            (
                index as u8,
                format!(
                    r#""a":{index},"b":{},"tags":["t{tag}","all"],"o":{{"x":"n{index}"}}"#,
                    index % 2
                ),
            )
        })
        .collect();
    let bench = bench(POLICIES[0], &items);
    let n_read = |filter: &str| match access(&bench, filter) {
        Access::Listed(keys) => keys.len(),
        other => panic!("{filter} is answered by {other:?}"),
    };
    for (filter, wanted) in [
        ("c.a = 7", 1),
        ("7 = c.a", 1),
        ("c.a = 3 + 4", 1),
        ("c.a IN (1, 2, 500)", 2),
        ("c.a BETWEEN 10 AND 12", 3),
        ("c.a > 10 AND c.a < 13", 2),
        ("c.a = 1 AND c.a = 2", 0),
        ("STARTSWITH(c.o.x, 'n19')", 11),
        ("c.o.x LIKE 'n19%'", 11),
        ("c.o.x LIKE '%_99'", 2),
        ("CONTAINS(c.o.x, 'n19')", 11),
        ("ENDSWITH(c.o.x, '99')", 2),
        ("STARTSWITH(c.o.x, 'N19', true)", 11),
        ("STRINGEQUALS(c.o.x, 'N19', true)", 1),
        ("CONTAINS(c.o.x, '1') AND ENDSWITH(c.o.x, '90')", 1),
        ("c.o.x = 'n5' OR c.a = 9", 2),
        ("ARRAY_CONTAINS(c.tags, 't3')", 5),
        ("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 't3')", 5),
        ("c.b = 1 AND ARRAY_CONTAINS(c.tags, 't3')", 5),
        ("NOT IS_DEFINED(c.a)", 0),
        ("IS_STRING(c.a)", 0),
    ] {
        assert_eq!(n_read(filter), wanted, "{filter}");
    }
    for filter in [
        "c.b != 1",
        "c.a > 1",
        "LENGTH(c.o.x) = 3",
        "c.a = 1 OR c.missing.n + 1 = 2",
    ] {
        assert_eq!(access(&bench, filter), Access::Scan, "{filter}");
    }
}

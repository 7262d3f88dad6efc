//! Texts found by their words and geometries by their cells: the answer is that of a scan, on the globe and in the plane.

use super::*;

const INDEXES: &str = r#","indexingPolicy":{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}],
    "fullTextIndexes":[{"path":"/text"},{"path":"/o/note"}],
    "spatialIndexes":[{"path":"/at/?","types":["Point","Polygon"]},{"path":"/places/*","types":["Point"]}]},
    "fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/text","language":"en-US"},{"path":"/o/note","language":"de-DE"}]}"#;

fn container(planar: bool, items: &[(u8, String)]) -> Bench {
    let surface = if planar { "Geometry" } else { "Geography" };
    of_definition(
        &format!(r#"{INDEXES},"geospatialConfig":{{"type":"{surface}"}}"#),
        items,
    )
}

/// Words in several forms, some of which carry no meaning.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(&[
        "mountain",
        "Mountains",
        "the",
        "river",
        "Rivers,",
        "running",
        "runs",
        "Häuser",
        "Haus",
        "and",
        "lake",
        "-",
    ]);
    prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "))
}

/// A coordinate pair near one of a few places, the date line, the poles and their antipodes among them.
fn position() -> impl Strategy<Value = (f64, f64)> {
    let anchor = prop::sample::select(&[
        (0.0, 0.0),
        (7.6, 46.0),
        (-172.4, -46.0),
        (180.0, 10.0),
        (-180.0, 10.0),
        (30.0, 90.0),
        (-150.0, 89.9),
        (60.0, -89.95),
    ]);
    let offset = prop::sample::select(&[0.0, 1e-7, -1e-5, 0.001, -0.01, 0.3, -2.0]);
    (anchor, offset.clone(), offset).prop_map(|((x, y), dx, dy)| {
        let x: f64 = x + dx;
        let wrapped = if x > 180.0 {
            x - 360.0
        } else if x < -180.0 {
            x + 360.0
        } else {
            x
        };
        (wrapped, (y + dy).clamp(-90.0, 90.0))
    })
}

fn geometry() -> impl Strategy<Value = String> {
    let pair = |(x, y): (f64, f64)| format!("[{x},{y}]");
    let point = position().prop_map(move |at| format!(r#"{{"type":"Point","coordinates":{}}}"#, pair(at)));
    let line = (position(), position())
        .prop_map(move |(from, to)| format!(r#"{{"type":"LineString","coordinates":[{},{}]}}"#, pair(from), pair(to)));
    let polygon = (
        position(),
        prop::sample::select(&[1e-6, 0.01, 1.5, 20.0]),
        any::<bool>(),
    )
        .prop_map(move |((x, y), size, turned)| {
            let (x, y) = (x.clamp(-159.0, 159.0), y.clamp(-69.0, 69.0));
            let mut ring = vec![(x, y), (x + size, y), (x + size, y + size), (x, y + size), (x, y)];
            if turned {
                ring.reverse();
            }
            let ring: Vec<String> = ring.into_iter().map(pair).collect();
            format!(r#"{{"type":"Polygon","coordinates":[[{}]]}}"#, ring.join(","))
        });
    prop_oneof![
        6 => point,
        2 => line,
        2 => polygon,
        1 => prop::sample::select(&[r#"{"type":"MultiPolygon","coordinates":[]}"#, r#"{"type":"Point"}"#, "17"]).prop_map(str::to_owned),
    ]
}

fn fields() -> impl Strategy<Value = String> {
    (
        prop::option::weighted(0.8, text()),
        prop::option::weighted(0.3, text()),
        prop::option::weighted(0.9, geometry()),
        prop::option::weighted(0.3, prop::collection::vec(geometry(), 0..3)),
        0..3u8,
    )
        .prop_map(|(text, note, at, places, a)| {
            let mut fields = vec![format!(r#""a":{a}"#)];
            fields.extend(text.map(|text| format!(r#""text":"{text}""#)));
            fields.extend(note.map(|note| format!(r#""o":{{"note":"{note}"}}"#)));
            fields.extend(at.map(|at| format!(r#""at":{at}"#)));
            fields.extend(places.map(|places| format!(r#""places":[{}]"#, places.join(","))));
            fields.join(",")
        })
}

fn filter() -> impl Strategy<Value = String> {
    let text_path = prop_oneof![3 => Just("c.text"), 1 => Just("c.o.note"), 1 => Just("c.other")];
    let function = prop_oneof![
        Just("FullTextContains"),
        Just("FullTextContainsAll"),
        Just("FullTextContainsAny")
    ];
    let term = prop_oneof![
        8 => text().prop_map(|text| format!("\"{text}\"")),
        1 => Just(r#"{"term":"rivr","distance":1}"#.to_owned()),
        1 => prop_oneof![Just("1"), Just("c.missing"), Just(r#"{"term":"x","distance":7}"#)].prop_map(str::to_owned),
    ];
    let words = (text_path, function, prop::collection::vec(term, 1..3)).prop_map(|(path, function, terms)| {
        let terms = if function == "FullTextContains" {
            &terms[..1]
        } else {
            &terms[..]
        };
        format!("{function}({path}, {})", terms.join(", "))
    });
    let path = prop_oneof![4 => Just("c.at"), 1 => Just("c.places[0]")];
    let relation = (
        prop_oneof![Just("ST_WITHIN"), Just("ST_INTERSECTS")],
        path.clone(),
        geometry(),
        any::<bool>(),
    )
        .prop_map(|(function, path, other, turned)| match turned {
            true => format!("{function}({other}, {path})"),
            false => format!("{function}({path}, {other})"),
        });
    let limit = prop_oneof![
        Just("0"),
        Just("1"),
        Just("200"),
        Just("50000"),
        Just("3e6"),
        Just("-1"),
        Just("'x'")
    ];
    let distance = (
        path,
        geometry(),
        prop_oneof![Just("<"), Just("<="), Just("="), Just(">")],
        limit,
    )
        .prop_map(|(path, other, operator, limit)| format!("ST_DISTANCE({path}, {other}) {operator} {limit}"));
    let turned = (geometry(), prop_oneof![Just("200"), Just("50000")])
        .prop_map(|(other, limit)| format!("{limit} > ST_DISTANCE({other}, c.at)"));
    let joined = geometry()
        .prop_map(|other| format!("EXISTS(SELECT VALUE p FROM p IN c.places WHERE ST_INTERSECTS(p, {other}))"));
    let leaf = prop_oneof![4 => words, 4 => relation, 3 => distance, 1 => turned, 1 => joined, 1 => Just("c.a = 1".to_owned())];
    leaf.prop_recursive(2, 4, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..3).prop_map(|parts| format!("({})", parts.join(" AND "))),
            prop::collection::vec(inner.clone(), 2..3).prop_map(|parts| format!("({})", parts.join(" OR "))),
            inner.prop_map(|part| format!("NOT ({part})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn words_and_cells_give_what_a_scan_gives(
        planar in any::<bool>(),
        items in prop::collection::vec((0..3u8, fields()), 0..30),
        filter in filter(),
        sorted in any::<bool>(),
        rows_max in 1..8usize,
        effort in prop::sample::select(&[6usize, EFFORT]),
    ) {
        let bench = container(planar, &items);
        let order = if sorted { " ORDER BY c.a DESC" } else { "" };
        let query = format!("SELECT VALUE c.id FROM c WHERE {filter}{order}");
        let parsed = Query::parse(&query).unwrap();
        let definition = Definition::of_container(bench.definition.fields());
        let plan = orrery_query::plan::plan(&parsed, &definition, &Parameters::none()).unwrap();
        let ranges = vec![EpkRange::full()];
        let paging = Paging { bench: &bench, plan: &plan, ranges: &ranges, rows_max };
        let wanted = paging.rows(&[Way::Scan]);
        prop_assert_eq!(&paging.rows(&[Way::Index(effort)]), &wanted, "{}", &query);
    }
}

#[test]
fn a_search_by_words_or_places_reads_only_what_it_can_find() {
    let items: Vec<(u8, String)> = (0..200u8)
        .map(|n| {
            let words = ["alpine lakes", "the mountains are high", "a running river"][usize::from(n) % 3];
            let at = format!(r#"{{"type":"Point","coordinates":[{},46.0]}}"#, f64::from(n) / 10.0);
            (n, format!(r#""text":"{words} w{n}","at":{at}"#))
        })
        .collect();
    let bench = container(false, &items);
    let n_read = |filter: &str| match access(&bench, filter) {
        Access::Listed(keys) => keys.len(),
        other => panic!("{filter} is answered by {other:?}"),
    };
    let around = r#"{"type":"Polygon","coordinates":[[[5,45.9],[5.25,45.9],[5.25,46.1],[5,46.1],[5,45.9]]]}"#;
    let valley = r#"{"type":"Point","coordinates":[7.0,46.0]}"#;
    for (filter, most) in [
        (r#"FullTextContains(c.text, "mountain w7")"#.to_owned(), 1),
        (r#"FullTextContains(c.text, "the")"#.to_owned(), 0),
        (r#"FullTextContainsAny(c.text, "w1", "W2")"#.to_owned(), 2),
        (r#"FullTextContainsAll(c.text, "lake", "river")"#.to_owned(), 0),
        (r#"FullTextContains(c.text, "river run")"#.to_owned(), 66),
        (format!("ST_DISTANCE(c.at, {valley}) < 1000"), 2),
        (format!("ST_WITHIN(c.at, {around})"), 8),
        (
            format!("ST_INTERSECTS({around}, c.at) AND FullTextContains(c.text, 'lakes')"),
            8,
        ),
    ] {
        let n_read = n_read(&filter);
        assert!(n_read <= most, "{filter} reads {n_read}");
    }
    for filter in [
        r#"FullTextContains(c.text, {"term":"lakee","distance":1})"#.to_owned(),
        format!("ST_DISTANCE(c.at, {valley}) > 1000"),
        format!("ST_DISTANCE(c.other, {valley}) < 1000"),
    ] {
        assert_eq!(access(&bench, &filter), Access::Scan, "{filter}");
    }
}

#[test]
fn a_text_that_changes_is_found_by_its_new_words_only() {
    let mut bench = container(false, &[(0, r#""text":"old lakes""#.to_owned())]);
    let draft = bench.draft("p", "i0", r#""text":"new rivers""#).unwrap();
    let step = bench.step("p", Precondition::None, Action::Upsert(draft));
    bench.run(&Command::Item(step)).unwrap();
    let n_entries = |word: &str| match access(&bench, &format!("FullTextContains(c.text, '{word}')")) {
        Access::Listed(keys) => keys.len(),
        other => panic!("{word} is answered by {other:?}"),
    };
    assert_eq!((n_entries("lake"), n_entries("river")), (0, 1));
}

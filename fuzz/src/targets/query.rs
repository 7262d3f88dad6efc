//! SQL text: the parser, and whole queries over a few items.

use std::sync::OnceLock;

use orrery_model::json::{self, Value};
use orrery_model::{Error, Status};
use orrery_query::parse::{parse, print};
use orrery_query::run::{Budget, ListCursor, Pace, PageLimits, Progress, run};
use orrery_query::{Context, Definition, Parameters, Query};

pub(super) const WORDS: &[&str] = &[
    "SELECT ",
    "VALUE ",
    "DISTINCT ",
    "TOP 1 ",
    " FROM c",
    " JOIN t IN c.tags",
    " WHERE ",
    " GROUP BY c.g",
    " ORDER BY c.n DESC",
    " OFFSET 1 LIMIT 1",
    "EXISTS(",
    "ARRAY(",
    "ALL ",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    "??",
    ":",
    "*",
    "'",
    "\"",
    "\\u",
    "-",
    "~",
    "NOT ",
    " IN (",
    " BETWEEN ",
    " LIKE '%a_'",
    " ESCAPE '!'",
    " AND ",
    " OR ",
    "||",
    "@p",
    "undefined",
    "null",
    "1e308",
    "-0",
    "0x",
    "9007199254740993",
    "udf.f(",
    "COUNT(1)",
    "SUM(c.n)",
    "REPLICATE('a', 9999)",
    "REGEXMATCH(c.s, '(a+)+$')",
    "ST_DISTANCE(",
    "StringToObject(",
    "DateTimeAdd('yyyy', 9999999, ",
    "c[\"a\"]",
    "/*",
    "--",
    "RANK ",
    "\u{1F600}",
    "\u{FEFF}",
];

/// What parses prints, and what was printed parses to the same text.
pub(super) fn sql(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(statement) = parse(&text) else { return };
    let printed = print(&statement);
    let again = match parse(&printed) {
        Ok(again) => again,
        // Printing adds parentheses, so a text at the limit of nesting may be printed beyond it.
        Err(_) if printed.matches('(').count() >= DEEP => return,
        Err(error) => panic!("{text:?} was printed as {printed:?}: {error}"),
    };
    assert_eq!(print(&again), printed, "printing {text:?} twice gives two texts");
}

/// Parentheses of a text that may be near the limit of nesting.
const DEEP: usize = 64;

/// A query over small items ends in a page or an error, within its budget, and so do the next pages.
pub(super) fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(query) = Query::parse(&text) else { return };
    let parameters = Parameters::none();
    let Ok(plan) = orrery_query::plan::plan(&query, &Definition::plain(), &parameters) else {
        return;
    };
    let limits = PageLimits {
        rows_max: 3,
        bytes_max: 1 << 16,
        memory_bytes_max: 1 << 20,
    };
    let mut resume = None;
    for _ in 0..PAGES_MAX {
        let mut cursor = ListCursor::new(items());
        let page = run(
            &plan,
            &mut cursor,
            &Context::default(),
            limits,
            resume.as_ref(),
            &mut Steps,
        );
        let Ok(page) = page else { return };
        page.rows.into_iter().for_each(|row| drop(row.into_text()));
        // A streaming plan would go on with the next item, which this cursor does not do.
        if page.resume.is_none() || plan.is_streaming() {
            return;
        }
        resume = page.resume;
    }
}

/// More pages than any query over the items has.
const PAGES_MAX: usize = 4;
const STEPS_MAX: u64 = 50_000;

/// Ends a run after a number of steps, as the server does after a time.
#[derive(Debug)]
struct Steps;

impl Budget for Steps {
    fn check(&mut self, progress: &Progress) -> orrery_model::Result<Pace> {
        match progress.steps {
            0..=STEPS_MAX => Ok(Pace::GoOn),
            _ => Err(Error::new(Status::REQUEST_TIMEOUT, "too many steps")),
        }
    }
}

fn items() -> &'static [Value] {
    static ITEMS: OnceLock<Vec<Value>> = OnceLock::new();
    ITEMS.get_or_init(|| {
        let texts: [&[u8]; 5] = [
            br#"{"id":"a","n":1,"g":"x","s":"aaaaaaaaaaaaaaaaaaaaaaaa!","tags":["p","q",1,null],"o":{"n":{"n":[1,2,[3]]}}}"#,
            br#"{"id":"b","n":-1.5e300,"g":null,"s":"","tags":[],"at":"2024-02-29T23:59:59.9999999Z","v":[1,0,0.5]}"#,
            br#"{"id":"c","n":9223372036854775807,"s":"\ud83d\ude00 text","loc":{"type":"Point","coordinates":[31.9,-4.8]}}"#,
            br#"{"id":"d","n":"1","tags":{"not":"array"},"loc":{"type":"Polygon","coordinates":[[[0,0],[0,1],[1,1],[0,0]]]}}"#,
            br#"{"id":"e","n":true,"g":[1],"o":{},"json":"{\"a\":[1,2,{\"b\":null}]}"}"#,
        ];
        texts
            .iter()
            .map(|text| json::parse_value(text).expect("the items are JSON"))
            .collect()
    })
}

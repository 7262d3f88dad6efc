//! Runs every `cases/*.sqltest` file: items and SQL in, rows, plan or error out.
//!
//! The format, line by line (`#` starts a comment, continuation lines are indented):
//!
//! ```text
//! items                        the items of the following tests, one JSON object per line
//!   {"id": "a"}
//! definition {…}               fields of the container for the following tests
//! key /a /b                    partition key paths for the following plans (several: hierarchical)
//! expr LEFT("abc", 2) => "ab"  one expression and its value, or `undefined`
//!
//! test what the query shows
//! sql
//!   SELECT VALUE c.id FROM c
//! params [{"name": "@p", "value": 1}]
//! rows                         the rows in order, exactly as they are sent; `bag` for any order
//!   "a"
//! error {…}                    instead of rows: the inner error
//! plan {…}                     instead of rows: members of queryInfo that must be so
//! refused text                instead of rows: the inner error of the plan
//! ranges full | empty | [key] …   instead of rows: where the query goes
//! hybrid {…}                   instead of rows: members of hybridSearchQueryInfo that must be so
//! ```
//!
//! Queries with rows run three times, whole, in pages of one row, and over the items as stored text, and must answer the same.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use orrery_model::json::{Object, parse_value};
use orrery_model::key::{KeyKind, KeyVersion, PropertyPath};
use orrery_model::{Epk, EpkRange, PartitionKey, PartitionKeyDefinition, Value};
use orrery_query::plan::{Features, plan, query_plan};
use orrery_query::run::{Content, Cursor, Item, PageLimits, Resume, Row, Unlimited, run};
use orrery_query::{Context, Definition, Parameters, Plan, Query, QueryError, UserFunctions, row_text};

#[test]
fn every_case_file_answers_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut report = String::new();
    let mut n_checks = 0;
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for (line, result) in run_file(&text) {
            n_checks += 1;
            if let Err(difference) = result {
                writeln!(report, "{name}:{line}: {difference}").unwrap();
            }
        }
    }
    assert!(n_checks > 500, "only {n_checks} checks were found");
    assert!(report.is_empty(), "\n{report}");
}

/// What the following tests run against.
struct Surroundings {
    items: Vec<Value>,
    definition: Object,
    key: PartitionKeyDefinition,
}

/// One test as written.
#[derive(Default)]
struct Case {
    line: usize,
    sql: String,
    params: Option<String>,
    expected: Option<(String, String, Vec<String>)>,
}

fn run_file(text: &str) -> Vec<(usize, Result<(), String>)> {
    let mut around = Surroundings {
        items: Vec::new(),
        definition: Object::new(),
        key: key_definition(&["/pk"]),
    };
    let mut results = Vec::new();
    let mut case: Option<Case> = None;
    for (line, keyword, rest, block) in directives(text) {
        match keyword {
            "test" => {
                case = Some(Case {
                    line,
                    ..Case::default()
                })
            }
            "sql" => case.as_mut().expect("sql belongs to a test").sql = format!("{rest}{}", block.join("\n")),
            "params" => case.as_mut().expect("params belong to a test").params = Some(rest.to_owned()),
            "items" => around.items = block.iter().map(|item| json(item)).collect(),
            "definition" => {
                around.definition = json(&format!("{rest}{}", block.join("")))
                    .as_object()
                    .expect("a definition is an object")
                    .clone()
            }
            "key" => around.key = key_definition(&rest.split_whitespace().collect::<Vec<_>>()),
            "expr" => results.push((line, check_expr(rest))),
            _ => {
                let mut complete = case
                    .take()
                    .unwrap_or_else(|| panic!("line {line}: {keyword} without a test"));
                complete.expected = Some((keyword.to_owned(), rest.to_owned(), block));
                results.push((complete.line, check_case(&complete, &around)));
            }
        }
    }
    results
}

/// The directives of a file: line number, keyword, rest of the line, indented lines.
fn directives(text: &str) -> Vec<(usize, &str, &str, Vec<String>)> {
    let mut found: Vec<(usize, &str, &str, Vec<String>)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with(' ') {
            found
                .last_mut()
                .expect("a file starts with a directive")
                .3
                .push(line.trim().to_owned());
            continue;
        }
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        found.push((index + 1, keyword, rest.trim(), Vec::new()));
    }
    found
}

fn json(text: &str) -> Value {
    parse_value(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn key_definition(paths: &[&str]) -> PartitionKeyDefinition {
    let kind = if paths.len() > 1 {
        KeyKind::MultiHash
    } else {
        KeyKind::Hash
    };
    let paths = paths
        .iter()
        .map(|path| PropertyPath::parse(path).expect("a key path"))
        .collect();
    PartitionKeyDefinition::new(paths, kind, KeyVersion::V2, false)
}

fn check_expr(line: &str) -> Result<(), String> {
    let (expr, wanted) = line.rsplit_once(" => ").ok_or("an expression needs ` => `")?;
    let query = Query::parse(&format!("SELECT VALUE {expr}")).map_err(|error| error.inner())?;
    let rows =
        orrery_query::evaluate_list(&query, &[], &Parameters::none(), &context()).map_err(|error| error.inner())?;
    let got = rows.first().map_or("undefined".to_owned(), row_text);
    compare(&format!("{expr} =>"), wanted.trim(), &got)
}

fn compare(what: &str, wanted: &str, got: &str) -> Result<(), String> {
    if wanted == got {
        Ok(())
    } else {
        Err(format!("{what}\n    wanted {wanted}\n       got {got}"))
    }
}

/// 2024-03-15T12:30:45.1234567Z
const NOW_TICKS: i64 = 17_105_058_451_234_567;

fn context() -> Context<'static> {
    Context {
        now_ticks: NOW_TICKS,
        seed: 7,
        functions: Some(&Functions),
    }
}

/// The user-defined functions of all tests.
struct Functions;

impl UserFunctions for Functions {
    fn call(&self, name: &str, arguments: &[Value]) -> orrery_model::Result<Option<Value>> {
        match name {
            "first" => Ok(arguments.first().cloned()),
            "nothing" => Ok(None),
            _ => Err(orrery_model::Error::bad_request(format!("no function {name}"))),
        }
    }
}

fn check_case(case: &Case, around: &Surroundings) -> Result<(), String> {
    let (keyword, rest, block) = case.expected.as_ref().expect("set before checking");
    let whole = format!("{rest}{}", block.join(""));
    match keyword.as_str() {
        "rows" => check_rows(case, around, block, true),
        "bag" => check_rows(case, around, block, false),
        "error" => {
            let error = answer(case, around, PageLimits::unlimited(), false)
                .err()
                .ok_or("the query was accepted")?;
            compare("error", &json(&whole).to_text(), &json(&error.inner()).to_text())
        }
        "plan" | "hybrid" => {
            let member = if keyword == "plan" {
                "queryInfo"
            } else {
                "hybridSearchQueryInfo"
            };
            let plan = client_plan(case, around).map_err(|error| error.inner())?;
            check_members(
                &json(&whole),
                plan.to_json().get(member).expect("plans have all members"),
            )
        }
        "refused" => {
            let error = client_plan(case, around).err().ok_or("the plan was made")?;
            compare("error", &whole, &error.inner().replace("\r\n", " "))
        }
        "ranges" => check_ranges(case, around, rest),
        other => Err(format!("unknown directive {other}")),
    }
}

fn parameters(case: &Case) -> Result<Parameters, QueryError> {
    Parameters::from_json(&json(case.params.as_deref().unwrap_or("[]")))
}

fn check_rows(case: &Case, around: &Surroundings, wanted: &[String], ordered: bool) -> Result<(), String> {
    let one_by_one = PageLimits {
        rows_max: 1,
        ..PageLimits::unlimited()
    };
    let forms = [
        (PageLimits::unlimited(), false),
        (one_by_one, false),
        (one_by_one, true),
    ];
    for (limits, as_text) in forms {
        let mut got = answer(case, around, limits, as_text).map_err(|error| error.inner())?;
        let mut wanted: Vec<String> = wanted.iter().map(|row| row_text(&json(row))).collect();
        if !ordered {
            got.sort();
            wanted.sort();
        }
        compare(
            &format!("rows in pages of {}, as text: {as_text}", limits.rows_max),
            &wanted.join("\n"),
            &got.join("\n"),
        )?;
    }
    Ok(())
}

fn answer(case: &Case, around: &Surroundings, limits: PageLimits, as_text: bool) -> Result<Vec<String>, QueryError> {
    let query = Query::parse(&case.sql)?;
    let plan = plan(
        &query,
        &Definition::of_container(&around.definition),
        &parameters(case)?,
    )?;
    let text = |item: &Value| Bytes::from(item.to_text());
    let texts: Option<Vec<Bytes>> = as_text.then(|| around.items.iter().map(text).collect());
    all_pages(&plan, &around.items, texts.as_deref(), limits)
}

/// A cursor that can start anywhere, as a store's would.
struct From<'a> {
    items: &'a [Value],
    /// The same items as text, if that is how they are given.
    texts: Option<&'a [Bytes]>,
    at: usize,
    /// Where the next page goes on, once this one only looks at items.
    goes_on_at: Option<usize>,
}

impl Cursor for From<'_> {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>> {
        let content = |value| match self.texts {
            Some(texts) => Content::Text(&texts[self.at]),
            None => Content::Value(value),
        };
        let item = self.items.get(self.at).map(|value| Item {
            content: content(value),
            rank: self.at as u64,
        });
        self.at += 1;
        Ok(item)
    }

    fn look_ahead(&mut self) {
        self.goes_on_at = Some(self.at);
    }
}

/// More pages than any test has rows.
const PAGES_MAX: usize = 1000;

fn all_pages(
    plan: &Plan,
    items: &[Value],
    texts: Option<&[Bytes]>,
    limits: PageLimits,
) -> Result<Vec<String>, QueryError> {
    let mut rows = Vec::new();
    let mut resume: Option<Resume> = None;
    let mut at = 0;
    for _ in 0..PAGES_MAX {
        let mut cursor = From {
            items,
            texts,
            at: if plan.is_streaming() { at } else { 0 },
            goes_on_at: None,
        };
        let page = run(plan, &mut cursor, &context(), limits, resume.as_ref(), &mut Unlimited)?;
        let text = |row: Row| String::from_utf8(row.into_text().to_vec()).expect("rows are text");
        rows.extend(page.rows.into_iter().map(text));
        let Some(next) = page.resume else { return Ok(rows) };
        at = match cursor.goes_on_at {
            Some(at) => at,
            None if next.repeats_item() => cursor.at - 1,
            None => cursor.at,
        };
        resume = Resume::from_json(&next.to_json());
        assert_eq!(resume.as_ref(), Some(&next), "a resume survives its JSON form");
    }
    panic!("the pages of a query do not end");
}

fn client_plan(case: &Case, around: &Surroundings) -> Result<orrery_query::QueryPlan, QueryError> {
    let query = Query::parse(&case.sql)?;
    let definition = Definition::of_container(&around.definition);
    let features = match around.definition.get("features").and_then(Value::as_str) {
        Some(list) => Features::parse(list),
        None => Features::all(),
    };
    query_plan(&query, &definition, &around.key, &parameters(case)?, &features)
}

fn check_members(wanted: &Value, got: &Value) -> Result<(), String> {
    for (name, value) in wanted.as_object().ok_or("an object is wanted")?.iter() {
        let own = got.get(name).map_or("nothing".to_owned(), Value::to_text);
        compare(name, &value.to_text(), &own)?;
    }
    Ok(())
}

/// `full`, `empty`, or the keys themselves; a key with fewer parts than paths is a prefix.
fn check_ranges(case: &Case, around: &Surroundings, wanted: &str) -> Result<(), String> {
    let plan = client_plan(case, around).map_err(|error| error.inner())?;
    let mut expected: Vec<String> = match wanted {
        "full" => vec!["-FF)".to_owned()],
        "empty" => vec!["-]".to_owned()],
        keys => keys.split(' ').map(|key| key_range(&around.key, key)).collect(),
    };
    expected.sort();
    let end = |inclusive| if inclusive { "]" } else { ")" };
    let got: Vec<String> = plan
        .ranges
        .iter()
        .map(|range| format!("{}-{}{}", range.min, range.max, end(range.max_inclusive)))
        .collect();
    compare("ranges", &expected.join(" "), &got.join(" "))
}

fn key_range(definition: &PartitionKeyDefinition, key: &str) -> String {
    let key = PartitionKey::parse(key).expect("a partition key");
    if key.components().len() == definition.paths().len() {
        let epk = Epk::of(definition, &key);
        return format!("{epk}-{epk}]");
    }
    let range = EpkRange::of_key(definition, &key);
    format!("{}-{})", range.min, range.max)
}

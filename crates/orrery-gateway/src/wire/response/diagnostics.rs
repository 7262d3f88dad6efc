//! The headers that tell how a query ran: what it took, and which indexes there are for it.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use orrery_model::json::{Object, Value};
use orrery_node::api::{Facts, IndexUse, QueryMetrics};

use crate::wire::headers::names;
use crate::wire::request::ReplyForm;

pub(super) fn insert(headers: &mut HeaderMap, facts: &Facts, form: &ReplyForm) {
    if let Some(metrics) = &facts.query_metrics
        && let Ok(value) = HeaderValue::try_from(metrics_text(metrics))
    {
        headers.insert(names::QUERY_METRICS, value);
    }
    if let (Some(index_use), ReplyForm::Query { compact_index_use }) = (&facts.index_use, form) {
        let text = match compact_index_use {
            true => percent_encoded(&compact(index_use).to_text()),
            false => STANDARD.encode(classic(index_use).to_text()),
        };
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(names::INDEX_UTILIZATION, value);
        }
    }
}

/// `name=value` pairs in the service's order. What is not measured apart is 0: compiling and planning are one step here,
/// and functions run with the rest.
fn metrics_text(metrics: &QueryMetrics) -> String {
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    let (prepare, lookup, execute) = (ms(metrics.prepare), ms(metrics.index_lookup), ms(metrics.execute));
    let used = match metrics.n_items_read {
        0 => 0.0,
        n_items => (metrics.n_rows as f64 / n_items as f64).min(1.0),
    };
    let entries = [
        ("totalExecutionTimeInMs", prepare + lookup + execute),
        ("queryCompileTimeInMs", prepare),
        ("queryLogicalPlanBuildTimeInMs", 0.0),
        ("queryPhysicalPlanBuildTimeInMs", 0.0),
        ("queryOptimizationTimeInMs", 0.0),
        ("VMExecutionTimeInMs", execute),
        ("indexLookupTimeInMs", lookup),
        ("instructionCount", 0.0),
        ("documentLoadTimeInMs", 0.0),
        ("systemFunctionExecuteTimeInMs", 0.0),
        ("userFunctionExecuteTimeInMs", 0.0),
    ];
    let mut text = String::with_capacity(512);
    for (name, value) in entries {
        let digits = if name == "instructionCount" { 0 } else { 2 };
        _ = write!(text, "{name}={value:.digits$};");
    }
    _ = write!(
        text,
        "retrievedDocumentCount={};retrievedDocumentSize={};outputDocumentCount={};outputDocumentSize={};\
         writeOutputTimeInMs=0.00;indexUtilizationRatio={used:.2}",
        metrics.n_items_read, metrics.bytes_read, metrics.n_rows, metrics.bytes_given,
    );
    text
}

fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.collect::<Object>())
}

fn strings(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(text.as_str())).collect())
}

/// Lists of single and of composite indexes, used and missing.
fn compact(index_use: &IndexUse) -> Value {
    let part = |singles: &[String], composites: &[Vec<String>], missing: bool| {
        let entry = |name: &'static str, value: Value| {
            let score = missing.then(|| ("IndexImpactScore", Value::from("High")));
            object([(name, value)].into_iter().chain(score))
        };
        let singles = singles
            .iter()
            .map(|path| entry("IndexSpec", Value::from(path.as_str())));
        let composites = composites.iter().map(|paths| entry("IndexSpecs", strings(paths)));
        object([
            ("SingleIndexes", Value::Array(singles.collect())),
            ("CompositeIndexes", Value::Array(composites.collect())),
        ])
    };
    object([
        (
            "UtilizedIndexes",
            part(&index_use.used, &index_use.used_composites, false),
        ),
        (
            "PotentialIndexes",
            part(&index_use.missing, &index_use.missing_composites, true),
        ),
    ])
}

/// The older form, an entry per index. Its filter expression names the path only.
fn classic(index_use: &IndexUse) -> Value {
    let entry = |name: &'static str, value: Value, filter: &str| {
        object([
            ("FilterExpression", Value::from(filter)),
            (name, value),
            ("FilterPreciseSet", Value::Bool(true)),
            ("IndexPreciseSet", Value::Bool(true)),
            ("IndexImpactScore", Value::from("High")),
        ])
    };
    let singles = |paths: &[String]| {
        let single = |path: &String| entry("IndexSpec", Value::from(path.as_str()), path);
        Value::Array(paths.iter().map(single).collect())
    };
    let composites = |indexes: &[Vec<String>]| {
        let composite = |paths: &Vec<String>| entry("IndexSpecs", strings(paths), &paths.join(", "));
        Value::Array(indexes.iter().map(composite).collect())
    };
    object([
        ("UtilizedSingleIndexes", singles(&index_use.used)),
        ("PotentialSingleIndexes", singles(&index_use.missing)),
        ("UtilizedCompositeIndexes", composites(&index_use.used_composites)),
        ("PotentialCompositeIndexes", composites(&index_use.missing_composites)),
    ])
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_use() -> IndexUse {
        IndexUse {
            used: vec!["/a/?".to_owned()],
            missing: vec!["/b/?".to_owned()],
            used_composites: Vec::new(),
            missing_composites: vec![vec!["/a ASC".to_owned(), "/b ASC".to_owned()]],
        }
    }

    fn header(facts: &Facts, compact_index_use: bool, name: &str) -> String {
        let mut headers = HeaderMap::new();
        insert(&mut headers, facts, &ReplyForm::Query { compact_index_use });
        headers[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn metrics_come_in_the_order_clients_read_them() {
        let facts = Facts {
            query_metrics: Some(QueryMetrics {
                n_items_read: 4,
                bytes_read: 400,
                n_rows: 1,
                bytes_given: 20,
                prepare: Duration::from_micros(250),
                index_lookup: Duration::from_micros(100),
                execute: Duration::from_micros(650),
            }),
            ..Facts::default()
        };
        let text = header(&facts, false, "x-ms-documentdb-query-metrics");
        let names: Vec<&str> = text.split(';').filter_map(|entry| entry.split('=').next()).collect();
        assert_eq!(names[0], "totalExecutionTimeInMs");
        assert_eq!(names.last(), Some(&"indexUtilizationRatio"));
        assert_eq!(names.len(), 17);
        assert!(text.starts_with("totalExecutionTimeInMs=1.00;queryCompileTimeInMs=0.25;"));
        assert!(text.contains(";retrievedDocumentCount=4;retrievedDocumentSize=400;outputDocumentCount=1;"));
        assert!(text.ends_with(";indexUtilizationRatio=0.25"));
    }

    #[test]
    fn the_indexes_of_a_query_are_told_in_the_form_asked_for() {
        let facts = Facts {
            index_use: Some(index_use()),
            ..Facts::default()
        };
        let name = "x-ms-cosmos-index-utilization";
        let classic = STANDARD.decode(header(&facts, false, name)).unwrap();
        let classic = orrery_model::json::parse_value(&classic).unwrap();
        let specs = |list: &str| {
            let entries = classic.get(list).and_then(Value::as_array).unwrap();
            entries
                .iter()
                .map(|entry| entry.get("IndexSpec").cloned())
                .collect::<Vec<_>>()
        };
        assert_eq!(specs("UtilizedSingleIndexes"), [Some(Value::from("/a/?"))]);
        assert_eq!(specs("PotentialSingleIndexes"), [Some(Value::from("/b/?"))]);
        let compact = header(&facts, true, name);
        assert!(compact.starts_with(
            "%7B%22UtilizedIndexes%22%3A%7B%22SingleIndexes%22%3A%5B%7B%22IndexSpec%22%3A%22%2Fa%2F%3F%22%7D%5D"
        ));
        assert!(compact.contains("%22IndexSpecs%22%3A%5B%22%2Fa%20ASC%22%2C%22%2Fb%20ASC%22%5D"));
    }
}

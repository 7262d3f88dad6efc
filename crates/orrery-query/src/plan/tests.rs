//! Planning hostile statements stays cheap.

use super::*;
use crate::evaluate_list;
use crate::run::Context;

fn refusal(sql: &str) -> crate::QueryError {
    let query = Query::parse(sql).unwrap();
    plan(&query, &Definition::plain(), &Parameters::none()).unwrap_err()
}

#[test]
fn only_the_first_of_very_many_problems_are_listed() {
    let names: Vec<String> = (0..50_000).map(|n| format!("x{n}")).collect();
    let error = refusal(&format!("SELECT VALUE [{}] FROM c", names.join(",")));
    assert_eq!(error.problems().len(), 100);
}

#[test]
fn very_many_members_are_told_apart() {
    let members: Vec<String> = (0..40_000).map(|n| format!("a{n}:1")).collect();
    let members = members.join(",");
    let query = Query::parse(&format!("SELECT VALUE {{{members}}}.a39999")).unwrap();
    let rows = evaluate_list(&query, &[], &Parameters::none(), &Context::default()).unwrap();
    assert_eq!(rows, [orrery_model::Value::from(1)]);
    let twice = refusal(&format!("SELECT VALUE {{{members},a7:2}}"));
    assert!(twice.inner().contains("property name 'a7' specified more than once"));
}

#[test]
fn a_plan_tells_how_it_runs() {
    let planned = |sql: &str| plan(&Query::parse(sql).unwrap(), &Definition::plain(), &Parameters::none()).unwrap();
    for sql in [
        "SELECT * FROM c",
        "SELECT TOP 3 t FROM c JOIN t IN c.tags WHERE c.a = 1",
    ] {
        assert!(planned(sql).is_streaming(), "{sql}");
    }
    for sql in [
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT DISTINCT c.a FROM c",
        "SELECT * FROM c ORDER BY c.a",
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.a FROM c)",
    ] {
        assert!(!planned(sql).is_streaming(), "{sql}");
        assert!(planned(sql).reads_items(), "{sql}");
    }
    assert!(!planned("SELECT 1").reads_items());
}

#[test]
fn a_geometry_of_too_many_points_is_refused() {
    let line = |n: usize| {
        let points: Vec<String> = (0..n).map(|n| format!("[0.{n:03}, 1]")).collect();
        format!("{{'type': 'LineString', 'coordinates': [{}]}}", points.join(", "))
    };
    let sql = |n: usize| format!("SELECT VALUE ST_INTERSECTS(c.place, {}) FROM c", line(n));
    let message = refusal(&sql(257)).inner();
    assert!(
        message.contains("ST_INTERSECTS function exceeds the maximum of 256 points"),
        "{message}"
    );
    assert!(
        plan(
            &Query::parse(&sql(256)).unwrap(),
            &Definition::plain(),
            &Parameters::none()
        )
        .is_ok()
    );
}

#[test]
fn only_plans_of_little_work_per_item_are_simple() {
    let is_simple = |filter: &str| {
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        plan(&query, &Definition::plain(), &Parameters::none())
            .unwrap()
            .is_simple()
    };
    for filter in [
        "c.id = 'a' AND c.n > 5 AND NOT IS_DEFINED(c.gone)",
        "STARTSWITH(c.name, 'a') OR c.name LIKE '%b%'",
        "c.n IN (1, 2, 3)",
        "c.n BETWEEN 1 AND 2",
    ] {
        assert!(is_simple(filter), "{filter}");
    }
    for filter in [
        &format!("c.text LIKE '%{}b'", "a".repeat(100)),
        "c.text LIKE c.pattern",
        "REGEXMATCH(c.text, 'a+')",
        "EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 1)",
        "udf.f(c.n)",
        "LENGTH(REPLACE(c.text, 'a', c.text)) > 1",
        &vec!["CONTAINS(c.text, 'b')"; 100].join(" OR "),
        &vec!["c.n = 5"; 1_000].join(" OR "),
    ] {
        assert!(!is_simple(filter), "{}", &filter[..filter.len().min(60)]);
    }
}

#[test]
fn very_many_parameters_are_told_apart() {
    let mut parameters = Parameters::none();
    for n in 0..200_000 {
        parameters
            .add(&format!("@p{n}"), Some(orrery_model::Value::from(n)))
            .unwrap();
    }
    assert!(parameters.add("@p7", None).is_err());
    let query = Query::parse("SELECT VALUE @p199999").unwrap();
    let rows = evaluate_list(&query, &[], &parameters, &Context::default()).unwrap();
    assert_eq!(rows, [orrery_model::Value::from(199_999)]);
}

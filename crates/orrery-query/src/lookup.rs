//! Queries that ask for one item by its id and nothing else, told by their syntax: they need no plan.

use orrery_model::Value;

use crate::Query;
use crate::parse::ast::{BinaryOperator, Collection, Expr, ExprKind, SelectList, Statement, Step};

impl Query {
    /// The id that items must have whose whole text is the answer, for `SELECT * FROM c WHERE c.id = "…"` and its like. `None`
    /// for every other query, and for parameters that are not just the one it names.
    pub fn only_id<'q>(&'q self, parameters: &'q [(String, Option<Value>)]) -> Option<&'q str> {
        match (&only_id(&self.statement)?.kind, parameters) {
            (ExprKind::String(id), []) => Some(id),
            (ExprKind::Parameter(name), [(given, Some(Value::String(id)))]) if name == given => Some(id),
            _ => None,
        }
    }
}

/// What the id is compared with.
fn only_id(statement: &Statement) -> Option<&Expr> {
    let Statement {
        distinct: false,
        top: None,
        list,
        from: Some(from),
        filter: Some(filter),
        group_by,
        order_by: None,
        window: None,
        ..
    } = statement
    else {
        return None;
    };
    let [source] = from.sources.as_slice() else { return None };
    let is_item = matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty()) && !source.iterate;
    let alias = source.binding().filter(|_| is_item && group_by.is_empty())?;
    let gives_item = match list {
        SelectList::Star(_) => true,
        SelectList::Value(value) => is_name(value, alias),
        SelectList::Items(_) => false,
    };
    let ExprKind::Chain { first, rest } = &filter.kind else {
        return None;
    };
    let [(BinaryOperator::Equal, second)] = rest.as_slice() else {
        return None;
    };
    let other = match (is_id(first, alias), is_id(second, alias)) {
        (true, false) => second,
        (false, true) => &**first,
        _ => return None,
    };
    gives_item.then_some(other)
}

fn is_name(expr: &Expr, alias: &str) -> bool {
    matches!(&expr.kind, ExprKind::Name(name) if name == alias)
}

fn is_id(expr: &Expr, alias: &str) -> bool {
    let ExprKind::Postfix { base, steps } = &expr.kind else {
        return false;
    };
    let [step] = steps.as_slice() else { return false };
    let is_id = match step {
        Step::Member(name) => name.text == "id",
        Step::Index(index) => matches!(&index.kind, ExprKind::String(name) if name == "id"),
    };
    is_id && is_name(base, alias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plainest_questions_for_an_id_need_no_plan() {
        let id = |sql: &str, parameters: &[(&str, Option<Value>)]| {
            let parameters: Vec<(String, Option<Value>)> = parameters
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect();
            Query::parse(sql).unwrap().only_id(&parameters).map(str::to_owned)
        };
        let given = [("@id", Some(Value::from("a")))];
        for (sql, parameters) in [
            ("SELECT * FROM c WHERE c.id = @id", &given[..]),
            ("select value x from root x where 'a' = x['id']", &[]),
        ] {
            assert_eq!(id(sql, parameters).as_deref(), Some("a"), "{sql}");
        }
        for sql in [
            "SELECT * FROM c WHERE c.id = @other",
            "SELECT * FROM c WHERE c.id != @id",
            "SELECT * FROM c WHERE c.id = @id AND c.n = 1",
            "SELECT * FROM c WHERE c.id = @id ORDER BY c.n",
            "SELECT TOP 1 * FROM c WHERE c.id = @id",
            "SELECT * FROM c WHERE c.id = @id OFFSET 1 LIMIT 1",
            "SELECT DISTINCT * FROM c WHERE c.id = @id",
            "SELECT c.id FROM c WHERE c.id = @id",
            "SELECT VALUE c.n FROM c WHERE c.id = @id",
            "SELECT VALUE 1 FROM c WHERE c.id = @id GROUP BY c.id",
            "SELECT * FROM c.sub WHERE sub.id = @id",
            "SELECT VALUE t FROM t IN c.list WHERE t.id = @id",
            "SELECT VALUE c FROM c JOIN t IN c.list WHERE c.id = @id",
            "SELECT * FROM c WHERE c.o.id = @id",
            "SELECT * FROM c WHERE c.id = c.id",
            "SELECT * FROM c WHERE root.id = @id",
        ] {
            assert_eq!(id(sql, &given), None, "{sql}");
        }
        let sql = "SELECT * FROM c WHERE c.id = @id";
        assert_eq!(id(sql, &[("@id", None)]), None);
        assert_eq!(id(sql, &[("@id", Some(Value::from(1)))]), None);
        assert_eq!(id(sql, &[given[0].clone(), ("@x", None)]), None);
        assert_eq!(id(sql, &[]), None);
    }
}

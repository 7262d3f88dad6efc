//! The select list: what it makes of the frames, and what its members are called.

use std::collections::HashSet;

use super::compiler::Compiler;
use super::expr::Expr;
use super::scope::{Place, Slot};
use crate::parse::Span;
use crate::parse::ast::{self, ExprKind, SelectItem, SelectList, Statement};

impl Compiler<'_> {
    /// What the select list makes of the frames in scope.
    pub fn output(&mut self, statement: &Statement) -> Expr {
        match &statement.list {
            SelectList::Star(span) => self.star(statement, *span),
            SelectList::Value(expr) => self.expr(expr),
            SelectList::Items(items) => self.items(items),
        }
    }

    fn star(&mut self, statement: &Statement, span: Span) -> Expr {
        let n_sources = statement.from.as_ref().map_or(0, |from| from.sources.len());
        if n_sources == 0 {
            self.problem(span, "SC2039", "'SELECT *' is not valid if FROM clause is omitted.");
        } else if !statement.group_by.is_empty() {
            self.problem(span, "SC2041", "'SELECT *' is not allowed with GROUP BY.");
        } else if n_sources > 1 {
            self.problem(span, "SC2040", "'SELECT *' is only valid with a single input set.");
        }
        Expr::Path {
            up: 0,
            steps: Vec::new(),
        }
    }

    fn items(&mut self, items: &[SelectItem]) -> Expr {
        let mut taken = HashSet::new();
        let mut members = Vec::with_capacity(items.len());
        for (item, (name, span)) in items.iter().zip(item_names(items)) {
            if !taken.insert(name.clone()) {
                self.duplicate_member(&name, span);
            }
            members.push((name, self.expr(&item.expr)));
        }
        Expr::Object(members)
    }

    pub fn duplicate_member(&mut self, name: &str, span: Span) {
        let message = format!("Object creation error, property name '{name}' specified more than once.");
        self.problem(span, "SC2022", message);
    }

    pub fn place_of_list(&mut self, statement: &Statement) -> Place {
        match &statement.list {
            SelectList::Star(_) => match self.scope.slots.last() {
                Some(Slot::Value { place, .. }) => place.clone(),
                _ => Place::Computed,
            },
            SelectList::Value(expr) => self.place_of(expr),
            SelectList::Items(items) => {
                let names = item_names(items).into_iter().map(|(name, _)| name);
                Place::constructed(names.zip(items.iter().map(|item| self.place_of(&item.expr))))
            }
        }
    }
}

/// The member name of each select item, and where it stands. Items without a name of their own are numbered.
pub(super) fn item_names(items: &[SelectItem]) -> Vec<(String, Span)> {
    let mut n_unnamed = 0;
    let name = |item: &SelectItem| {
        if let Some(alias) = &item.alias {
            return (alias.text.clone(), alias.span);
        }
        match own_name(&item.expr) {
            Some(name) => (name.to_owned(), item.expr.span),
            None => {
                n_unnamed += 1;
                (format!("${n_unnamed}"), item.expr.span)
            }
        }
    };
    items.iter().map(name).collect()
}

fn own_name(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Postfix { steps, .. } => match steps.last()? {
            ast::Step::Member(name) => Some(&name.text),
            ast::Step::Index(ast::Expr {
                kind: ExprKind::String(name),
                ..
            }) => Some(name),
            ast::Step::Index(_) => None,
        },
        _ => None,
    }
}

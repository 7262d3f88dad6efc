//! ORDER BY: which expressions can be sorted by, and how.

use std::sync::Arc;

use orrery_model::container::index_rules::IndexRules;

use super::compiler::Compiler;
use super::expr::{Expr, Step};
use super::grouping::has_aggregate;
use super::rank::{Ranking, Score};
use super::scope::Place;
use crate::computed::ComputedProperty;
use crate::definition::CompositeIndex;
use crate::error::QueryError;
use crate::functions::vector::Distance;
use crate::parse::ast::{self, Direction, ExprKind, OrderBy, Statement};

/// How the rows are sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Ordering {
    #[default]
    None,
    Keys(Vec<SortKey>),
    Rank(Ranking),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortKey {
    pub expr: Expr,
    pub direction: Direction,
}

impl SortKey {
    /// Whether rows are sorted by how similar they are, for which no index has the order.
    pub fn is_similarity(&self) -> bool {
        similarity_direction(&self.expr).is_some()
    }

    /// Whether rows without a value come last in either direction: what has no vector is similar to nothing, and unlike
    /// nothing either.
    pub fn puts_undefined_last(&self) -> bool {
        matches!(&self.expr, Expr::Call { function, .. } if matches!(function.name, "VECTORDISTANCE" | "_VECTORSCORE"))
    }
}

impl Ordering {
    pub fn is_none(&self) -> bool {
        *self == Ordering::None
    }

    /// Whether the place of a row depends on items that the filter keeps out: text scores weigh a word by how many of all
    /// items have it.
    pub fn needs_all_items(&self) -> bool {
        match self {
            Ordering::Rank(ranking) => ranking
                .scores
                .iter()
                .any(|score| matches!(score, Score::FullText { .. })),
            Ordering::None | Ordering::Keys(_) => false,
        }
    }
}

impl Compiler<'_> {
    /// The ordering of a statement that is not grouped.
    pub fn ordering(&mut self, statement: &Statement, order_by: &OrderBy) -> Ordering {
        if order_by.rank {
            return self.ranking(statement, order_by);
        }
        if self.is_grouped(statement) {
            for key in &order_by.keys {
                self.check_group_order(key, &statement.group_by);
            }
            return Ordering::None;
        }
        let places: Vec<Place> = order_by.keys.iter().map(|key| self.order_place(key)).collect();
        self.check_indexes(order_by, &places);
        let keys = order_by.keys.iter().map(|key| self.sort_key(key)).collect();
        Ordering::Keys(keys)
    }

    /// What groups are sorted by is a key of theirs or something below one; items that make one group together, by any path. It is
    /// looked at as the sources see it, so that mistakes in it are found even where it cannot be seen any more after grouping.
    fn check_group_order(&mut self, key: &ast::OrderKey, group_by: &[ast::Expr]) {
        if has_aggregate(&key.expr) {
            // Partitions answer with parts of a group: only who puts them together knows the aggregate.
            self.refuse_order();
            return;
        }
        let (place, n_before) = (self.order_place_of(key), self.n_problems());
        let expr = self.expr(&key.expr);
        let is_mistaken = self.n_problems() > n_before;
        let may_be_any = group_by.is_empty() && place.is_path();
        if is_mistaken || may_be_any || is_similarity_call(&key.expr) {
            return;
        }
        let keys = self.quietly(|compiler| compiler.exprs(group_by)).unwrap_or_default();
        if keys.iter().any(|key| expr.below(key).is_some()) {
            return;
        }
        if !place.is_path() {
            self.refuse_order();
            return;
        }
        let message = format!(
            "Property reference '{}' is invalid in the ORDER BY clause because it is not contained in either an aggregate \
             function or the GROUP BY clause.",
            self.text_at(key.expr.span)
        );
        self.problem(key.expr.span, "SC2103", message);
    }

    /// The ordering of groups, as far as the keys can still be seen.
    pub fn group_ordering(&mut self, order_by: &OrderBy) -> Ordering {
        let keys = self.quietly(|compiler| order_by.keys.iter().map(|key| compiler.sort_key(key)).collect());
        keys.map_or(Ordering::None, Ordering::Keys)
    }

    fn sort_key(&mut self, key: &ast::OrderKey) -> SortKey {
        let expr = self.expr(&key.expr);
        let natural = similarity_direction(&expr).unwrap_or(Direction::Ascending);
        SortKey {
            expr,
            direction: key.direction.unwrap_or(natural),
        }
    }

    /// Where a key stands in the item. Everything but paths and similarity is refused.
    fn order_place(&mut self, key: &ast::OrderKey) -> Place {
        let place = self.order_place_of(key);
        if place.is_path() || is_similarity_call(&key.expr) {
            return place;
        }
        if self.quietly(|compiler| compiler.expr(&key.expr)).is_some() {
            self.refuse_order();
        }
        place
    }

    fn order_place_of(&mut self, key: &ast::OrderKey) -> Place {
        if !is_similarity_call(&key.expr) {
            return self.place_of(&key.expr);
        }
        let is_distance =
            matches!(&key.expr.kind, ExprKind::Call { name, .. } if name.text.eq_ignore_ascii_case("VECTORDISTANCE"));
        if key.direction.is_some() && is_distance {
            self.refuse(QueryError::plain(
                "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.",
            ));
        }
        Place::Computed
    }

    fn refuse_order(&mut self) {
        self.refuse(QueryError::numbered(
            2206,
            "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.",
        ));
    }

    fn check_indexes(&mut self, order_by: &OrderBy, places: &[Place]) {
        let Some(indexes) = &self.definition.composite_indexes else {
            return;
        };
        if places.contains(&Place::Element) {
            self.refuse(QueryError::plain(
                "Order-by over correlated collections is not supported.",
            ));
            return;
        }
        if let ([place], Some(rules)) = (places, &self.definition.index_rules) {
            if is_excluded(place, rules, &self.definition.computed) {
                self.refuse(QueryError::plain(
                    "The index path corresponding to the specified order-by item is excluded.",
                ));
            }
            return;
        }
        if places.len() < 2 {
            return;
        }
        let wanted: Vec<(Option<Vec<String>>, Direction)> = places
            .iter()
            .zip(&order_by.keys)
            .map(|(place, key)| (names(place), key.direction.unwrap_or(Direction::Ascending)))
            .collect();
        let serves = |index: &CompositeIndex, inverted: bool| {
            index.len() == wanted.len()
                && index
                    .iter()
                    .zip(&wanted)
                    .all(|((path, order), (wanted_path, wanted_order))| {
                        wanted_path.as_ref() == Some(path) && (order == wanted_order) != inverted
                    })
        };
        if !indexes.iter().any(|index| serves(index, false) || serves(index, true)) {
            self.refuse(QueryError::plain(
                "The order by query does not have a corresponding composite index that it can be served from.",
            ));
        }
    }
}

/// Whether the policy keeps a path out of the index. What the service writes itself, computed properties and elements of
/// arrays are sorted without one.
fn is_excluded(place: &Place, rules: &IndexRules, computed: &[Arc<ComputedProperty>]) -> bool {
    let Some(names) = names(place) else { return false };
    let Some(first) = names.first() else { return false };
    if IndexRules::is_system_property(first) || computed.iter().any(|property| property.name() == first) {
        return false;
    }
    let place = names.iter().fold(rules.root(), |place, name| place.member(name));
    !place.is_indexed()
}

fn names(place: &Place) -> Option<Vec<String>> {
    let Place::Document(steps) = place else { return None };
    steps
        .iter()
        .map(|step| match step {
            Step::Name(name) => Some(name.clone()),
            Step::Element(_) | Step::Nowhere => None,
        })
        .collect()
}

fn is_similarity_call(expr: &ast::Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call { name, udf: false, .. } if is_similarity(&name.text))
}

/// Functions whose value may be sorted by.
fn is_similarity(name: &str) -> bool {
    ["VECTORDISTANCE", "_VECTORSCORE", "_FULLTEXTSCORE"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// The direction that puts the most similar first.
fn similarity_direction(expr: &Expr) -> Option<Direction> {
    let Expr::Call { function, arguments } = expr else {
        return None;
    };
    match function.name {
        "VECTORDISTANCE" => Some(match Distance::of_arguments(arguments) {
            Distance::Euclidean => Direction::Ascending,
            Distance::Cosine | Distance::DotProduct => Direction::Descending,
        }),
        "_VECTORSCORE" | "_FULLTEXTSCORE" => Some(Direction::Descending),
        _ => None,
    }
}

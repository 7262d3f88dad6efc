//! Query text in the service's own layout: one clause per line, every operator in parentheses.
//!
//! Clients compare and resend this text, so blanks and parentheses are part of the contract.

use orrery_model::Number;
use orrery_model::json::print_string;

use super::ast::{
    BinaryOperator, Collection, Count, CountValue, Direction, Expr, ExprKind, From, Name, OrderBy, PathStep,
    SelectItem, SelectList, Source, Statement, Step, SubqueryForm, UnaryOperator,
};
use crate::values::print_number;

/// A literal that every parser of doubles reads as infinity.
const INFINITE: &str = "1e999";

/// The text of a statement.
pub fn print(statement: &Statement) -> String {
    let mut printer = Printer {
        out: String::new(),
        indent: 0,
    };
    printer.statement(statement);
    printer.out
}

/// The text of an expression.
pub fn print_expr(expr: &Expr) -> String {
    let mut printer = Printer {
        out: String::new(),
        indent: 0,
    };
    printer.expr(expr);
    printer.out
}

struct Printer {
    out: String,
    indent: usize,
}

impl Printer {
    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn line(&mut self) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("    ", self.indent));
    }

    fn string(&mut self, text: &str) {
        let mut bytes = Vec::new();
        print_string(text, &mut bytes);
        self.text(&String::from_utf8_lossy(&bytes));
    }

    fn list<T>(&mut self, items: &[T], mut one: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            one(self, item);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        self.text("SELECT ");
        if statement.distinct {
            self.text("DISTINCT ");
        }
        if let Some(top) = &statement.top {
            self.text("TOP ");
            self.count(&top.count);
            self.text(" ");
        }
        self.select_list(&statement.list);
        if let Some(from) = &statement.from {
            self.from(from);
        }
        if let Some(filter) = &statement.filter {
            self.line();
            self.text("WHERE ");
            self.expr(filter);
        }
        if !statement.group_by.is_empty() {
            self.line();
            self.text("GROUP BY ");
            self.list(&statement.group_by, Self::expr);
        }
        if let Some(order_by) = &statement.order_by {
            self.order_by(order_by);
        }
        if let Some(window) = &statement.window {
            self.line();
            self.text("OFFSET ");
            self.count(&window.offset);
            self.text(" LIMIT ");
            self.count(&window.limit);
        }
    }

    fn count(&mut self, count: &Count) {
        match &count.value {
            CountValue::Literal(number) => self.number(*number),
            CountValue::Parameter(name) => self.text(name),
        }
    }

    fn select_list(&mut self, list: &SelectList) {
        match list {
            SelectList::Star(_) => self.text("*"),
            SelectList::Value(expr) => {
                self.text("VALUE ");
                self.expr(expr);
            }
            SelectList::Items(items) => self.list(items, Self::select_item),
        }
    }

    fn select_item(&mut self, item: &SelectItem) {
        self.expr(&item.expr);
        if let Some(alias) = &item.alias {
            self.text(" AS ");
            self.name(alias);
        }
    }

    fn name(&mut self, name: &Name) {
        if super::is_identifier(&name.text) && super::keyword::Keyword::of(&name.text).is_none() {
            self.text(&name.text);
        } else {
            self.string(&name.text);
        }
    }

    fn from(&mut self, from: &From) {
        for (index, source) in from.sources.iter().enumerate() {
            self.line();
            self.text(if index == 0 { "FROM " } else { "JOIN " });
            self.source(source);
        }
    }

    fn source(&mut self, source: &Source) {
        match &source.alias {
            Some(alias) if source.iterate => {
                self.text(&alias.text);
                self.text(" IN ");
                self.collection(&source.collection);
            }
            Some(alias) => {
                self.collection(&source.collection);
                self.text(" AS ");
                self.text(&alias.text);
            }
            None => self.collection(&source.collection),
        }
    }

    fn collection(&mut self, collection: &Collection) {
        match collection {
            Collection::Path { root, steps } => {
                self.text(&root.text);
                steps.iter().for_each(|step| self.path_step(step));
            }
            Collection::Subquery(query) => {
                self.text("(");
                self.subquery(query);
            }
            Collection::Expr(expr) => self.expr(expr),
        }
    }

    fn path_step(&mut self, step: &PathStep) {
        match step {
            PathStep::Member(name) => {
                self.text(".");
                self.text(name);
            }
            PathStep::Name(name) => {
                self.text("[");
                self.string(name);
                self.text("]");
            }
            PathStep::Index(index) => {
                self.text("[");
                self.text(&print_number(*index));
                self.text("]");
            }
        }
    }

    /// The body of a subquery after its opening parenthesis, and the closing one.
    fn subquery(&mut self, query: &Statement) {
        self.indent += 1;
        self.line();
        self.statement(query);
        self.indent -= 1;
        self.line();
        self.text(")");
    }

    fn order_by(&mut self, order_by: &OrderBy) {
        self.line();
        self.text(if order_by.rank { "ORDER BY RANK " } else { "ORDER BY " });
        self.list(&order_by.keys, |printer, key| {
            printer.expr(&key.expr);
            match key.direction {
                Some(Direction::Ascending) => printer.text(" ASC"),
                Some(Direction::Descending) => printer.text(" DESC"),
                None => {}
            }
        });
    }

    /// A literal. One too large for a double is infinite, which has no digits of its own and whose name may be an alias.
    fn number(&mut self, number: Number) {
        match number {
            Number::Double(f64::INFINITY) => self.text(INFINITE),
            number => self.text(&print_number(number)),
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Undefined => self.text("undefined"),
            ExprKind::Null => self.text("null"),
            ExprKind::Bool(value) => self.text(if *value { "true" } else { "false" }),
            ExprKind::Number(number) => self.number(*number),
            ExprKind::String(text) => self.string(text),
            ExprKind::Parameter(name) | ExprKind::Name(name) => self.text(name),
            ExprKind::Array(items) => {
                self.text("[");
                self.list(items, Self::expr);
                self.text("]");
            }
            ExprKind::Object(members) => self.object(members),
            ExprKind::Postfix { base, steps } => self.postfix(base, steps),
            ExprKind::Unary { operator, operand } => self.unary(*operator, operand),
            ExprKind::Chain { first, rest } => self.chain(first, rest),
            ExprKind::Coalesce(operands) => self.coalesce(operands),
            ExprKind::Conditional { .. } | ExprKind::Between { .. } | ExprKind::In { .. } | ExprKind::Like { .. } => {
                self.mixfix(&expr.kind);
            }
            ExprKind::Subquery { form, query } => {
                self.text(subquery_word(*form));
                self.text("(");
                self.subquery(query);
            }
            ExprKind::Let { name, value, body } => {
                self.parts(&[&format!("(LET {} = ", name.text), " IN ", ")"], &[value, body]);
            }
            ExprKind::Call { name, udf, arguments } => {
                self.text(if *udf { "udf." } else { "" });
                self.text(&name.text);
                self.text("(");
                self.list(arguments, Self::expr);
                self.text(")");
            }
        }
    }

    /// Operators of several words.
    fn mixfix(&mut self, kind: &ExprKind) {
        match kind {
            ExprKind::Conditional {
                condition,
                then,
                otherwise,
            } => {
                self.parts(&["(", " ? ", " : ", ")"], &[condition, then, otherwise]);
            }
            ExprKind::Between {
                value,
                low,
                high,
                negated,
            } => {
                let word = if *negated { " NOT BETWEEN " } else { " BETWEEN " };
                self.parts(&["(", word, " AND ", ")"], &[value, low, high]);
            }
            ExprKind::In { value, list, negated } => {
                self.parts(&["(", if *negated { " NOT IN (" } else { " IN (" }], &[value]);
                self.list(list, Self::expr);
                self.text("))");
            }
            ExprKind::Like {
                value,
                pattern,
                escape,
                negated,
            } => {
                self.parts(
                    &["(", if *negated { " NOT LIKE " } else { " LIKE " }, ""],
                    &[value, pattern],
                );
                if let Some(escape) = escape {
                    self.text(" ESCAPE ");
                    self.string(&escape.text);
                }
                self.text(")");
            }
            _ => {}
        }
    }

    /// Words and operands in turn, beginning and ending with a word.
    fn parts(&mut self, words: &[&str], operands: &[&Expr]) {
        for (index, word) in words.iter().enumerate() {
            self.text(word);
            if let Some(operand) = operands.get(index) {
                self.expr(operand);
            }
        }
    }

    fn object(&mut self, members: &[(Name, Expr)]) {
        self.text("{");
        self.list(members, |printer, (name, value)| {
            printer.string(&name.text);
            printer.text(": ");
            printer.expr(value);
        });
        self.text("}");
    }

    fn postfix(&mut self, base: &Expr, steps: &[Step]) {
        // A number would swallow the dot, and `-x.y` means `-(x.y)`.
        let wrapped = matches!(base.kind, ExprKind::Number(_) | ExprKind::Unary { .. });
        self.text(if wrapped { "(" } else { "" });
        self.expr(base);
        self.text(if wrapped { ")" } else { "" });
        for step in steps {
            match step {
                Step::Member(name) => {
                    self.text(".");
                    self.text(&name.text);
                }
                Step::Index(index) => {
                    self.text("[");
                    self.expr(index);
                    self.text("]");
                }
            }
        }
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &Expr) {
        match operator {
            UnaryOperator::Not => self.parts(&["(NOT ", ")"], &[operand]),
            // Two signs in a row would read as a comment.
            UnaryOperator::Minus if starts_with_minus(operand) => self.parts(&["-(", ")"], &[operand]),
            UnaryOperator::Minus => self.parts(&["-", ""], &[operand]),
            UnaryOperator::Plus => self.parts(&["+", ""], &[operand]),
            UnaryOperator::BitNot => self.parts(&["~", ""], &[operand]),
        }
    }

    fn chain(&mut self, first: &Expr, rest: &[(BinaryOperator, Expr)]) {
        self.out.extend(std::iter::repeat_n("(", rest.len()));
        self.expr(first);
        for (operator, operand) in rest {
            self.text(" ");
            self.text(operator.text());
            self.text(" ");
            self.expr(operand);
            self.text(")");
        }
    }

    fn coalesce(&mut self, operands: &[Expr]) {
        for (index, operand) in operands.iter().enumerate() {
            if index > 0 {
                self.text(" ?? ");
            }
            if index + 1 < operands.len() {
                self.text("(");
            }
            self.expr(operand);
        }
        self.out
            .extend(std::iter::repeat_n(")", operands.len().saturating_sub(1)));
    }
}

fn starts_with_minus(expr: &Expr) -> bool {
    matches!(
        expr.kind,
        ExprKind::Unary {
            operator: UnaryOperator::Minus,
            ..
        }
    )
}

fn subquery_word(form: SubqueryForm) -> &'static str {
    match form {
        SubqueryForm::Scalar => "",
        SubqueryForm::Exists => "EXISTS",
        SubqueryForm::Array => "ARRAY",
        SubqueryForm::All => "ALL",
        SubqueryForm::First => "FIRST",
        SubqueryForm::Last => "LAST",
    }
}

//! TOP, OFFSET and LIMIT: counts, bound and checked.

use orrery_model::Value;

use super::RowWindow;
use super::compiler::Compiler;
use super::limits::COUNT_END;
use crate::parse::ast::{Count, CountValue, Statement};

/// The bound counts of TOP, OFFSET and LIMIT.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub top: Option<u64>,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

impl Counts {
    /// OFFSET and LIMIT apply first, then TOP.
    pub fn window(self) -> RowWindow {
        let count = match (self.top, self.limit) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        RowWindow {
            offset: self.offset.unwrap_or(0),
            count,
        }
    }
}

impl Compiler<'_> {
    pub fn counts(&mut self, statement: &Statement) -> Counts {
        let top = statement.top.as_ref().and_then(|top| self.top(&top.count));
        let Some(window) = &statement.window else {
            return Counts {
                top,
                ..Counts::default()
            };
        };
        let exceeds = |what: &str| format!("The {what} count value exceeds the maximum allowed value.");
        let offset = self.count(&window.offset, "SC2062", &exceeds("OFFSET"));
        let limit = self.count(&window.limit, "SC2061", &exceeds("LIMIT"));
        Counts { top, offset, limit }
    }

    fn top(&mut self, count: &Count) -> Option<u64> {
        let (code, message) = (
            "SC2060",
            "The count value provided for a TOP clause must be an integer.",
        );
        // A decimal is none, however round it is.
        let is_decimal = |digits: &str| !digits.starts_with("0x") && digits.contains(['.', 'e', 'E']);
        if matches!(count.value, CountValue::Literal(_)) && is_decimal(self.text_at(count.span)) {
            self.problem(count.span, code, message);
            return None;
        }
        self.count(count, code, message)
    }

    fn count(&mut self, count: &Count, code: &'static str, message: &str) -> Option<u64> {
        let number = match &count.value {
            CountValue::Literal(number) => number.as_i64(),
            CountValue::Parameter(name) => self
                .parameters
                .get(name)
                .and_then(Value::as_number)
                .and_then(|n| n.as_i64()),
        };
        match number.filter(|n| (0..COUNT_END).contains(n)) {
            Some(number) => Some(number.unsigned_abs()),
            None => {
                self.problem(count.span, code, message);
                None
            }
        }
    }
}

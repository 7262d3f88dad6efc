//! What planning checks and adds for vector and full-text functions.

use orrery_model::Value;

use super::compiler::Compiler;
use super::expr::{Expr, Step};
use crate::functions::full_text::Language;
use crate::functions::vector;
use crate::parse::ast;
use crate::values::print_number;

impl Compiler<'_> {
    /// Checks the options of a VECTORDISTANCE call and adds the container's choice of distance.
    pub fn vector_arguments(&mut self, arguments: &[ast::Expr], compiled: &mut Vec<Expr>) {
        if let Some(options) = compiled.get(3).and_then(Expr::constant) {
            let multiplier = options.get("searchListSizeMultiplier").and_then(Value::as_number);
            if let Some(multiplier) = multiplier.filter(|number| !(1.0..=100.0).contains(&number.to_f64())) {
                let message = format!(
                    "The 'searchListSizeMultiplier' value {} specified in the VectorDistance function is outside the \
                     supported range. The value must be between 1 and 100.",
                    print_number(multiplier)
                );
                self.problem(arguments[3].span, "SC2213", message);
            }
        }
        let path = compiled.iter().take(2).find_map(|argument| match argument {
            Expr::Path { steps, .. } => Some(steps.clone()),
            _ => None,
        });
        let policy = self
            .definition
            .vectors
            .iter()
            .find(|(names, _)| path.as_deref().is_some_and(|path| same(path, names)));
        if let Some((_, distance)) = policy {
            vector::with_policy(compiled, *distance);
        }
    }
}

impl Compiler<'_> {
    /// Puts the language of the path in front of a full-text function's arguments.
    pub fn full_text_arguments(&mut self, compiled: &mut Vec<Expr>) {
        let language = compiled.first().map_or("en-US", |text| self.language(text)).to_owned();
        compiled.insert(0, Expr::Constant(Some(Value::String(language))));
    }

    /// The language of the text an expression stands for.
    pub fn language(&self, text: &Expr) -> &str {
        let own = self.definition.languages.iter().find(|(names, _)| match text {
            Expr::Path { steps, .. } => same(steps, names),
            _ => false,
        });
        let chosen = own
            .map(|(_, language)| language)
            .or(self.definition.default_language.as_ref());
        chosen
            .map(String::as_str)
            .filter(|tag| Language::parse(tag).is_some())
            .unwrap_or("en-US")
    }
}

/// Whether a path consists of exactly these names.
pub(super) fn same(path: &[Step], names: &[String]) -> bool {
    path.len() == names.len()
        && path
            .iter()
            .zip(names)
            .all(|(step, name)| matches!(step, Step::Name(own) if own == name))
}

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
            if let Some(message) = option_problem(options) {
                self.problem(arguments[3].span, "SC2210", message);
            }
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
        let path = compiled.iter().take(2).find_map(Expr::stored_path);
        let mut policies = self.definition.vectors.iter();
        let policy = policies.find(|(names, _)| path.as_deref().is_some_and(|path| same(path, names)));
        if let Some(distance) = policy.map(|(_, distance)| *distance) {
            vector::with_policy(compiled, distance);
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
        let path = text.stored_path();
        let mut languages = self.definition.languages.iter();
        let own = languages.find(|(names, _)| path.as_deref().is_some_and(|path| same(path, names)));
        let chosen = own
            .map(|(_, language)| language)
            .or(self.definition.default_language.as_ref());
        chosen
            .map(String::as_str)
            .filter(|tag| Language::parse(tag).is_some())
            .unwrap_or("en-US")
    }
}

const OPTIONS: [&str; 5] = [
    "distanceFunction",
    "dataType",
    "searchListSizeMultiplier",
    "quantizedVectorListMultiplier",
    "filterPriority",
];

/// What is wrong with the options of a VECTORDISTANCE call.
fn option_problem(options: &Value) -> Option<String> {
    let Value::Object(options) = options else { return None };
    options.iter().find_map(|(name, value)| {
        let known = match name {
            "distanceFunction" => ["cosine", "dotproduct", "euclidean"].as_slice(),
            "dataType" => ["float32", "float16", "int8", "uint8"].as_slice(),
            _ if OPTIONS.contains(&name) => return None,
            _ => {
                return Some(format!(
                    "'{name}' is not a valid option name for VectorDistance function options argument."
                ));
            }
        };
        let text = value.as_str()?;
        let is_known = known.iter().any(|known| known.eq_ignore_ascii_case(text));
        (!is_known).then(|| {
            format!(
                "VectorDistance function options argument property value '{text}' is not a valid value for option '{name}'."
            )
        })
    })
}

/// Whether a path consists of exactly these names.
pub(super) fn same(path: &[Step], names: &[String]) -> bool {
    path.len() == names.len()
        && path
            .iter()
            .zip(names)
            .all(|(step, name)| matches!(step, Step::Name(own) if own == name))
}

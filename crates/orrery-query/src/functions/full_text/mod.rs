//! Full text: words instead of characters.
//!
//! Text and search terms go through the same analysis, so a term is found in whatever form its words stand. Planning
//! puts the language of the path in front of the arguments.

mod analysis;
mod functions;
mod score;
mod stop_words;

pub(crate) use analysis::{Language, Term};
pub(super) use functions::register;
pub(crate) use score::{Statistics, relevance};

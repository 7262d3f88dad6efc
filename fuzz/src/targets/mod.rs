//! The targets, and what mutations of their input should be made of.

mod account;
mod json;
mod log;
mod query;
mod request;
mod token;

/// One format and the function that reads it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its folder in `corpus/`.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Pieces that mean something to the reader.
    pub words: &'static [&'static str],
    /// Mutations tried by an ordinary test run.
    pub n_mutations: usize,
}

pub const TARGETS: &[Target] = &[
    Target {
        name: "sql",
        run: query::sql,
        words: query::WORDS,
        n_mutations: 4_000,
    },
    Target {
        name: "query",
        run: query::query,
        words: query::WORDS,
        n_mutations: 2_000,
    },
    Target {
        name: "json",
        run: json::text,
        words: json::WORDS,
        n_mutations: 4_000,
    },
    Target {
        name: "binary_json",
        run: json::binary,
        words: &["\u{80}"],
        n_mutations: 4_000,
    },
    Target {
        name: "hybrid_row",
        run: request::hybrid_row,
        words: &[],
        n_mutations: 4_000,
    },
    Target {
        name: "request",
        run: request::request,
        words: request::WORDS,
        n_mutations: 1_500,
    },
    Target {
        name: "token",
        run: token::token,
        words: token::WORDS,
        n_mutations: 2_000,
    },
    Target {
        name: "log_record",
        run: log::record,
        words: &[],
        n_mutations: 4_000,
    },
    Target {
        name: "log_file",
        run: log::file,
        words: &[],
        n_mutations: 100,
    },
];

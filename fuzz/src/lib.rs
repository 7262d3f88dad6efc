//! Whatever bytes arrive from outside or from a disk must end in a value or an error, in bounded time and memory.
//!
//! A target is a plain function over bytes that panics when a promise is broken. `tests/search.rs` runs every target over
//! its checked-in corpus and over mutations of it drawn from a seed, on the stable toolchain; `libfuzzer/` runs the same
//! functions under coverage guidance where a nightly toolchain and `cargo fuzz` are at hand.

pub mod mutate;
pub mod targets;

pub use targets::{TARGETS, Target};

/// Runs the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("the target is listed").run)(bytes);
}

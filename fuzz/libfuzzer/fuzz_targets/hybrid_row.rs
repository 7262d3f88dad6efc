//! Searches the target `hybrid_row`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orrery_fuzz::run("hybrid_row", bytes));

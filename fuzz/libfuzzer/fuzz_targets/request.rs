//! Searches the target `request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orrery_fuzz::run("request", bytes));

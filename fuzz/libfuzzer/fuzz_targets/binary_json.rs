//! Searches the target `binary_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orrery_fuzz::run("binary_json", bytes));

//! Searches the target `log_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orrery_fuzz::run("log_file", bytes));

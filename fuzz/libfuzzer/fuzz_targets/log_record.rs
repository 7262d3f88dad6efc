//! Searches the target `log_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orrery_fuzz::run("log_record", bytes));

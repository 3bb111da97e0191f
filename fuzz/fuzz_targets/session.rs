//! libFuzzer on the target `session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::session(bytes));

//! libFuzzer on the target `metadata`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::metadata(bytes));

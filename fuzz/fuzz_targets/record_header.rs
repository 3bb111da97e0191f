//! libFuzzer on the target `record_header`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::record_header(bytes));

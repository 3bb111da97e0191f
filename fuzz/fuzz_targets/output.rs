//! libFuzzer on the target `output`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::output(bytes));

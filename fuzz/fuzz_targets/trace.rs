//! libFuzzer on the target `trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::trace(bytes));

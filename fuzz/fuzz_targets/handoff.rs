//! libFuzzer on the target `handoff`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::handoff(bytes));

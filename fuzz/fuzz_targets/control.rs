//! libFuzzer on the target `control`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::control(bytes));

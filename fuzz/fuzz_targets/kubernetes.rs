//! libFuzzer on the target `kubernetes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::kubernetes(bytes));

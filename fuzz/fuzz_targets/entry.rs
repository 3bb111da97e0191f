//! libFuzzer on the target `entry`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::entry(bytes));

//! libFuzzer on the target `control_ends`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::control_ends(bytes));

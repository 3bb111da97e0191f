//! libFuzzer on the target `slab`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::slab(bytes));

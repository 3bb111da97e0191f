//! libFuzzer on the target `safetensors`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::safetensors(bytes));

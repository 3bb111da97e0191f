//! libFuzzer on the target `gguf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::gguf(bytes));

//! libFuzzer on the target `tcp_reader`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::tcp_reader(bytes));

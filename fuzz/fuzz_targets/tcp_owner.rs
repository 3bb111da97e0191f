//! libFuzzer on the target `tcp_owner`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::tcp_owner(bytes));

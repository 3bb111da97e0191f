//! libFuzzer on the target `tcp_wire`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::tcp_wire(bytes));

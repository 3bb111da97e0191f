//! libFuzzer on the target `etcd`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::etcd(bytes));

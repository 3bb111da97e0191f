//! libFuzzer on the target `rdma_reader`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::rdma_reader(bytes));

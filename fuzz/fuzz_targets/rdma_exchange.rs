//! libFuzzer on the target `rdma_exchange`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::rdma_exchange(bytes));

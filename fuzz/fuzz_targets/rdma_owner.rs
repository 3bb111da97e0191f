//! libFuzzer on the target `rdma_owner`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::rdma_owner(bytes));

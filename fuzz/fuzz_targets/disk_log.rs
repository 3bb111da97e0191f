//! libFuzzer on the target `disk_log`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::disk_log(bytes));

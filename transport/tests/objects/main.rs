//! The mover of objects, against a real server of S3's API: what is read is what was written, a key is written
//! once, bad days of stores and networks end transfers with their reason, and nothing is touched after the end.

mod bad_days;
mod bench;
mod good_days;
mod integrity;
mod relay;
mod store;

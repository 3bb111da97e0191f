//! What the tests of whole paths share. Each test target beside `src` says what it shows.

pub mod cluster;
pub mod rig;

//! How fast lanes, files and stores are lately, and what is decided by it.

pub(crate) mod bandwidth;
pub(crate) mod fair_share;
pub(crate) mod link_speed;
pub(crate) mod probe;
pub(crate) mod ranking;
pub(crate) mod storage_speed;
